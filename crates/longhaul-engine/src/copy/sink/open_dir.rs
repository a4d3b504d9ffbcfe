//! An open directory of the target, and the identity and mode of the files in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

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
    /// The handle for syncfs(2), opened before anything was written, so that it reports every later
    /// error. `None` if syncfs(2) is not reliable on the file system.
    pub(super) sync: Option<Arc<File>>,
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
