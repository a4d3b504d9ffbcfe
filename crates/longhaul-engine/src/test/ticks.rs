//! The times of samples, and the detection of tests without progress.

use std::time::{Duration, Instant};

use longhaul_core::plan::{TestLength, TestPlan};
use longhaul_core::units::Rate;

use crate::share::SessionPool;

/// Returns `duration` in milliseconds.
pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns the time from the first byte to the end of a test by time.
pub(super) fn end_of_time(plan: &TestPlan) -> Option<Duration> {
    match plan.amount {
        TestLength::Time(time) => Some(plan.omit + time),
        TestLength::Bytes(_) => None,
    }
}

/// The times of samples, from the first byte.
///
/// The omitted time has separate intervals, so that the first interval that counts begins at its
/// end. The last interval of a test by time has no due time: it lasts until the end of the data, a
/// moment later at the receiver, so that neither end has an interval of only that moment.
#[derive(Debug)]
pub(super) struct Ticks {
    /// The number of the present interval.
    pub(super) index: u32,
    /// True if the present interval is in the omitted time.
    pub(super) omitting: bool,
    /// The end of the interval; `None` for the last.
    pub(super) due: Option<Duration>,
    omit: Duration,
    interval: Duration,
    end: Option<Duration>,
}

impl Ticks {
    pub(super) fn new(plan: &TestPlan) -> Self {
        let mut ticks = Ticks {
            index: 0,
            omitting: !plan.omit.is_zero(),
            due: None,
            omit: plan.omit,
            interval: plan.interval,
            end: end_of_time(plan),
        };
        ticks.schedule(Duration::ZERO);
        ticks
    }

    fn schedule(&mut self, begin: Duration) {
        let due = begin + self.interval;
        self.due = match self.end {
            _ if self.omitting => Some(due.min(self.omit)),
            Some(end) if due >= end => None,
            _ => Some(due),
        };
    }

    /// Begins the next interval. Returns whether the omitted time ends here.
    pub(super) fn advance(&mut self) -> bool {
        let Some(due) = self.due else { return false };
        let omit_ends = self.omitting && due >= self.omit;
        self.index += 1;
        self.omitting &= !omit_ends;
        self.schedule(due);
        omit_ends
    }
}

/// Detects that nothing moves.
#[derive(Debug)]
pub(super) struct IdleTimer {
    limit: Duration,
    progress: u64,
    since: Instant,
    checked: Instant,
}

impl IdleTimer {
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        IdleTimer { limit, progress: 0, since: now, checked: now }
    }

    /// Checks `progress` from time to time. Returns the reason to cut the test if it has not
    /// changed for too long.
    pub(super) fn check(&mut self, progress: impl FnOnce() -> u64) -> Option<String> {
        let now = Instant::now();
        if now - self.checked < self.limit / 20 {
            return None;
        }
        self.checked = now;
        let progress = progress();
        if progress != self.progress {
            self.progress = progress;
            self.since = now;
        }
        (now - self.since >= self.limit).then(|| format!("no data moved for {:.1?}", self.limit))
    }
}

/// The lowest rate of an anonymous test while another anonymous client waits.
const LEAST_RATE: Rate = Rate::from_bps(1_000_000);
/// The window over which the rate is measured.
const SLOW_WINDOW: Duration = Duration::from_secs(60);

/// Detects an anonymous test that is almost idle while others wait for its session.
#[derive(Debug)]
pub(super) struct Slow<'a> {
    /// The pool; `None` if the test may be slow.
    pool: Option<&'a SessionPool>,
    window: Duration,
    since: Instant,
    bytes: u64,
}

impl<'a> Slow<'a> {
    pub(super) fn new(pool: Option<&'a SessionPool>) -> Self {
        Slow { pool, window: SLOW_WINDOW, since: Instant::now(), bytes: 0 }
    }

    /// Checks `bytes` once per window. Returns the reason to cut the test if they are too few.
    pub(super) fn check(&mut self, bytes: impl FnOnce() -> u64) -> Option<String> {
        let pool = self.pool?;
        let elapsed = self.since.elapsed();
        if elapsed < self.window {
            return None;
        }
        let bytes = bytes();
        let moved = bytes.saturating_sub(self.bytes) as f64;
        (self.since, self.bytes) = (Instant::now(), bytes);
        let slow = moved < LEAST_RATE.bytes_per_second() as f64 * elapsed.as_secs_f64();
        (slow && pool.is_contended()).then(|| {
            format!(
                "it moved less than {LEAST_RATE} for a minute while other clients waited; only \
                clients with an authorized key have no such limit"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;

    use super::*;

    fn dues(plan: &TestPlan, count: usize) -> Vec<(Option<u64>, bool)> {
        let mut ticks = Ticks::new(plan);
        (0..count)
            .map(|_| {
                let tick = (ticks.due.map(|due| due.as_millis() as u64), ticks.omitting);
                ticks.advance();
                tick
            })
            .collect()
    }

    #[test]
    fn the_last_interval_waits_for_the_end_of_data() {
        let plan = TestPlan { amount: TestLength::Time(Duration::from_secs(3)), ..TestPlan::new() };
        let expected = [(Some(1000), false), (Some(2000), false), (None, false), (None, false)];
        assert_eq!(dues(&plan, 4), expected);
        let bytes = TestPlan { amount: TestLength::Bytes(Bytes::mib(1)), ..plan };
        assert_eq!(dues(&bytes, 4)[3], (Some(4000), false));
    }

    #[test]
    fn counting_starts_where_omitting_ends() {
        let plan = TestPlan {
            amount: TestLength::Time(Duration::from_secs(2)),
            omit: Duration::from_millis(1500),
            ..TestPlan::new()
        };
        let expected = [(Some(1000), true), (Some(1500), true), (Some(2500), false), (None, false)];
        assert_eq!(dues(&plan, 4), expected);
    }

    #[test]
    fn standing_still_is_noticed_and_moving_is_not() {
        let mut idle = IdleTimer::new(Duration::from_millis(40));
        let begun = Instant::now();
        let mut moving = 0;
        while begun.elapsed() < Duration::from_millis(120) {
            moving += 1;
            assert_eq!(idle.check(|| moving), None);
        }
        let stood = Instant::now();
        let reason = loop {
            if let Some(reason) = idle.check(|| moving) {
                break reason;
            }
            assert!(stood.elapsed() < Duration::from_secs(30));
        };
        assert_eq!(reason, "no data moved for 40.0ms");
    }

    #[test]
    fn a_slow_test_is_cut_only_while_others_wait() {
        let pool = SessionPool::default();
        let begun = |pool| Slow { window: Duration::ZERO, ..Slow::new(pool) };
        let minute_ago = |slow: &mut Slow<'_>| slow.since -= Duration::from_secs(60);
        let mut slow = begun(Some(&pool));
        minute_ago(&mut slow);
        assert_eq!(slow.check(|| 1000), None, "nobody waits");
        pool.set_waiting(true);
        minute_ago(&mut slow);
        assert_eq!(slow.check(|| 1000 + 8_000_000), None, "8 MB in a minute is more than 1 Mb/s");
        minute_ago(&mut slow);
        let reason = slow.check(|| 1000 + 15_000_000).unwrap();
        assert!(reason.starts_with("it moved less than 1.00 Mb/s for a minute"), "{reason}");
        let mut key = begun(None);
        minute_ago(&mut key);
        assert_eq!(key.check(|| 0), None);
    }
}
