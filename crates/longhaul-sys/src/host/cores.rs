//! Processor time of each core, and scheduling of threads.

use std::io;
use std::time::Duration;

use super::{number, read};

/// The time that one core has spent since boot (`/proc/stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreTimes {
    /// All time except idle time and waiting for disks; includes time that the hypervisor took.
    pub busy: Duration,
    /// The part of `busy` in hard and soft interrupts; TCP's receive path runs there.
    pub interrupts: Duration,
    /// The part of `interrupts` in soft interrupts.
    pub softirq: Duration,
    /// The part of `busy` in which the hypervisor ran other guests.
    pub stolen: Duration,
}

/// Returns the times of every online core with its number.
pub fn core_times() -> Vec<(u32, CoreTimes)> {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    parse_cores(&read("/proc/stat"), ticks)
}

fn parse_cores(text: &str, ticks_per_second: u64) -> Vec<(u32, CoreTimes)> {
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64);
    text.lines()
        .filter_map(|line| {
            let core = line.split(' ').next()?.strip_prefix("cpu")?.parse().ok()?;
            // user nice system idle iowait irq softirq steal (proc_stat(5)); user includes guest
            // time.
            let [user, nice, system, irq, softirq, steal] =
                [1, 2, 3, 6, 7, 8].map(|at| number(line, at));
            let busy = time(user + nice + system + irq + softirq + steal);
            let times = CoreTimes {
                busy,
                interrupts: time(irq + softirq),
                softirq: time(softirq),
                stolen: time(steal),
            };
            Some((core, times))
        })
        .collect()
}

/// The scheduling of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scheduling {
    /// The time in which the thread was ready but waited for a core (`/proc/PID/schedstat`).
    pub waited: Duration,
    /// The core that the thread last ran on.
    pub core: u32,
}

/// Returns the scheduling of thread `id` of this process since it started.
///
/// # Errors
/// The thread has ended, or the kernel has no such statistics (`CONFIG_SCHED_INFO`).
pub fn scheduling(id: i32) -> io::Result<Scheduling> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/self/task/{id}/{name}"));
    parse_scheduling(&file("schedstat")?, &file("stat")?).ok_or(io::ErrorKind::InvalidData.into())
}

fn parse_scheduling(schedstat: &str, stat: &str) -> Option<Scheduling> {
    let waited = Duration::from_nanos(schedstat.split_ascii_whitespace().nth(1)?.parse().ok()?);
    // The name in parentheses may contain any character; `processor` is field 39, the name field 2.
    let (_, after) = stat.rsplit_once(')')?;
    let core = after.split_ascii_whitespace().nth(36)?.parse().ok()?;
    Some(Scheduling { waited, core })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_with_all_but_idling() {
        let text = "cpu  20 0 0 0 0 0 0 0 0 0\n\
                    cpu0 100 20 300 5000 700 10 90 30 40 0\ncpu12 1 0 0 0 0 0 0 0 0 0\nintr 5\n";
        let cores = parse_cores(text, 100);
        assert_eq!(cores.len(), 2);
        let (core, times) = cores[0];
        assert_eq!((core, times.busy), (0, Duration::from_millis(5500)));
        assert_eq!(times.interrupts, Duration::from_secs(1));
        assert_eq!(times.softirq, Duration::from_millis(900));
        assert_eq!(times.stolen, Duration::from_millis(300));
        assert_eq!(cores[1].0, 12);
    }

    #[test]
    fn a_threads_core_is_found_behind_any_name() {
        let mut stat = "7 (a) b 9) R".to_owned();
        (4..39).for_each(|field| stat.push_str(&format!(" {field}")));
        stat.push_str(" 5 0 0");
        let found = parse_scheduling("1000 2500 3\n", &stat).unwrap();
        assert_eq!(found, Scheduling { waited: Duration::from_nanos(2500), core: 5 });
        assert_eq!(parse_scheduling("", &stat), None);
    }

    #[test]
    fn this_host_answers() {
        assert!(core_times().iter().any(|(_, times)| times.busy > Duration::ZERO));
        let here = rustix::thread::gettid().as_raw_nonzero().get();
        let cores = core_times();
        assert!(cores.iter().any(|(core, _)| *core == scheduling(here).unwrap().core));
        assert!(scheduling(i32::MAX).is_err());
    }
}
