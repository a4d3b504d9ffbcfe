//! The programs that have sockets open.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// Returns the names of the programs that have the sockets with these inodes open, as far as this process
/// may see them: root sees all, others only their own.
pub fn programs_of(inodes: &BTreeSet<u32>) -> HashMap<u32, String> {
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if found.len() == inodes.len() {
            break;
        }
        let process = entry.path();
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // The descriptors of an ended or foreign process are not visible.
        let Some(files) = is_process.then(|| fs::read_dir(process.join("fd")).ok()).flatten()
        else {
            continue;
        };
        let sockets = files.flatten().filter_map(|file| socket(&file.path()));
        let wanted: Vec<u32> = sockets.filter(|inode| inodes.contains(inode)).collect();
        if wanted.is_empty() {
            continue;
        }
        let name = fs::read(process.join("comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        found.extend(wanted.into_iter().map(|inode| (inode, name.clone())));
    }
    found
}

/// Returns the inode of an open socket (proc_pid_fd(5)).
fn socket(file: &Path) -> Option<u32> {
    let target = fs::read_link(file).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_socket_of_this_process_has_its_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let file = format!("/proc/self/fd/{}", listener.as_raw_fd());
        let inode = socket(Path::new(&file)).unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let found = programs_of(&BTreeSet::from([inode, u32::MAX]));
        assert_eq!(found, HashMap::from([(inode, own.trim_end().to_owned())]));
        assert_eq!(socket(Path::new("/proc/self/exe")), None);
    }
}
