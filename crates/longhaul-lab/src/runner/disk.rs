//! The page cache and the scratch directory of disk runs.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_core::result::Caches;
use rustix::fs::{Advice, fadvise, sync, syncfs};

use crate::LabError;

/// Empties the page cache: writes the dirty pages of earlier runs and drops the pages of the
/// source.
pub(super) fn empty_page_cache(source: &Path, tree: bool) -> Caches {
    sync();
    // The kernel drops only clean pages, so a sync comes first. 1 drops the page cache, 3 also
    // directory entries and inodes (Documentation/admin-guide/sysctl/vm.rst).
    match fs::write("/proc/sys/vm/drop_caches", if tree { "3" } else { "1" }) {
        Ok(()) => Caches::Dropped,
        Err(_) => {
            advise(source);
            Caches::Advised
        }
    }
}

/// Advises the kernel to drop the pages of a file. An error is ignored: if the file cannot be
/// opened, the copy itself fails.
fn advise(path: &Path) {
    if let Ok(entries) = fs::read_dir(path) {
        entries.flatten().for_each(|entry| advise(&entry.path()));
    } else if let Ok(file) = File::open(path) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

/// Syncs the destination's file system and returns the duration of the sync.
pub(super) fn settle(dir: &Path) -> io::Result<Duration> {
    let handle = File::open(dir)?;
    let begun = Instant::now();
    syncfs(&handle)?;
    Ok(begun.elapsed())
}

/// Creates `dir`, or removes its contents.
pub(super) fn empty(dir: &Path) -> Result<(), LabError> {
    remove(dir)?;
    fs::create_dir_all(dir).map_err(LabError::file("create", dir))
}

/// Removes a directory with its contents, if it exists.
pub(super) fn remove(dir: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LabError::file("remove", dir)(error))
        }
        _ => Ok(()),
    }
}
