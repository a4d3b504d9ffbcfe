//! The load of the host during a test.

use std::time::{Duration, Instant};

use longhaul_core::result::{End, HostLimits, HostSample};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::host::{
    CoreTimes, Drops, TcpMemory, core_times, drops, fastest_interface_bps, tcp_memory,
    window_limits,
};

/// The interval between reads of the kernel's memory statistics: the kernel formats the whole file
/// at each read.
const MEMORY_CHECK: Duration = Duration::from_millis(100);

/// Samples the host per interval.
pub(super) struct HostWatch {
    since: Instant,
    cores: Vec<(u32, CoreTimes)>,
    drops: Drops,
    checked: Instant,
    memory: TcpMemory,
    checks: u32,
    pressed: u32,
}

/// The load of each core in an interval.
pub(super) struct Cores(Vec<(u32, CoreUse)>);

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CoreUse {
    pub(super) busy_percent: f64,
    pub(super) interrupts_percent: f64,
    pub(super) stolen_percent: f64,
}

impl HostWatch {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        HostWatch {
            since: now,
            cores: core_times(),
            drops: drops(),
            checked: now,
            memory: TcpMemory::default(),
            checks: 0,
            pressed: 0,
        }
    }

    /// Checks whether the kernel's memory is under pressure, if it is due.
    pub(super) fn check_if_due(&mut self) {
        if self.checked.elapsed() >= MEMORY_CHECK {
            self.check();
        }
    }

    fn check(&mut self) {
        self.checked = Instant::now();
        self.memory = tcp_memory();
        self.checks += 1;
        self.pressed += u32::from(self.memory.pressure);
    }

    /// Ends an interval.
    pub(super) fn interval(&mut self) -> (HostSample, Cores) {
        self.check();
        let elapsed = self.since.elapsed();
        let cores = Cores::between(&self.cores, &core_times(), elapsed);
        let dropped = drops();
        let since = |of: fn(&Drops) -> u64| of(&dropped).saturating_sub(of(&self.drops));
        let interrupts =
            cores.0.iter().max_by(|a, b| a.1.interrupts_percent.total_cmp(&b.1.interrupts_percent));
        let sample = HostSample {
            cores_busy_percent: cores.0.iter().map(|(_, core)| core.busy_percent).sum::<f64>()
                / cores.0.len().max(1) as f64,
            interrupts_core: interrupts.map_or(0, |(core, _)| *core),
            interrupts_percent: interrupts.map_or(0.0, |(_, core)| core.interrupts_percent),
            tcp_memory_bytes: Bytes::new(self.memory.used_bytes),
            tcp_memory_pressure_bytes: Bytes::new(self.memory.pressure_bytes),
            tcp_memory_pressure_percent: 100.0 * f64::from(self.pressed) / f64::from(self.checks),
            tcp_drops: since(|d| d.tcp + d.tcp_pruned),
            udp_drops: since(|d| d.udp),
            interface_drops: since(|d| d.interfaces + d.cores),
        };
        self.since = Instant::now();
        self.cores = core_times();
        self.drops = dropped;
        (self.checks, self.pressed) = (0, 0);
        (sample, cores)
    }
}

impl Cores {
    fn between(from: &[(u32, CoreTimes)], to: &[(u32, CoreTimes)], elapsed: Duration) -> Self {
        let percent = |from: Duration, to: Duration| {
            // The kernel counts in ticks of 10 ms.
            let share = to.saturating_sub(from).as_secs_f64() / elapsed.as_secs_f64();
            if share.is_finite() { (100.0 * share).min(100.0) } else { 0.0 }
        };
        let core_use = |(core, now): &(u32, CoreTimes)| {
            // A core that came online since then began at zero.
            let before = from.iter().find(|(other, _)| other == core);
            let before = before.map_or_else(CoreTimes::default, |(_, times)| *times);
            let used = CoreUse {
                busy_percent: percent(before.busy, now.busy),
                interrupts_percent: percent(before.interrupts, now.interrupts),
                stolen_percent: percent(before.stolen, now.stolen),
            };
            (*core, used)
        };
        Cores(to.iter().map(core_use).collect())
    }

    /// Returns the load of core `number`.
    pub(super) fn of(&self, number: u32) -> CoreUse {
        self.0.iter().find(|(core, _)| *core == number).map(|(_, used)| *used).unwrap_or_default()
    }
}

/// Returns the kernel's limits for an end with this role.
pub(super) fn limits(role: End) -> HostLimits {
    let limits = window_limits();
    let (autotuned, asked) = match role {
        End::Sender => (limits.send_autotuned_bytes, limits.send_asked_bytes),
        End::Receiver => (limits.receive_autotuned_bytes, limits.receive_asked_bytes),
    };
    HostLimits {
        autotuned_bytes: Bytes::new(autotuned),
        asked_bytes: Bytes::new(asked),
        interface_bps: fastest_interface_bps().map(Rate::from_bps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_used_as_much_as_its_clock_went_on() {
        let times = |busy: u64| CoreTimes {
            busy: Duration::from_millis(busy),
            interrupts: Duration::from_millis(busy / 2),
            softirq: Duration::ZERO,
            stolen: Duration::ZERO,
        };
        let cores = Cores::between(
            &[(0, times(1000)), (1, times(0))],
            &[(0, times(1500)), (1, times(2000)), (2, times(100))],
            Duration::from_secs(1),
        );
        assert_eq!((cores.of(0).busy_percent, cores.of(0).interrupts_percent), (50.0, 25.0));
        assert_eq!((cores.of(1).busy_percent, cores.of(2).busy_percent), (100.0, 10.0));
        assert_eq!(cores.of(9).busy_percent, 0.0);
    }

    #[test]
    fn this_host_is_watched() {
        let mut watch = HostWatch::new();
        std::thread::sleep(Duration::from_millis(20));
        let (sample, _) = watch.interval();
        assert!((0.0..=100.0).contains(&sample.cores_busy_percent), "{sample:?}");
        assert!(limits(End::Receiver).autotuned_bytes.get() > 0);
    }
}
