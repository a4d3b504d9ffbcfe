//! The clock of the hub, and its steps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A second in milliseconds.
pub(crate) const SECOND: i64 = 1000;
/// A minute in milliseconds.
pub(crate) const MINUTE: i64 = 60 * SECOND;
/// An hour in milliseconds.
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// A day in milliseconds.
pub(crate) const DAY: i64 = 24 * HOUR;

/// Returns the present time in ms since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The difference between the clock and the monotonic clock in ms that is a step. The slewing of NTP is
/// at most 500 ppm (ntp_adjtime(3)), so a minute adds 30 ms.
const STEP_MS: i64 = SECOND;

/// The time since which the clock of this process is steady: no step, and no pause between two readings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteadyClock {
    since: Instant,
    last: (Instant, i64),
}

impl SteadyClock {
    /// Returns a clock that is steady since `at`, when it shows `now_ms`.
    pub(crate) fn new(at: Instant, now_ms: i64) -> Self {
        SteadyClock { since: at, last: (at, now_ms) }
    }

    /// Notes that the clock shows `now_ms` at `at`, and returns the time since which it is steady.
    pub(crate) fn read(&mut self, at: Instant, now_ms: i64) -> Duration {
        let passed = at.saturating_duration_since(self.last.0);
        let shown = now_ms.saturating_sub(self.last.1);
        let difference =
            shown.saturating_sub(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX));
        if difference.abs() > STEP_MS || passed.as_secs() > 60 {
            self.since = at;
        }
        self.last = (at, now_ms);
        at.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_and_a_pause_end_the_steady_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = SteadyClock::new(start, 1_000_000);
        assert_eq!(clock.read(at(5), 1_005_000), Duration::from_secs(5));
        // NTP slews.
        assert_eq!(clock.read(at(65), 1_065_030), Duration::from_secs(65));
        // Steps of an hour in both directions.
        assert_eq!(clock.read(at(70), 4_670_000), Duration::ZERO);
        assert_eq!(clock.read(at(75), 4_675_000), Duration::from_secs(5));
        assert_eq!(clock.read(at(80), 1_080_000), Duration::ZERO);
        assert_eq!(clock.read(at(140), 1_140_000), Duration::from_secs(60));
        // The process was stopped for two minutes.
        assert_eq!(clock.read(at(260), 1_260_000), Duration::ZERO);
    }
}
