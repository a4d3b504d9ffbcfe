//! Files that only the user of the hub can read, and that never exist half-written.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::HubError;

/// Writes and syncs the file `path`, in place of one that exists.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let temporary = write_beside(path, bytes)?;
    fs::rename(&temporary, path).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        HubError::file("create", path)(error)
    })?;
    sync_directory(path)
}

/// Writes and syncs the file `path`, unless it exists.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let temporary = write_beside(path, bytes)?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary).map_err(HubError::file("remove", &temporary))?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(HubError::file("create", path)(error))
        }
        _ => sync_directory(path),
    }
}

/// Syncs the directory of `path`, so that the name survives a power failure.
fn sync_directory(path: &Path) -> Result<(), HubError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(HubError::file("sync", directory))
}

/// Writes and syncs a temporary file beside `path`, and returns its path.
fn write_beside(path: &Path, bytes: &[u8]) -> Result<PathBuf, HubError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    // It may remain from an earlier process with the same ID.
    let _ = fs::remove_file(&temporary);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(HubError::file("create", &temporary))?;
    match file.write_all(bytes).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(temporary),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(HubError::file("write", &temporary)(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_once_or_replaced_without_temporary_remains() {
        let dir = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let occupied = dir.path().join("directory");
        fs::create_dir(&occupied).unwrap();
        fs::write(occupied.join("file"), "").unwrap();
        replace(&occupied, b"secret").unwrap_err();
        create(&occupied, b"secret").unwrap();
        assert_eq!(names().collect::<Vec<_>>(), ["directory"]);
        let path = dir.path().join("key");
        create(&path, b"first").unwrap();
        create(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        replace(&path, b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(names().count(), 2);
    }
}
