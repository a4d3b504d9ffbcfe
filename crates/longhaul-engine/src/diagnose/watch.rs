//! What the processors of a host do over a step.

use std::time::{Duration, Instant};

use longhaul_core::result::HostUse;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::host::{CoreTimes, core_times, throttled};

/// Looks at the host from time to time.
pub(super) struct HostWatch {
    at: Instant,
    times: Option<HostTimes>,
    cores: Vec<(u32, CoreTimes)>,
    throttled: Option<Duration>,
}

impl HostWatch {
    pub(super) fn new() -> Self {
        HostWatch {
            at: Instant::now(),
            times: HostTimes::now().ok(),
            cores: core_times(),
            throttled: throttled(),
        }
    }

    /// What was done since the last look.
    pub(super) fn look(&mut self) -> HostUse {
        let before = std::mem::replace(self, HostWatch::new());
        let seconds = (self.at - before.at).as_secs_f64().max(1e-3);
        let shares = self.times.zip(before.times);
        let interrupts = self.cores.iter().map(|(core, now)| {
            let earlier = before.cores.iter().find(|(other, _)| other == core);
            let earlier = earlier.map_or_else(CoreTimes::default, |(_, times)| *times);
            (*core, now.interrupts.saturating_sub(earlier.interrupts).as_secs_f64() / seconds)
        });
        let (interrupts_core, interrupts) =
            interrupts.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default();
        let held = self.throttled.unwrap_or_default();
        let held = held.saturating_sub(before.throttled.unwrap_or_default());
        HostUse {
            busy: shares.map_or(0.0, |(now, then)| now.busy_since(&then)),
            stolen: shares.map_or(0.0, |(now, then)| now.stolen_since(&then)),
            interrupts_core,
            interrupts: interrupts.min(1.0),
            throttled: (held.as_secs_f64() / seconds).min(1.0),
        }
    }
}
