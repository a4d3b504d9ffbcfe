//! The bound after a loss: how fast the copy returns to the rate at which the queue of the path
//! overflowed, how long it stays there, and how fast it looks for more.

use std::time::Duration;

use super::bound::Observation;

/// The factor by which the bound grows per second up to the known rate of the path.
const RECOVERY: f64 = 6.0;
/// The share of the delivered rate before the loss that counts as the known rate of the path.
const RECOVERED: f64 = 0.98;
/// The time for which the bound then hardly grows while there is no queue, so that the queue rarely
/// overflows, and the factor by which it grows per second.
const HOLD: Duration = Duration::from_secs(2);
const HELD: f64 = 1.005;
/// The factors by which the bound grows per second above the known rate, without and with a queue.
const PROBING: f64 = 1.3;
const PROBING_QUEUED: f64 = 1.2;
/// The relative difference up to which the delivered rates before two losses show the same limit.
const SAME: f64 = 0.05;

/// The bound after a loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoundAfterLoss {
    /// Bytes per second.
    rate: f64,
    /// The delivered rate before the loss, in bytes per second.
    before: f64,
    /// True if the delivered rate before the previous loss was the same. The first loss ends slow
    /// start, in which the delivered rate is lower than that of the path.
    confirmed: bool,
    /// The end of the time in which losses have the same cause.
    settled_at: Duration,
    /// The time up to which the growth of `rate` has been computed. Initially the end of the time
    /// in which the queue drains.
    grown_until: Duration,
    /// The time at which the bound reached the known rate.
    recovered_at: Option<Duration>,
}

impl BoundAfterLoss {
    /// Lowers the bound to `factor` times the `delivered` rate in bytes per second. `previous` is the
    /// bound after the previous loss.
    pub(super) fn new(
        previous: Option<BoundAfterLoss>,
        factor: f64,
        delivered: f64,
        drained_at: Duration,
        settled_at: Duration,
    ) -> Self {
        let most = previous.map_or(f64::INFINITY, |previous| previous.rate);
        let is_same =
            |previous: BoundAfterLoss| (delivered - previous.before).abs() < SAME * previous.before;
        BoundAfterLoss {
            rate: factor * delivered.min(most),
            before: delivered,
            confirmed: previous.is_some_and(is_same),
            settled_at,
            grown_until: drained_at,
            recovered_at: None,
        }
    }

    /// Returns the bound in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns whether losses at `now` have a new cause.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        now >= self.settled_at
    }

    /// Lets the bound grow up to the time `now`.
    pub(super) fn grow(&mut self, now: Duration, observed: Observation) {
        let Some(time) = now.checked_sub(self.grown_until) else { return };
        self.grown_until = now;
        // The bound does not grow while the copy uses less than half of it.
        if observed.window_rate <= self.rate / 2.0 {
            return;
        }
        let known = RECOVERED * self.before;
        let recovers = self.rate < known && !observed.queued;
        let growth = match self.recovered_at {
            _ if recovers => RECOVERY,
            _ if observed.queued => PROBING_QUEUED,
            Some(at) if self.confirmed && now - at < HOLD => HELD,
            _ => PROBING,
        };
        let grown = self.rate * growth.powf(time.as_secs_f64());
        // Losses above the known rate would have another cause.
        let is_limited = recovers || !self.is_settled(now);
        self.rate = if is_limited { grown.min(known.max(self.rate)) } else { grown };
        if self.rate >= known {
            self.recovered_at.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::source::steer::bound::Observation;

    const SECOND: Duration = Duration::from_secs(1);

    fn lowered(previous: Option<BoundAfterLoss>, delivered: f64, at: Duration) -> BoundAfterLoss {
        BoundAfterLoss::new(previous, 0.8, delivered, at, at)
    }

    /// Lets `bound` grow for `seconds` in steps of 10 ms, without a queue.
    fn grow(bound: &mut BoundAfterLoss, from: Duration, seconds: u32) {
        for step in 1..=100 * seconds {
            bound.grow(from + SECOND / 100 * step, Observation::at_rate(bound.rate()));
        }
    }

    #[test]
    fn the_bound_stays_at_a_rate_that_two_losses_confirm() {
        let mut first = lowered(None, 100.0, Duration::ZERO);
        grow(&mut first, Duration::ZERO, 2);
        assert!(first.rate() > 130.0, "one loss: {}", first.rate());
        let mut second = lowered(Some(first), 102.0, SECOND);
        grow(&mut second, SECOND, 2);
        assert!((99.0..102.0).contains(&second.rate()), "{}", second.rate());
        grow(&mut second, SECOND * 3, 2);
        assert!(second.rate() > 130.0, "{}", second.rate());
        let mut other = lowered(Some(first), 60.0, SECOND);
        grow(&mut other, SECOND, 2);
        assert!(other.rate() > 78.0, "another rate: {}", other.rate());
    }

    #[test]
    fn the_bound_does_not_exceed_the_known_rate_before_losses_have_settled() {
        let mut bound = BoundAfterLoss::new(None, 0.8, 100.0, SECOND, SECOND * 3);
        grow(&mut bound, Duration::ZERO, 1);
        assert_eq!(bound.rate(), 80.0, "the queue drains");
        grow(&mut bound, SECOND, 1);
        assert_eq!(bound.rate(), 98.0);
        assert!(!bound.is_settled(SECOND * 2));
        grow(&mut bound, SECOND * 3, 1);
        assert!(bound.rate() > 120.0, "{}", bound.rate());
    }

    #[test]
    fn an_unused_bound_does_not_grow() {
        let mut bound = lowered(None, 200.0, Duration::ZERO);
        bound.grow(SECOND, Observation::at_rate(10.0));
        assert_eq!(bound.rate(), 160.0);
        bound.grow(SECOND * 2, Observation::at_rate(90.0));
        assert!(bound.rate() > 190.0);
    }
}
