//! PIE: drops or marks arriving segments with a probability that a controller adapts to the queueing
//! delay.

use std::time::Duration;

use super::super::LinkTime;
use super::{Arriving, Management};

/// PIE (RFC 8033, sections 4 and 5), called once per arriving segment.
///
/// The controller of PIE runs every 15 ms. Between two arrivals the queue only shrinks, so the
/// controller runs for all missed times when the next segment arrives, each time with the wait at
/// that time. The wait is known exactly and is not estimated from a departure rate.
#[derive(Debug, Clone)]
pub(in super::super) struct Pie {
    target: Duration,
    drop_probability: f64,
    /// The sum of probabilities since the last drop.
    accumulated: f64,
    burst_allowance: Duration,
    wait_before: Duration,
    next_update: LinkTime,
}

/// `T_UPDATE`, `MAX_BURST`, and the coefficients in 1/s (RFC 8033, section 4.2).
const UPDATE: Duration = Duration::from_millis(15);
const MAX_BURST: Duration = Duration::from_millis(150);
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// The drop probability above which ECN-capable segments are dropped too (`MARK_ECNTH`, section
/// 5.1).
const MARK_UP_TO: f64 = 0.1;

impl Pie {
    pub(super) fn new(target: Duration, now: LinkTime) -> Self {
        Pie {
            target,
            drop_probability: 0.0,
            accumulated: 0.0,
            burst_allowance: MAX_BURST,
            wait_before: Duration::ZERO,
            next_update: now + UPDATE,
        }
    }

    /// Decides on an arriving segment.
    pub(super) fn decide(&mut self, segment: &Arriving) -> Management {
        self.catch_up(segment.now, segment.free_at);
        if self.drop_probability == 0.0 {
            self.accumulated = 0.0;
        }
        if !self.burst_allowance.is_zero() {
            return Management::Pass;
        }
        let calm = self.wait_before < self.target / 2 && self.drop_probability < 0.2;
        if calm || segment.is_short {
            return Management::Pass;
        }
        // Drops are spread evenly over time (section 5.4).
        self.accumulated += self.drop_probability;
        if self.accumulated < 0.85 {
            return Management::Pass;
        }
        if self.accumulated < 8.5 && segment.random() > self.drop_probability {
            return Management::Pass;
        }
        self.accumulated = 0.0;
        if segment.ecn_capable && self.drop_probability <= MARK_UP_TO {
            Management::Mark
        } else {
            Management::Drop
        }
    }

    fn catch_up(&mut self, now: LinkTime, free_at: LinkTime) {
        while self.next_update <= now {
            self.update(free_at.since(self.next_update));
            self.next_update = self.next_update + UPDATE;
            let at_rest = self.drop_probability == 0.0 && self.wait_before.is_zero();
            if at_rest && free_at <= self.next_update && self.burst_allowance == MAX_BURST {
                // From here on the state does not change during idle time.
                let phase = now.since(self.next_update).as_nanos() % UPDATE.as_nanos();
                if self.next_update <= now {
                    self.next_update = now + (UPDATE - Duration::from_nanos(phase as u64));
                }
                return;
            }
        }
    }

    fn update(&mut self, wait: Duration) {
        let (before, target) = (self.wait_before, self.target);
        let seconds = |span: Duration| span.as_secs_f64();
        let mut step =
            ALPHA * (seconds(wait) - seconds(target)) + BETA * (seconds(wait) - seconds(before));
        // Small probabilities change in small steps (section 4.2).
        step /= match self.drop_probability {
            p if p < 1e-6 => 2048.0,
            p if p < 1e-5 => 512.0,
            p if p < 1e-4 => 128.0,
            p if p < 1e-3 => 32.0,
            p if p < 1e-2 => 8.0,
            p if p < 1e-1 => 2.0,
            _ => 1.0,
        };
        // Large probabilities increase in bounded steps (section 5.5).
        if self.drop_probability >= 0.1 {
            step = step.min(0.02);
        }
        let mut probability = self.drop_probability + step;
        if wait.is_zero() && before.is_zero() {
            probability *= 0.98;
        }
        // The queue is far too long (section 5.3).
        if wait > Duration::from_millis(250) {
            probability += 0.02;
        }
        self.drop_probability = probability.clamp(0.0, 1.0);
        self.wait_before = wait;
        self.burst_allowance = self.burst_allowance.saturating_sub(UPDATE);
        if self.drop_probability == 0.0 && wait < target / 2 && before < target / 2 {
            self.burst_allowance = MAX_BURST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::arriving;
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Offers segments every 0.1 ms for `span` ms from `start` ms on, each with a wait of `wait`
    /// ms. Returns the number of segments that were dropped or marked.
    fn stopped(pie: &mut Pie, start: u64, span: u64, wait: u64, ecn_capable: bool) -> u64 {
        let mut count = 0;
        for i in 0..span * 10 {
            let now = LinkTime::default() + MS(start) + Duration::from_micros(100 * i);
            let segment = Arriving { ecn_capable, ..arriving(now, MS(wait), i) };
            count += u64::from(pie.decide(&segment) != Management::Pass);
        }
        count
    }

    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut pie = Pie::new(MS(15), LinkTime::default());
        assert_eq!(stopped(&mut pie, 0, 149, 100, false), 0, "within the allowance");
        assert!(stopped(&mut pie, 149, 3000, 100, false) > 20);
        assert!(pie.drop_probability > 0.01);
    }

    #[test]
    fn a_short_queue_loses_nothing_and_an_idle_link_resets() {
        let mut pie = Pie::new(MS(15), LinkTime::default());
        assert_eq!(stopped(&mut pie, 0, 3000, 5, false), 0);
        stopped(&mut pie, 3000, 3000, 100, false);
        let later = LinkTime::default() + Duration::from_secs(86_400 * 365);
        pie.catch_up(later, LinkTime::default());
        assert_eq!((pie.drop_probability, pie.burst_allowance), (0.0, MAX_BURST));
        assert!(pie.next_update > later && pie.next_update <= later + UPDATE);
    }
}
