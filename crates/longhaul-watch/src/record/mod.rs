//! The record of interfaces on disk: a directory with a SQLite database.
//!
//! `docs/design/watch-record.md` describes the format. A process that is killed loses the intervals since
//! the last commit, at most five seconds. One process writes a record; any number read it.

mod prune;
mod read;
mod schema;
mod write;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::WatchError;

pub use read::{Record, RecordedInterface};
pub use write::Recorder;

/// The file name of the database in the directory of a record.
pub const FILE_NAME: &str = "watch.sqlite";
/// The file that the writer of the record keeps locked.
const LOCK_NAME: &str = "watch.lock";

/// Creates the directory of a record if it does not exist, and locks the record for one writer.
fn lock(dir: &Path) -> Result<File, WatchError> {
    fs::create_dir_all(dir).map_err(failed("create", dir))?;
    check_owner(dir)?;
    let path = dir.join(LOCK_NAME);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .map_err(failed("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(WatchError::RecordInUse(dir.to_owned())),
        Err(error) => Err(failed("lock", &path)(error.into())),
    }
}

/// Returns the path of the database after a check of its owner and kind, or `None` if it does not exist.
fn database(dir: &Path) -> Result<Option<PathBuf>, WatchError> {
    let path = dir.join(FILE_NAME);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &path)(error)),
        Ok(found) if !found.is_file() => Err(WatchError::NotARecord(path)),
        Ok(_) => {
            check_owner(&path)?;
            Ok(Some(path))
        }
    }
}

/// Checks that `path` belongs to this user or to root: SQLite trusts the contents of a database.
fn check_owner(path: &Path) -> Result<(), WatchError> {
    let found = fs::metadata(path).map_err(failed("read", path))?.uid();
    let wanted = rustix::process::geteuid().as_raw();
    if found == wanted || found == 0 || wanted == 0 {
        return Ok(());
    }
    Err(WatchError::ForeignRecord { path: path.to_owned(), found, wanted })
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> WatchError {
    let path = path.to_owned();
    move |source| WatchError::File { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        assert!(matches!(lock(dir.path()), Err(WatchError::RecordInUse(_))));
        drop(held);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn a_database_is_a_regular_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(database(dir.path()).unwrap().is_none());
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(FILE_NAME)).unwrap();
        assert!(matches!(database(dir.path()), Err(WatchError::NotARecord(_))));
    }
}
