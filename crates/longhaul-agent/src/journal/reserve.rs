//! Disk space for the last records of an agent whose disk becomes full.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A file whose only purpose is its size. It is removed when the disk is full, so that the results of
/// running tests find space.
#[derive(Debug)]
pub(super) struct Reserve(PathBuf);

const RESERVE_BYTES: usize = 8 << 20;

impl Reserve {
    pub(super) fn at(path: PathBuf) -> Self {
        Reserve(path)
    }

    /// Creates the file if it does not exist in full size.
    pub(super) fn create(&self) -> io::Result<()> {
        if fs::metadata(&self.0).is_ok_and(|found| found.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        let made = options.open(&self.0).and_then(|mut file| {
            // Written, because some file systems do not reserve the space of a hole.
            let piece = vec![0; 1 << 20];
            (0..RESERVE_BYTES / piece.len()).try_for_each(|_| file.write_all(&piece))?;
            file.sync_all()
        });
        if made.is_err() {
            let _ = fs::remove_file(&self.0);
        }
        made
    }

    /// Removes the file. Returns whether it existed.
    pub(super) fn release(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}
