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

/// The time whose bytes at the limit may pass at once after a pause.
const BURST: Duration = Duration::from_millis(50);
/// The longest sleep before a check for the end of the copy.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Lets bytes pass at the rate limit of a copy, which can change meanwhile.
pub(super) struct RateGate {
    limit: RateLimit,
    queue: Mutex<Queue>,
    open: AtomicBool,
}

/// Counts of the bytes that enter and pass the gate, in order.
#[derive(Debug, Default)]
struct Queue {
    /// The bytes that have entered the gate.
    entered: f64,
    /// The bytes that the limit has allowed by the time `at`; exceeds `entered` after a pause.
    allowed: f64,
    at: Option<Instant>,
}

impl Queue {
    /// Lets bytes pass at `limit` up to the time `now`.
    fn advance(&mut self, limit: Rate, now: Instant) {
        let rate = limit.bps() as f64 / 8.0;
        let time = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let most = self.entered + rate * BURST.as_secs_f64();
        self.allowed = (self.allowed + rate * time.as_secs_f64()).min(most);
        self.at = Some(now);
    }

    /// Adds `bytes`, and returns the number of bytes that pass before them.
    fn join(&mut self, bytes: usize) -> f64 {
        let before = self.entered;
        self.entered += bytes as f64;
        before
    }

    /// Returns the time until `before` bytes have passed at `limit`.
    fn wait(&self, before: f64, limit: Rate) -> Duration {
        let left = (before - self.allowed).max(0.0);
        // A limit of a few bit/s and many bytes exceed a `Duration`.
        let seconds = 8.0 * left / limit.bps().max(1) as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

impl RateGate {
    pub(super) fn new(limit: RateLimit) -> Self {
        RateGate { limit, queue: Mutex::default(), open: AtomicBool::new(false) }
    }

    /// Waits until the bytes that entered before have passed at the limit, and then lets `bytes` pass.
    pub(super) fn take(&self, bytes: usize) {
        let mut before = None;
        while let Some(limit) = self.limit.get()
            && !self.open.load(Ordering::Relaxed)
        {
            let mut queue = lock(&self.queue);
            queue.advance(limit, Instant::now());
            let before = *before.get_or_insert_with(|| queue.join(bytes));
            let wait = queue.wait(before, limit);
            drop(queue);
            if wait.is_zero() {
                return;
            }
            thread::sleep(wait.min(STOP_CHECK));
        }
    }

    /// Ends all waits, because the copy is over.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let limit = Rate::from_bps(8_000_000);
        let start = Instant::now();
        let mut queue = Queue::default();
        let mut take = |ms, bytes| {
            queue.advance(limit, start + Duration::from_millis(ms));
            let before = queue.join(bytes);
            queue.wait(before, limit).as_millis()
        };
        assert_eq!(take(0, 100_000), 0);
        assert_eq!(take(0, 100_000), 100, "from any connection");
        assert_eq!(take(210, 100_000), 0, "10 ms late");
        assert_eq!(take(210, 100_000), 90, "which are made up for");
        assert_eq!(take(10_000, 100_000), 0);
        assert_eq!(take(10_000, 1), 50, "a pause is made up for by 50 ms at most");
    }

    #[test]
    fn a_new_limit_applies_to_the_bytes_that_wait() {
        let start = Instant::now();
        let mut queue = Queue::default();
        let [slow, fast] = [800_000, 8_000_000].map(Rate::from_bps);
        queue.advance(slow, start);
        queue.join(100_000);
        let before = queue.join(100_000);
        assert_eq!(queue.wait(before, slow).as_millis(), 1000);
        queue.advance(slow, start + Duration::from_millis(500));
        assert_eq!(queue.wait(before, fast).as_millis(), 50);
    }

    #[test]
    fn a_wait_ends_with_the_copy_or_its_limit_and_without_a_limit_there_is_none() {
        let limit = RateLimit::default();
        limit.set(Some(Rate::from_bps(8)));
        for end in [(|gate, _| RateGate::open(gate)) as fn(&RateGate, &RateLimit), |_, limit| {
            limit.set(None);
        }] {
            let gate = RateGate::new(limit.clone());
            limit.set(Some(Rate::from_bps(8)));
            gate.take(1000);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| gate.take(1));
                thread::sleep(Duration::from_millis(50));
                assert!(!waiting.is_finished());
                end(&gate, &limit);
            });
        }
        let free = RateGate::new(RateLimit::default());
        (0..1000).for_each(|_| free.take(usize::MAX));
    }
}
