//! The memory, the disk and the boot of this host.

use std::fs;
use std::path::Path;

/// Returns the free bytes of the file system of `path`, and the resident bytes of this process.
pub(crate) fn host_state(path: &Path) -> (u64, u64) {
    let free = rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let page = rustix::param::page_size() as u64;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    // The second field is the number of resident pages (proc_pid_statm(5)).
    let pages = statm.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    (free, pages.unwrap_or(0) * page)
}
