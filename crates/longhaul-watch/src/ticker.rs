//! Waits for the next sample.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time until a wait notices that it should end.
const NOTICE: Duration = Duration::from_millis(250);

/// Ticks at multiples of an interval after its creation. A late tick does not delay the later ones, and
/// missed ticks are skipped.
#[derive(Debug)]
pub struct Ticker {
    interval: Duration,
    next: Instant,
}

impl Ticker {
    /// Creates a ticker whose first tick is due at once.
    pub fn new(interval: Duration) -> Self {
        Ticker { interval: interval.max(Duration::from_millis(1)), next: Instant::now() }
    }

    /// Returns the time until the next tick at `now`; zero if it is due.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Schedules the tick after the one that is due at `now`.
    pub fn advance(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.next);
        let missed = late.as_nanos() / self.interval.as_nanos();
        let ticks = u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1;
        self.next += self.interval.saturating_mul(ticks);
    }

    /// Sleeps until the next tick. Returns false if `stop` was set before.
    pub fn wait(&mut self, stop: &AtomicBool) -> bool {
        loop {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            let now = Instant::now();
            let remaining = self.remaining(now);
            if remaining.is_zero() {
                self.advance(now);
                return true;
            }
            std::thread::sleep(remaining.min(NOTICE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_does_not_delay_the_next() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut ticker = Ticker { interval: Duration::from_millis(100), next: start };
        assert_eq!(ticker.remaining(after(30)), Duration::ZERO);
        ticker.advance(after(30));
        assert_eq!(ticker.remaining(after(30)), Duration::from_millis(70));
        ticker.advance(after(350));
        assert_eq!(ticker.next, after(400), "the ticks at 200 and 300 ms are skipped");
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let stop = AtomicBool::new(true);
        assert!(!Ticker::new(Duration::from_secs(3600)).wait(&stop));
    }
}
