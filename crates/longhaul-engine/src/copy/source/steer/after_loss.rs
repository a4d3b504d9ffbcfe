//! The bound after a loss: how fast the copy returns to the rate at which the queue of the path
//! overflowed, how long it stays there, and how fast it probes for a higher rate.

use std::time::Duration;

/// The return of the bound to the rate before the loss.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    /// The factor by which the bound grows per second.
    growth: f64,
    /// The share of the rate before the loss up to which the bound grows by this factor.
    recovered: f64,
    /// The time for which the bound is then held: it grows by [`HELD`].
    hold: Duration,
}

/// Without other traffic. Only probing makes the queue overflow, so the copy probes rarely.
const ALONE: Recovery = Recovery { growth: 6.0, recovered: 0.98, hold: Duration::from_secs(2) };
/// Beside other traffic, which gets the rate that the copy leaves.
const SHARED: Recovery = Recovery { growth: 3.0, recovered: 0.95, hold: Duration::ZERO };
/// Beside other traffic, at an RTT below [`HOLD_TRIP`]. If the copy probed at once, the queue would overflow
/// about every second, in which a cubic flow recovers less than it loses.
const SHARED_HELD: Recovery =
    Recovery { growth: 3.0, recovered: 0.9, hold: Duration::from_secs(3) };
/// The RTT from which on the bound is not held beside other traffic.
const HOLD_TRIP: Duration = Duration::from_millis(40);

/// The factor by which the bound grows per second while it is held.
const HELD: f64 = 1.005;
/// The factors by which the bound then grows per second, without and with a queue.
const PROBING: f64 = 1.3;
const PROBING_QUEUED: f64 = 1.2;
/// If the delivered rates before two consecutive losses differ by less than this share, the path has no
/// other traffic (docs/design/fairness.md).
const SAME: f64 = 0.01;
/// The time for which a loss or a queue below the rate of the previous loss shows other traffic.
const SHARED_TIME: Duration = Duration::from_secs(10);

/// The bound after a loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoundAfterLoss {
    /// Bytes per second.
    rate: f64,
    /// The delivered rate before the loss, in bytes per second.
    before: f64,
    recovery: Recovery,
    /// True after the loss that ended slow start. The rate before it is not exact: if the rate before the
    /// second loss differs, this does not yet show other traffic, so [`SHARED_HELD`] applies only from the
    /// third loss on.
    is_first: bool,
    /// The end of the time in which losses have the same cause.
    settled_at: Duration,
    /// The time up to which the growth of `rate` has been computed. Initially the time at which
    /// growth begins.
    grown_until: Duration,
    /// The time at which the bound begins to probe above the known rate; `None` until it reaches that rate.
    probes_at: Option<Duration>,
    /// The time up to which there is other traffic.
    shared_until: Duration,
}

/// A loss that lowers the bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lowering {
    /// The delivered rate before the loss, in bytes per second.
    pub(super) delivered: f64,
    /// The bound divided by this rate.
    pub(super) factor: f64,
    pub(super) at: Duration,
    /// The end of the time in which the queue of the path drains.
    pub(super) drained_at: Duration,
    /// The end of the time in which losses have the same cause.
    pub(super) settled_at: Duration,
    /// The lowest RTT of the path.
    pub(super) least_rtt: Duration,
}

impl BoundAfterLoss {
    /// Lowers the bound at the first loss, which ends slow start.
    pub(super) fn first(loss: Lowering) -> Self {
        BoundAfterLoss {
            rate: loss.factor * loss.delivered,
            before: loss.delivered,
            recovery: SHARED,
            is_first: true,
            settled_at: loss.settled_at,
            grown_until: loss.settled_at,
            probes_at: None,
            shared_until: Duration::ZERO,
        }
    }

