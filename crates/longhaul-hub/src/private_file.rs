//! Files that only the user of the hub can read, and that never exist half-written.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::HubError;

/// Writes and syncs a temporary file beside `path`, to which the caller renames or links it. Returns the path of
/// the temporary file.
pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> Result<PathBuf, HubError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    // It may remain from a process with the same number.
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
