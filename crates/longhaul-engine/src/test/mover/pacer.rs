use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How far behind its schedule a sender may fall and still catch up: more than a timer is late,
/// less than what would be another rate.
const CATCH_UP: Duration = Duration::from_millis(10);
/// How long a sender sleeps at most before it looks whether it should stop.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// The burst unless another is asked for, as time at the pacing rate.
const BURST_TIME: Duration = Duration::from_millis(1);

/// Holds a sending thread to a rate: a burst at once, then sleep until the next is due.
#[derive(Debug)]
pub(in crate::test) struct Pacer {
    bytes_per_second: f64,
    burst: u64,
    /// What the present burst has left.
    left: u64,
    /// When the next burst may begin.
    next: Instant,
}

impl Pacer {
    /// For a stream that starts now. Without a burst it is a millisecond's worth, but at least
    /// `unit` bytes, below which nothing is sent.
    pub(in crate::test) fn new(bytes_per_second: u64, burst: Option<u64>, unit: u64) -> Self {
        let worth = (bytes_per_second as f64 * BURST_TIME.as_secs_f64()) as u64;
        let burst = burst.unwrap_or(worth).max(unit).max(1);
        Pacer { bytes_per_second: bytes_per_second as f64, burst, left: 0, next: Instant::now() }
    }

    /// Waits until something may be sent, and says how many bytes; 0 when `stop` was set.
    pub(in crate::test) fn allowance(&mut self, stop: &AtomicBool) -> u64 {
        if self.left > 0 {
            return self.left;
        }
        loop {
            if stop.load(Ordering::Relaxed) {
                return 0;
            }
            let now = Instant::now();
            match self.next.checked_duration_since(now) {
                Some(wait) if !wait.is_zero() => thread::sleep(wait.min(STOP_LOOK)),
                _ => {
                    self.begin_burst(now);
                    return self.left;
                }
            }
        }
    }

    fn begin_burst(&mut self, now: Instant) {
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let takes = Duration::try_from_secs_f64(self.burst as f64 / self.bytes_per_second);
        // A burst that takes centuries is followed by none.
        self.next = self.next.max(earliest) + takes.unwrap_or(Duration::from_secs(1 << 32));
        self.left = self.burst;
    }

    /// Takes note that `bytes` of the allowance were used.
    pub(in crate::test) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_follow_at_the_rate_and_lost_time_is_not_made_up_for() {
        let mut pacer = Pacer::new(1_000_000, Some(1000), 1);
        let begun = pacer.next;
        pacer.begin_burst(begun);
        assert_eq!((pacer.left, pacer.next), (1000, begun + Duration::from_millis(1)));
        // Two bursts late: both may go at once.
        pacer.begin_burst(begun + Duration::from_millis(3));
        assert_eq!(pacer.next, begun + Duration::from_millis(2));
        // A second late: no more than the catch-up.
        pacer.begin_burst(begun + Duration::from_secs(1));
        assert_eq!(pacer.next, begun + Duration::from_millis(991));
    }

    #[test]
    fn a_burst_is_spent_piece_by_piece_and_a_stop_ends_the_wait() {
        let mut pacer = Pacer::new(1, Some(100), 1);
        let stop = AtomicBool::new(false);
        assert_eq!(pacer.allowance(&stop), 100);
        pacer.spend(60);
        assert_eq!(pacer.allowance(&stop), 40);
        pacer.spend(40);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(pacer.allowance(&stop), 0);
        assert_eq!(Pacer::new(1_000_000, None, 1).burst, 1000);
        assert_eq!(Pacer::new(1_000_000, None, 8972).burst, 8972);
    }
}
