use std::time::{Duration, Instant};

use longhaul_core::result::ProcessorShare;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::schedule::{ScheduleGauge, ThreadSchedule};

/// Watches what the machine gives the calling thread.
///
/// A figure that the kernel does not tell is zero: a warning that rests on it does not come, and
/// lateness still tells what follows from a starved thread.
#[derive(Debug)]
pub(super) struct Strain {
    since: Instant,
    gauge: Option<ScheduleGauge>,
    schedule: ThreadSchedule,
    stolen: Duration,
}

impl Strain {
    /// Watches from now on.
    pub(super) fn begin() -> Self {
        let gauge = ScheduleGauge::current().ok();
        Strain {
            since: Instant::now(),
            schedule: counts(gauge.as_ref()),
            gauge,
            stolen: HostTimes::now().map_or(Duration::ZERO, |times| times.stolen()),
        }
    }

    /// What the calling thread, which must be the one that began, was given since.
    pub(super) fn share(&self) -> ProcessorShare {
        let schedule = counts(self.gauge.as_ref());
        let stolen = HostTimes::now().map_or(Duration::ZERO, |times| times.stolen());
        let seconds = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
        ProcessorShare {
            seconds: self.since.elapsed().as_secs_f64(),
            busy_seconds: seconds(schedule.ran, self.schedule.ran),
            waited_seconds: seconds(schedule.waited, self.schedule.waited),
            stolen_seconds: seconds(stolen, self.stolen),
        }
    }
}

fn counts(gauge: Option<&ScheduleGauge>) -> ThreadSchedule {
    gauge.and_then(|gauge| gauge.read().ok()).unwrap_or_default()
}