    /// Lowers the bound at a further loss.
    pub(super) fn again(self, loss: Lowering) -> Self {
        let probed = self.probes_at.is_some_and(|at| loss.at >= at);
        let shared_until =
            if self.has_hold() && !probed { loss.at + SHARED_TIME } else { self.shared_until };
        let is_same = (loss.delivered - self.before).abs() < SAME * self.before;
        let alone = is_same && loss.at >= shared_until;
        let holds = loss.least_rtt < HOLD_TRIP && !self.is_first;
        let shared = if holds { SHARED_HELD } else { SHARED };
        BoundAfterLoss {
            rate: loss.factor * loss.delivered.min(self.rate),
            recovery: if alone { ALONE } else { shared },
            is_first: false,
            grown_until: if alone { loss.drained_at } else { loss.settled_at },
            shared_until,
            ..BoundAfterLoss::first(loss)
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

    /// Lets the bound grow up to the time `now`. `used` is the delivered rate of the last window in
    /// bytes per second, and packets wait in a queue of the path if `queued`.
    pub(super) fn grow(&mut self, now: Duration, used: f64, queued: bool) {
        let Some(time) = now.checked_sub(self.grown_until) else { return };
        self.grown_until = now;
        // The bound does not grow while the copy uses less than half of it.
        if used <= self.rate / 2.0 {
            return;
        }
        // A copy alone has no queue at a rate below the known one, so a queue shows other traffic.
        let is_held = self.probes_at.is_some_and(|at| now < at);
        if is_held && queued {
            self.shared_until = now + SHARED_TIME;
        }
        let known = self.recovery.recovered * self.before;
        let recovers = self.rate < known && !queued;
        let growth = if recovers {
            self.recovery.growth
        } else if is_held {
            HELD
        } else if queued {
            PROBING_QUEUED
        } else {
            PROBING
        };
        let grown = self.rate * growth.powf(time.as_secs_f64());
        // Until the losses settle, new ones do not count, so the bound must not exceed the known rate.
        let is_limited = recovers || !self.is_settled(now);
        self.rate = if is_limited { grown.min(known.max(self.rate)) } else { grown };
        if self.rate >= known {
            self.probes_at.get_or_insert(now + self.recovery.hold);
        }
    }

    fn has_hold(&self) -> bool {
        !self.recovery.hold.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A loss at `at` and the delivered rate `delivered`, whose queue drains for 0.1 s.
    fn loss(delivered: f64, at: Duration) -> Lowering {
        let drained_at = at + SECOND / 10;
        let least_rtt = SECOND / 20;
        Lowering { delivered, factor: 0.8, at, drained_at, settled_at: at + SECOND / 2, least_rtt }
    }

    /// Lets `bound` grow for `seconds` in steps of 10 ms, without a queue.
    fn grow(bound: &mut BoundAfterLoss, from: Duration, seconds: u32) {
        for step in 1..=100 * seconds {
            bound.grow(from + SECOND / 100 * step, bound.rate(), false);
        }
    }

    /// Returns the bound after losses at the rates `delivered`, the last of them at `at`.
    fn after(delivered: &[f64], at: Duration) -> BoundAfterLoss {
        let (first, others) = delivered.split_first().unwrap();
        let mut bound = BoundAfterLoss::first(loss(*first, at));
        for delivered in others {
            bound.rate = *delivered;
            bound = bound.again(loss(*delivered, at));
        }
        bound
    }

    #[test]
    fn the_bound_stays_at_a_rate_that_two_losses_show() {
        for delivered in [&[100.0][..], &[80.0, 100.0], &[100.0, 97.0, 100.0]] {
            let mut bound = after(delivered, SECOND);
            grow(&mut bound, SECOND, 2);
            assert!(bound.rate() > 115.0, "{delivered:?}: {}", bound.rate());
        }
        let mut alone = after(&[80.0, 99.7, 100.0], SECOND);
        grow(&mut alone, SECOND, 2);
        assert!((97.0..100.0).contains(&alone.rate()), "{}", alone.rate());
        grow(&mut alone, SECOND * 3, 2);
        assert!(alone.rate() > 130.0, "{}", alone.rate());
    }

    #[test]
    fn a_loss_while_the_bound_is_held_shows_other_traffic() {
        let mut held = after(&[100.0; 2], SECOND * 2);
        grow(&mut held, SECOND * 2, 1);
        let mut shared = held.again(loss(100.0, SECOND * 3));
        shared.grow(SECOND * 3 + SECOND / 2, 80.0, false);
        assert!(shared.rate() <= 80.0, "the bound grows only after the losses have settled");
        grow(&mut shared, SECOND * 3, 2);
        assert!(shared.rate() > 110.0, "the bound is not held: {}", shared.rate());
        assert!(!shared.again(loss(100.0, SECOND * 5)).has_hold());
        assert!(
            shared.again(loss(100.0, SECOND * 14)).has_hold(),
            "the other traffic may have ended"
        );
    }

    #[test]
    fn a_queue_while_the_bound_is_held_shows_other_traffic() {
        let mut held = after(&[100.0; 2], SECOND * 2);
        grow(&mut held, SECOND * 2, 1);
        assert!(held.again(loss(100.0, SECOND * 6)).has_hold());
        held.grow(SECOND * 3 + SECOND / 10, 98.0, true);
        assert!(!held.again(loss(100.0, SECOND * 6)).has_hold());
    }

    #[test]
    fn the_bound_does_not_exceed_the_known_rate_before_losses_have_settled() {
        let mut bound = after(&[100.0; 2], Duration::ZERO);
        bound.grow(SECOND / 10, 80.0, false);
        assert_eq!(bound.rate(), 80.0, "the queue drains");
        for step in 11..50 {
            bound.grow(SECOND / 100 * step, 80.0, false);
        }
        assert!((97.9..98.5).contains(&bound.rate()), "{}", bound.rate());
        assert!(!bound.is_settled(SECOND / 100 * 49));
    }

    #[test]
    fn the_bound_is_held_beside_other_traffic_at_a_short_rtt() {
        let on_path = |least_rtt: Duration| {
            let second = after(&[60.0, 80.0], SECOND);
            let mut bound = second.again(Lowering { least_rtt, ..loss(100.0, SECOND * 2) });
            grow(&mut bound, SECOND * 2, 3);
            (bound.rate(), bound)
        };
        let (long, _) = on_path(HOLD_TRIP);
        let (held, mut bound) = on_path(HOLD_TRIP / 2);
        assert!(long > 115.0 && (90.0..92.0).contains(&held), "{long} and {held}");
        grow(&mut bound, SECOND * 5, 2);
        assert!(bound.rate() > 115.0, "{}", bound.rate());
    }

    #[test]
    fn an_unused_bound_does_not_grow() {
        let mut bound = BoundAfterLoss::first(loss(200.0, Duration::ZERO));
        bound.grow(SECOND, 10.0, false);
        assert_eq!(bound.rate(), 160.0);
        bound.grow(SECOND * 2, 90.0, false);
        assert!(bound.rate() >= 190.0);
    }
}
