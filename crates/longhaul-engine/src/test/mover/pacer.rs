//! The pacing of a sending thread by a timer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The lag behind the schedule that a sender may make up for: longer than a busy host keeps a
/// thread from its core, and short enough that the mean over a second keeps to the rate.
const CATCH_UP: Duration = Duration::from_millis(100);
/// The longest sleep between two checks of the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// The default burst, as time at the pacing rate.
const BURST_TIME: Duration = Duration::from_millis(1);
/// The largest default burst. The default receive buffer of a UDP socket on Linux, 208 KiB with
/// the kernel's own memory per datagram, holds about 90 datagrams of 1472 bytes.
const BURST_BYTES: u64 = 64 << 10;

/// Paces a sending thread: it sends a burst, then sleeps until the next one is due.
///
/// A sender that sends more than its allowance, because a datagram is not divided, pays for it out
/// of the bursts that follow.
#[derive(Debug)]
pub(in crate::test) struct Pacer {
    bytes_per_second: f64,
    burst: u64,
    /// Bytes left of the current burst; negative after a send that was larger.
    left: i64,
    /// Start time of the next burst.
    next: Instant,
}

impl Pacer {
    /// Creates the pacer of a stream that starts now. The default burst is a millisecond at the
    /// rate, but no more than [`BURST_BYTES`]. A burst is at least `unit` bytes, the smallest amount
    /// that the stream sends.
    pub(in crate::test) fn new(bytes_per_second: u64, burst: Option<u64>, unit: u64) -> Self {
        let worth = (bytes_per_second as f64 * BURST_TIME.as_secs_f64()) as u64;
        let burst = burst.unwrap_or(worth.min(BURST_BYTES)).max(unit).clamp(1, i64::MAX as u64);
        Pacer { bytes_per_second: bytes_per_second as f64, burst, left: 0, next: Instant::now() }
    }

    /// Waits until bytes may be sent, and returns their number; 0 once `stop` is set.
    pub(in crate::test) fn allowance(&mut self, stop: &AtomicBool) -> u64 {
        loop {
            if let Ok(left @ 1..) = u64::try_from(self.left) {
                return left;
            }
            if stop.load(Ordering::Relaxed) {
                return 0;
            }
            let now = Instant::now();
            match self.next.checked_duration_since(now) {
                Some(wait) if !wait.is_zero() => thread::sleep(wait.min(STOP_CHECK)),
                _ => self.begin_burst(now),
            }
        }
    }

    fn begin_burst(&mut self, now: Instant) {
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let takes = Duration::try_from_secs_f64(self.burst as f64 / self.bytes_per_second);
        // The rate is so low that no second burst follows.
        self.next = self.next.max(earliest) + takes.unwrap_or(Duration::from_secs(1 << 32));
        self.left = self.left.saturating_add_unsigned(self.burst);
    }

    /// Subtracts `bytes`, which were sent, from the allowance.
    pub(in crate::test) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub_unsigned(bytes);
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
        assert_eq!(pacer.next, begun + Duration::from_millis(901));
    }

    /// Bytes that datagrams of `size` carry in `seconds` of a schedule that is kept.
    fn sent(rate_bps: u64, size: u64, most: u64, seconds: u64) -> u64 {
        let mut pacer = Pacer::new(rate_bps / 8, None, size);
        let (begun, mut sent) = (pacer.next, 0);
        loop {
            let due = pacer.next;
            if due - begun >= Duration::from_secs(seconds) {
                return sent;
            }
            pacer.begin_burst(due);
            while pacer.left > 0 {
                let bytes = (pacer.left as u64 / size).clamp(1, most) * size;
                pacer.spend(bytes);
                sent += bytes;
            }
        }
    }

    #[test]
    fn whole_datagrams_keep_to_the_rate() {
        for rate in [64_000, 1_000_000, 12_000_000, 72_000_000, 100_000_000, 999_999_999] {
            for size in [64, 1472, 8972, 65_507] {
                let want = rate / 8 * 10;
                let got = sent(rate, size, 64, 10);
                // A burst at each end of the time is not a matter of the rate.
                let slack = want / 1000 + 2 * size.max(rate / 8000);
                assert!(got.abs_diff(want) <= slack, "{rate} b/s, {size} bytes: {got} of {want}");
            }
        }
        let (want, got) = (5_000_000_000, sent(40_000_000_000, 8972, 7, 1));
        assert!(got.abs_diff(want) <= want / 500, "{got} of {want}");
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
        assert_eq!(Pacer::new(1_000_000_000, None, 1).burst, BURST_BYTES);
        assert_eq!(Pacer::new(1_000_000_000, Some(1 << 20), 1).burst, 1 << 20);
        assert_eq!(Pacer::new(1_000_000, None, 8972).burst, 8972);
    }
}
