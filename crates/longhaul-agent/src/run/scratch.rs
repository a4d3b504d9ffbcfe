//! The data that copies transfer.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

/// The most bytes of a copy.
const MOST_BYTES: u64 = 1 << 40;
const PIECE: usize = 1 << 20;

/// Returns a file of `bytes` bytes in `state`, which later runs use again. It is made in the directory
/// of the run, until `stop` returns true.
///
/// # Errors
/// The file system has no space for twice the size, the file cannot be written, or it was stopped.
pub(super) fn source_file(
    state: &Path,
    run_dir: &Path,
    bytes: u64,
    stop: &dyn Fn() -> bool,
) -> io::Result<PathBuf> {
    let dir = state.join("scratch");
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let path = dir.join(format!("data-{bytes}"));
    if fs::metadata(&path).is_ok_and(|found| found.len() == bytes) {
        return Ok(path);
    }
    check_space(&dir, bytes)?;
    // Another run can make a file at the same time.
    let temporary = run_dir.join("data.new");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let written =
        file.and_then(|file| fill(file, bytes, stop)).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map(|()| path)
}

/// Returns an empty directory for the copy of a run.
///
/// # Errors
/// The file system has no space for twice the size, or the directory cannot be created.
pub(super) fn target_dir(run_dir: &Path, bytes: u64) -> io::Result<PathBuf> {
    let dir = run_dir.join("root");
    DirBuilder::new().mode(0o700).create(&dir)?;
    check_space(&dir, bytes)?;
    Ok(dir)
}

fn check_space(dir: &Path, bytes: u64) -> io::Result<()> {
    let stat = rustix::fs::statvfs(dir)?;
    match bytes <= MOST_BYTES && stat.f_bavail * stat.f_frsize / 2 > bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::StorageFull.into()),
    }
}

/// Writes data without repetition within the window of a compressor.
fn fill(mut file: File, bytes: u64, stop: &dyn Fn() -> bool) -> io::Result<()> {
    let mut piece = vec![0_u8; PIECE];
    SystemRandom::new().fill(&mut piece).map_err(|_| io::Error::other("no random numbers"))?;
    let mut left = bytes;
    while left > 0 {
        if stop() {
            return Err(io::Error::other("the run ended before its data were made"));
        }
        let length = left.min(PIECE as u64) as usize;
        file.write_all(&piece[..length])?;
        left -= length as u64;
        // A different piece each time, without the cost of random numbers.
        piece.rotate_left(4093);
        piece[..8].copy_from_slice(&left.to_le_bytes());
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let source_file = |bytes| source_file(dir.path(), dir.path(), bytes, &|| false);
        let path = source_file(3_000_000).unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_eq!(made.len(), 3_000_000);
        assert_eq!(source_file(3_000_000).unwrap(), path);
        let full = source_file(1 << 50).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn data_of_a_run_that_ends_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(source_file(dir.path(), dir.path(), 3_000_000, &|| true).is_err());
        assert!(!dir.path().join("data.new").exists());
        assert_eq!(fs::read_dir(dir.path().join("scratch")).unwrap().count(), 0);
    }
}
