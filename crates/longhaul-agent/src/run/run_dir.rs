//! The directory of one run: the agent's key and the only peer that the command trusts, and the data
//! that copies transfer.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_engine::session::PublicKey;
use longhaul_fleet::protocol::{Lease, Role};
use ring::rand::{SecureRandom, SystemRandom};

use crate::home::write_private;

/// The maximum number of bytes of a copy.
const MOST_BYTES: u64 = 1 << 40;
const PIECE: usize = 1 << 20;

/// The directory of one run, which is removed with the value.
#[derive(Debug)]
pub(super) struct RunDir(PathBuf);

impl RunDir {
    /// Creates the directory `runs/RUN-ROLE` in `state`, with a copy of the key `identity`.
    pub(super) fn create(state: &Path, identity: &Path, lease: &Lease) -> io::Result<Self> {
        let role = if lease.role == Role::Source { "source" } else { "target" };
        let dir = RunDir(state.join("runs").join(format!("{}-{role}", lease.run)));
        let _ = fs::remove_dir_all(&dir.0);
        let config = dir.0.join("longhaul");
        DirBuilder::new().recursive(true).mode(0o700).create(&config)?;
        write_private(&config.join("identity"), &fs::read(identity)?)?;
        if let Some(key) = lease.peer_key.as_deref().and_then(public_key) {
            let server = SocketAddr::new(lease.peer, lease.port);
            let (name, line) = match lease.role {
                Role::Source => ("known_hosts", format!("{server} {key}\n")),
                Role::Target => ("authorized_keys", format!("{key}\n")),
            };
            write_private(&config.join(name), line.as_bytes())?;
        }
        Ok(dir)
    }

    /// Returns the value of `XDG_CONFIG_HOME` for the command.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the key that is `base64` in a lease.
pub(super) fn public_key(base64: &str) -> Option<PublicKey> {
    format!("longhaul-ed25519 {base64}").parse().ok()
}

/// Makes a file of `bytes` bytes in the directory of a run, until `stop` returns true.
///
/// # Errors
/// The file system has no space for twice the size, the file cannot be written, or it was stopped.
pub(super) fn source_file(
    run_dir: &Path,
    bytes: u64,
    stop: &dyn Fn() -> bool,
) -> io::Result<PathBuf> {
    check_space(run_dir, bytes)?;
    let path = run_dir.join("data");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    fill(file, bytes, stop).map(|()| path)
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
    if bytes <= MOST_BYTES && stat.f_bavail * stat.f_frsize / 2 > bytes {
        Ok(())
    } else {
        Err(io::ErrorKind::StorageFull.into())
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
    fn data_need_space_and_end_with_their_run() {
        let dir = tempfile::tempdir().unwrap();
        let full = source_file(dir.path(), 1 << 50, &|| false).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let path = source_file(dir.path(), 3_000_000, &|| false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3_000_000);
        std::fs::remove_file(path).unwrap();
        assert!(source_file(dir.path(), 3_000_000, &|| true).is_err());
    }
}
