//! An open directory of the target, and the identity and mode of the files in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use super::fault::Countdown;
use crate::copy::journal::FileId;

/// A directory that files are created in.
pub(super) struct OpenDir {
    pub(super) fd: OwnedFd,
    /// True if this copy has made the directory, so that no other path leads to it.
    pub(super) fresh: bool,
    /// True if existing files may be replaced.
    pub(super) replaces: bool,
    pub(super) faults: Countdown,
    pub(super) device: u64,
    /// Syncs the file system; `None` if syncfs(2) is not reliable on it.
    pub(super) sync: Option<Arc<FileSystemSync>>,
}

/// The sync of a whole file system by syncfs(2).
///
/// The handle is opened before anything is written, so that it reports every later error. The kernel
/// reports an error once and does not name the file. After an error, a sync that succeeds does not
/// cover the files that were written before the error: each of them needs its own fsync(2), which
/// reports the errors of the file.
pub(super) struct FileSystemSync {
    handle: File,
    failed: AtomicBool,
}

impl FileSystemSync {
    /// Creates the sync of the file system of `handle`.
    pub(super) fn new(handle: File) -> Self {
        FileSystemSync { handle, failed: AtomicBool::new(false) }
    }

    /// Syncs the file system.
    ///
    /// # Errors
    /// A file was not written since the last call. The kernel reports this once.
    pub(super) fn sync(&self, faults: &Countdown) -> io::Result<()> {
        let synced = faults.tick().and_then(|()| Ok(rustix::fs::syncfs(&self.handle)?));
        if synced.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    /// Returns whether a sync has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Returns the identity of the file of `stat`.
pub(super) fn file_id(stat: &Stat) -> FileId {
    FileId {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        mtime_seconds: stat.st_mtime,
        mtime_ns: stat.st_mtime_nsec,
        ctime: Some((stat.st_ctime, stat.st_ctime_nsec)),
    }
}

/// Returns the mode of the file that `name` will replace, if there is one. A directory is not
/// replaced.
pub(super) fn existing_mode(dir: &OpenDir, name: &OsStr) -> io::Result<Option<u32>> {
    if dir.fresh {
        return Ok(None);
    }
    let Ok(stat) = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(None) };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Err(Errno::ISDIR.into()),
        FileType::RegularFile => Ok(Some(stat.st_mode & 0o777)),
        _ => Ok(None),
    }
}
