use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_core::result::Caches;
use rustix::fs::{Advice, fadvise, sync, syncfs};

use crate::LabError;

/// Makes the page cache cold: nothing dirty left from before, and neither the source nor
/// anything else already in memory.
pub(super) fn cool(source: &Path, tree: bool) -> Caches {
    sync();
    // Only clean pages can be dropped, hence the sync; 1 is the page cache alone, 3 also the
    // entries and inodes of directories. See Documentation/admin-guide/sysctl/vm.rst.
    match fs::write("/proc/sys/vm/drop_caches", if tree { "3" } else { "1" }) {
        Ok(()) => Caches::Dropped,
        Err(_) => {
            advise(source);
            Caches::Advised
        }
    }
}

/// Best effort, as advice is: a file that cannot be opened will fail the copy itself.
fn advise(path: &Path) {
    if let Ok(entries) = fs::read_dir(path) {
        entries.flatten().for_each(|entry| advise(&entry.path()));
    } else if let Ok(file) = File::open(path) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

/// Writes out what the destination's file system still holds in memory, and says how long it took.
pub(super) fn settle(dir: &Path) -> io::Result<Duration> {
    let handle = File::open(dir)?;
    let begun = Instant::now();
    syncfs(&handle)?;
    Ok(begun.elapsed())
}

/// Makes `dir` an empty directory.
pub(super) fn empty(dir: &Path) -> Result<(), LabError> {
    remove(dir)?;
    fs::create_dir_all(dir).map_err(LabError::file("create", dir))
}

/// Removes a directory with all that is in it, if it is there.
pub(super) fn remove(dir: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LabError::file("remove", dir)(error))
        }
        _ => Ok(()),
    }
}
