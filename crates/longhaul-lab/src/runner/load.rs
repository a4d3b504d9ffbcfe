//! The load of the host during a run.

use std::fs;

use longhaul_core::result::HostLoad;

/// The share of processor time that a hypervisor may take during a valid run. In 144 runs on two
/// cores the median was 12 %. It was 26 to 40 % in the seven slowest runs, which reached a quarter
/// to two thirds of the rate of comparable runs.
const WITHHELD_SHARE: f64 = 0.25;
/// The share above which a valid run has a note, because its rate may be lower than on an idle host.
const NOTED_SHARE: f64 = 0.10;
/// The shortest run in seconds for which a count of 10 ms ticks is precise enough.
const LEAST_SECONDS: f64 = 2.0;

/// Returns the reason why a run of `seconds` is invalid on a host with this load.
pub(super) fn fault(load: HostLoad, seconds: f64) -> Option<String> {
    let withheld = load.steal_share;
    (withheld > WITHHELD_SHARE && seconds >= LEAST_SECONDS).then(|| {
        format!(
            "the hypervisor took {:.0} % of this virtual machine's processor time ({:.0} % are \
             allowed)",
            100.0 * withheld,
            100.0 * WITHHELD_SHARE
        )
    })
}

/// Returns the note of a valid run on a host with this load.
pub(super) fn note(load: HostLoad) -> Option<String> {
    (load.steal_share > NOTED_SHARE).then(|| {
        format!(
            "the hypervisor took {:.0} % of this virtual machine's processor time; do not compare \
             this run's rate with rates of an idle host",
            100.0 * load.steal_share
        )
    })
}

/// The processor times in ticks (proc_stat(5)).
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTimes {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl CpuTimes {
    /// Reads the current times; `None` if the kernel does not provide them.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Returns the load of the processors since `self`.
    pub(super) fn until_now(self) -> Option<HostLoad> {
        self.until(Self::now()?)
    }

    fn until(self, later: CpuTimes) -> Option<HostLoad> {
        let all = later.all.checked_sub(self.all).filter(|ticks| *ticks > 0)? as f64;
        let idle = later.idle.saturating_sub(self.idle) as f64;
        let stolen = later.stolen.saturating_sub(self.stolen) as f64;
        Some(HostLoad { busy_share: 1.0 - idle / all, steal_share: stolen / all })
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|t| t.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; user and nice include guest times.
        let [.., idle, iowait, _, _, stolen] = ticks.get(..8)? else { return None };
        let all = ticks[..8].iter().sum();
        Some(CpuTimes { all, idle: idle + iowait, stolen: *stolen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_elsewhere_spoils_all_but_the_shortest_run() {
        let load = |steal_share| HostLoad { busy_share: 0.9, steal_share };
        assert_eq!(fault(load(0.2), 5.0), None);
        assert_eq!(fault(load(0.4), 0.5), None);
        assert!(fault(load(0.4), 5.0).unwrap().contains("took 40 %"));
        assert_eq!(note(load(0.1)), None);
        assert!(note(load(0.11)).unwrap().contains("took 11 %"));
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let at = |line: &str| CpuTimes::parse(&format!("{line}\ncpu0 1 2\n")).unwrap();
        let (before, after) =
            (at("cpu  10 0 10 70 10 0 0 0 5 0"), at("cpu  40 0 20 110 20 0 0 10 9 0"));
        let load = before.until(after).unwrap();
        assert_eq!((load.busy_share, load.steal_share), (0.5, 0.1));
        assert_eq!(before.until(before), None);
        assert!(CpuTimes::parse("intr 5").is_none());
    }
}
