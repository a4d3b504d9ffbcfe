use std::time::{Duration, Instant};

use longhaul_core::result::ProcessorShare;
use longhaul_sys::cpu::{HostTimes, ThreadSchedule};

/// Watches what the machine gives the calling thread.
///
/// A figure that the kernel does not tell is zero: a warning that rests on it does not come, and
/// lateness still tells what follows from a starved thread.
#[derive(Debug)]
pub(super) struct Strain {
    since: Instant,
    schedule: ThreadSchedule,
    stolen: Duration,
}

impl Strain {
    /// Watches from now on.
    pub(super) fn begin() -> Self {
        Strain {
            since: Instant::now(),
            schedule: ThreadSchedule::current().unwrap_or_default(),
            stolen: HostTimes::now().map_or(Duration::ZERO, |times| times.stolen()),
        }
    }

    /// What the calling thread, which must be the one that began, was given since.
    pub(super) fn share(&self) -> ProcessorShare {
        let schedule = ThreadSchedule::current().unwrap_or_default();
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
