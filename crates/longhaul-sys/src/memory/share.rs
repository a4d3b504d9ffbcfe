//! The memory that this process may use.

use std::fs;
use std::path::Path;

/// Returns the bytes of memory that this process may use: those of the machine, or the strictest
/// limit of its control groups if that is lower.
pub fn usable_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram as u64 * u64::from(info.mem_unit);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, |file| {
        fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok()
    });
    limit.map_or(machine, |limit| limit.min(machine))
}

/// Returns the lowest limit of the groups in `/proc/self/cgroup` (cgroups(7)) and their ancestors:
/// `memory.max` in version 2, `memory.limit_in_bytes` in version 1. A value that is not a number,
/// such as `max`, is no limit.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (base, name) = match controllers {
            "" => ("", "memory.max"),
            _ if controllers.split(',').any(|each| each == "memory") => {
                ("memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = Path::new(group.trim_start_matches('/'));
        group
            .ancestors()
            .filter_map(|group| {
                read(&Path::new(base).join(group).join(name))?.trim().parse::<u64>().ok()
            })
            .min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        let read = |file: &Path| {
            let text = match file.to_str()? {
                "memory.max" => "max",
                "a/memory.max" => "1000",
                "a/b/memory.max" => "2000",
                "memory/jobs/memory.limit_in_bytes" => "700",
                "memory/memory.limit_in_bytes" => "9223372036854771712",
                _ => return None,
            };
            Some(format!("{text}\n"))
        };
        assert_eq!(group_limit("0::/a/b\n", read), Some(1000));
        assert_eq!(group_limit("0::/\n", read), None);
        assert_eq!(group_limit("5:cpu:/x\n4:hugetlb,memory:/jobs\n0::/\n", read), Some(700));
        assert_eq!(group_limit("", read), None);
    }

    #[test]
    fn this_process_has_some() {
        assert!(usable_bytes() > 64 << 20);
    }
}
