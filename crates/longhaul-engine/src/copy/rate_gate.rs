//! Keeps the connections of a source within the user's rate limit from the first byte on.
//!
//! The kernel paces each connection, but not its first ten segments, which are 640 KB over loopback.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;

use super::progress::RateLimit;
use crate::lock;

/// The time that may be made up for after a pause.
const BURST: Duration = Duration::from_millis(50);
/// The longest sleep before a check for the end of the copy.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Lets bytes pass at the rate limit of a copy, which can change meanwhile.
pub(super) struct RateGate {
    limit: RateLimit,
    /// The time at which all bytes that were taken will have passed at the limit.
    passed: Mutex<Option<Instant>>,
    open: AtomicBool,
}

impl RateGate {
    pub(super) fn new(limit: RateLimit) -> Self {
        RateGate { limit, passed: Mutex::default(), open: AtomicBool::new(false) }
    }

    /// Waits until the bytes that were taken before have passed at the limit, and takes `bytes`.
    pub(super) fn take(&self, bytes: usize) {
        let Some(limit) = self.limit.get() else { return };
        let now = Instant::now();
        let due = now + self.due(limit, bytes, now);
        while !self.open.load(Ordering::Relaxed) {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(STOP_CHECK));
        }
    }

    /// Takes `bytes` at `now`, and returns the wait until they may pass.
    fn due(&self, limit: Rate, bytes: usize, now: Instant) -> Duration {
        let mut passed = lock(&self.passed);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = passed.map_or(now, |passed| passed.max(earliest));
        *passed = Some(start + limit.time_for(bytes as u64));
        start.saturating_duration_since(now)
    }

    /// Ends all waits, because the copy is over.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(bps: u64) -> RateGate {
        let limit = RateLimit::default();
        limit.set(Some(Rate::from_bps(bps)));
        RateGate::new(limit)
    }

    #[test]
    fn bytes_wait_for_those_before_them() {
        let (gate, limit) = (gate(8_000_000), Rate::from_bps(8_000_000));
        let now = Instant::now();
        let ms = Duration::from_millis;
        assert_eq!(gate.due(limit, 100_000, now), ms(0));
        assert_eq!(gate.due(limit, 100_000, now), ms(100), "from any connection");
        assert_eq!(gate.due(limit, 100_000, now + ms(210)), ms(0), "10 ms late");
        assert_eq!(gate.due(limit, 100_000, now + ms(210)), ms(90), "which are made up for");
        assert_eq!(gate.due(Rate::from_bps(16_000_000), 100_000, now + ms(400)), ms(0));
        assert_eq!(gate.due(limit, 1, now + ms(400)), ms(50), "at twice the rate");
        assert_eq!(gate.due(limit, 100_000, now + ms(10_000)), ms(0));
        assert_eq!(gate.due(limit, 1, now + ms(10_000)), ms(50), "a pause is not made up for");
    }

    #[test]
    fn a_wait_ends_with_the_copy_and_without_a_limit_there_is_none() {
        let slow = gate(8);
        slow.take(1000);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| slow.take(1));
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            slow.open();
        });
        let free = RateGate::new(RateLimit::default());
        (0..1000).for_each(|_| free.take(usize::MAX));
    }
}
