//! The CPU quota of a control group.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::read;

/// Returns the time for which a CPU quota has throttled the process: the quota of its control group
/// or of an ancestor, since the group was created (`cpu.stat`,
/// Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst). Returns `None` if the
/// group is not visible.
pub fn throttled() -> Option<Duration> {
    let groups = groups(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    let times = groups.iter().flat_map(|(mount, group)| {
        // Any ancestor may have the quota.
        let above = Path::new(group).ancestors();
        above.filter_map(|group| {
            let group = group.strip_prefix("/").unwrap_or(group);
            time(&std::fs::read_to_string(mount.join(group).join("cpu.stat")).ok()?)
        })
    });
    times.max()
}

fn time(stat: &str) -> Option<Duration> {
    stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", time) => Some(Duration::from_micros(time.trim().parse().ok()?)),
        ("throttled_time", time) => Some(Duration::from_nanos(time.trim().parse().ok()?)),
        _ => None,
    })
}

/// Returns pairs of the mount point of the CPU controller and the path of the group relative to it,
/// for both cgroup versions.
fn groups(own: &str, mounts: &str) -> Vec<(PathBuf, String)> {
    // "ID:CONTROLLERS:PATH", cgroups(7).
    let group = |version: u8| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let found = match version {
                2 => number == "0" && controllers.is_empty(),
                _ => controllers.split(',').any(|one| one == "cpu"),
            };
            found.then_some(path)
        })
    };
    let mount = |line: &str| {
        // "36 35 98:0 /root /point rw ... - type source options", proc_pid_mountinfo(5).
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let version = match kind {
            "cgroup2" => 2,
            "cgroup" if options.split(',').any(|one| one == "cpu") => 1,
            _ => return None,
        };
        let below = group(version)?;
        let below = if root == "/" { below } else { below.strip_prefix(root)? };
        Some((PathBuf::from(point), below.to_owned()))
    };
    mounts.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_and_read() {
        let own = "5:cpu,cpuacct:/box/inner\n0::/user.slice\n";
        let mounts = "\
            30 22 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            31 22 0:27 /box /cg/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n\
            32 22 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n";
        let found = groups(own, mounts);
        let found: Vec<_> = found.iter().map(|(at, group)| (at.to_str(), group.as_str())).collect();
        assert_eq!(
            found,
            [(Some("/sys/fs/cgroup/unified"), "/user.slice"), (Some("/cg/cpu"), "/inner")]
        );
        assert_eq!(time("usage_usec 7\nthrottled_usec 1500\n"), Some(Duration::from_micros(1500)));
        assert_eq!(time("nr_throttled 1\nthrottled_time 99\n"), Some(Duration::from_nanos(99)));
        assert_eq!(time("usage_usec 7\n"), None);
    }
}
