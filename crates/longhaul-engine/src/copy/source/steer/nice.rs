//! The rate of a copy with `--nice`: it decreases while the queues of the path grow, as in LEDBAT
//! (RFC 6817), and increases while they do not.

use std::time::Duration;

/// The queueing delay that a copy with `--nice` accepts (RFC 6817: at most 100 ms).
const DELAY: Duration = Duration::from_millis(15);
/// The factors of a decrease and of an increase per tick.
const DOWN: f64 = 0.85;
const UP: f64 = 1.05;
/// The lowest rate in bytes per second.
const SLOWEST: f64 = 125_000.0;

/// The rate limit of a copy with `--nice`, in bytes per second.
#[derive(Debug, Default)]
pub(super) struct NicePacer {
    allowed: Option<f64>,
}

impl NicePacer {
    /// Returns whether a connection with this RTT, and the lowest RTT `least`, waits in a queue.
    pub(super) fn is_queued(rtt: Duration, least: Option<Duration>) -> bool {
        least.is_some_and(|least| rtt > least + DELAY)
    }

    /// The rate from now on, after a tick at `rate` in which connections were `queued` or not;
    /// never more than `most`. Infinite while nothing was ever in the way.
    pub(super) fn next(&mut self, queued: bool, rate: f64, most: f64) -> f64 {
        let allowed = match (queued, self.allowed) {
            (true, allowed) => Some(allowed.unwrap_or(f64::INFINITY).min(rate) * DOWN),
            // A limit that is not reached does not increase.
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
    fn without_queues_nothing_is_held_back() {
        let mut nice_pacer = NicePacer::default();
        for rate in [1e6, 1e9, 1e10] {
            assert_eq!(nice_pacer.next(false, rate, ALL), ALL);
        }
        assert_eq!(nice_pacer.next(false, 1e9, 5e8), 5e8, "the user's limit holds");
    }

    #[test]
    fn it_gives_way_to_others_and_comes_back() {
        let mut nice_pacer = NicePacer::default();
        let mut rate = 1e9;
        for _ in 0..20 {
            rate = nice_pacer.next(true, rate, ALL);
        }
        assert!(rate < 0.05 * 1e9, "four seconds of queues leave {rate}");
        for _ in 0..80 {
            rate = nice_pacer.next(false, rate, ALL);
        }
        assert!(rate > 1e9, "sixteen without bring back {rate}");
    }

    #[test]
    fn it_keeps_a_little_and_hoards_nothing() {
        let mut nice_pacer = NicePacer::default();
        for _ in 0..100 {
            nice_pacer.next(true, 1.0, ALL);
        }
        assert_eq!(nice_pacer.next(true, 1.0, ALL), SLOWEST);
        let idle = nice_pacer.next(false, 1.0, ALL);
        assert_eq!(nice_pacer.next(false, 1.0, ALL), idle, "an idle copy gathers no claim");
    }

    #[test]
    fn a_queue_is_delay_above_the_least() {
        let ms = Duration::from_millis;
        assert!(!NicePacer::is_queued(ms(100), Some(ms(90))));
        assert!(NicePacer::is_queued(ms(110), Some(ms(90))));
        assert!(!NicePacer::is_queued(ms(110), None), "nothing to compare with");
    }
}
