//! Measures the processor time that the machine gives to the driver's thread.

use std::time::{Duration, Instant};

use longhaul_core::result::ProcessorShare;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::schedule::{ScheduleGauge, ThreadSchedule};

/// Measures the processor time of the calling thread.
///
/// A figure that the kernel does not provide is zero. Then the warning based on it is missing, but
/// lateness still shows the effects of a starved thread.
#[derive(Debug)]
pub(super) struct Strain {
    since: Instant,
    gauge: Option<ScheduleGauge>,
    schedule: ThreadSchedule,
    stolen: Duration,
}

impl Strain {
    /// Starts to measure.
    pub(super) fn begin() -> Self {
        let gauge = ScheduleGauge::current().ok();
        Strain {
            since: Instant::now(),
            schedule: counts(gauge.as_ref()),
            gauge,
            stolen: HostTimes::now().map_or(Duration::ZERO, |times| times.stolen()),
        }
    }

    /// Returns the processor time since the start. The caller must be the thread that started it.
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
