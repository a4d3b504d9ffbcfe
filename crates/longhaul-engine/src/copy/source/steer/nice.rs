//! The rate of a copy with `--nice`. As in LEDBAT (RFC 6817), the rate decreases while packets wait
//! in a queue of the path, and increases otherwise.

use std::time::Duration;

/// The queueing delay that a copy with `--nice` accepts (RFC 6817: at most 100 ms).
const DELAY: Duration = Duration::from_millis(15);
/// The factors by which the rate decreases or increases per tick.
const DOWN: f64 = 0.85;
const UP: f64 = 1.05;
/// The lowest rate in bytes per second.
const SLOWEST: f64 = 125_000.0;

/// The rate limit of a copy with `--nice`, in bytes per second.
#[derive(Debug, Default)]
pub(super) struct NicePacer {
    /// The limit since the first queue.
    allowed: Option<f64>,
}

impl NicePacer {
    /// Returns whether a connection with this RTT, and the lowest RTT `least`, waits in a queue.
    pub(super) fn is_queued(rtt: Duration, least: Option<Duration>) -> bool {
        least.is_some_and(|least| rtt > least + DELAY)
    }

    /// Returns the rate limit of the next tick in bytes per second, at most `most`. In the last
    /// tick the copy sent at `rate`, and its packets waited in a queue if `queued`. Until the first
    /// queue the limit is `most`.
    pub(super) fn next(&mut self, queued: bool, rate: f64, most: f64) -> f64 {
        let allowed = match (queued, self.allowed) {
            (true, allowed) => Some(allowed.unwrap_or(f64::INFINITY).min(rate) * DOWN),
            // A copy that sends at less than half of the limit does not need a higher one.
            (false, Some(allowed)) if rate < allowed / 2.0 => Some(allowed),
            (false, Some(allowed)) => Some(allowed * UP),
            (false, None) => None,
        };
        self.allowed = allowed.map(|allowed| allowed.clamp(SLOWEST, most.max(SLOWEST)));
        self.allowed.unwrap_or(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: f64 = f64::INFINITY;

    #[test]
    fn without_a_queue_the_rate_is_not_limited() {
        let mut nice_pacer = NicePacer::default();
        for rate in [1e6, 1e9, 1e10] {
            assert_eq!(nice_pacer.next(false, rate, ALL), ALL);
        }
        assert_eq!(nice_pacer.next(false, 1e9, 5e8), 5e8, "the user's limit applies");
    }

    #[test]
    fn a_queue_lowers_the_rate_until_it_is_empty() {
        let mut nice_pacer = NicePacer::default();
        let mut rate = 1e9;
        for _ in 0..20 {
            rate = nice_pacer.next(true, rate, ALL);
        }
        assert!(rate < 0.05 * 1e9, "the rate after 20 ticks with a queue: {rate}");
        for _ in 0..80 {
            rate = nice_pacer.next(false, rate, ALL);
        }
        assert!(rate > 1e9, "the rate after 80 ticks without a queue: {rate}");
    }

    #[test]
    fn the_limit_has_a_minimum_and_does_not_grow_unused() {
        let mut nice_pacer = NicePacer::default();
        for _ in 0..100 {
            nice_pacer.next(true, 1.0, ALL);
        }
        assert_eq!(nice_pacer.next(true, 1.0, ALL), SLOWEST);
        let idle = nice_pacer.next(false, 1.0, ALL);
        assert_eq!(
            nice_pacer.next(false, 1.0, ALL),
            idle,
            "the limit of an idle copy does not increase"
        );
    }

    #[test]
    fn a_delay_above_the_lowest_rtt_is_a_queue() {
        let ms = Duration::from_millis;
        assert!(!NicePacer::is_queued(ms(100), Some(ms(90))));
        assert!(NicePacer::is_queued(ms(110), Some(ms(90))));
        assert!(!NicePacer::is_queued(ms(110), None), "the lowest RTT is unknown");
    }
}
