//! Facts about the host that are needed to interpret a figure.

use std::fs;
use std::path::Path;
use std::thread;

use longhaul_core::units::Bytes;

/// A fact: its name and its value as text.
pub type Fact = (String, String);

/// Returns facts about kernel, processor, memory and TCP of this host. Unreadable facts are
/// omitted.
pub fn facts() -> Vec<Fact> {
    let cpuinfo = read("/proc/cpuinfo");
    let meminfo = read("/proc/meminfo");
    let cores = thread::available_parallelism().ok().map(|count| count.to_string());
    let memory = field(&meminfo, "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| Bytes::new(kib << 10).to_string());
    let tcp = |name: &str| line(&format!("/proc/sys/net/ipv4/{name}"));
    let facts = [
        ("Kernel", line("/proc/sys/kernel/osrelease")),
        ("Processor", field(&cpuinfo, "model name")),
        ("Cores", cores),
        ("Memory", memory),
        ("Congestion control", tcp("tcp_congestion_control")),
        ("tcp_mem (pages)", tcp("tcp_mem")),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the file system type of `path`, from its nearest mount point.
pub fn file_system(path: &Path) -> Option<String> {
    nearest_mount(&read("/proc/self/mounts"), &fs::canonicalize(path).ok()?)
}

fn nearest_mount(mounts: &str, path: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|mount| {
            let mut words = mount.split(' ');
            let (_device, point, kind) = (words.next()?, words.next()?, words.next()?);
            // A blank in a mount point is written as \040 (proc_pid_mounts(5)).
            Some((point.replace("\\040", " "), kind))
        })
        .filter(|(point, _)| path.starts_with(point))
        // Of equal mount points the last one counts: a later mount covers an earlier one.
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind.to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the value after `name:` in a file of `name: value` lines.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_wins_and_the_later_of_two() {
        let mounts = "dev / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nx /tmp xfs rw 0 0\n\
                      y /data\\040disk btrfs rw 0 0\n";
        let kind = |path: &str| nearest_mount(mounts, Path::new(path));
        assert_eq!(kind("/home/me").as_deref(), Some("ext4"));
        assert_eq!(kind("/tmp/x").as_deref(), Some("xfs"));
        assert_eq!(kind("/data disk/file").as_deref(), Some("btrfs"));
    }

    #[test]
    fn reads_the_kernels_tables() {
        assert_eq!(field("model name\t: EPYC\nother: 1", "model name").as_deref(), Some("EPYC"));
        let names: Vec<String> = facts().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"Kernel".to_owned()), "{names:?}");
    }
}
