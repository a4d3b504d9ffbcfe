//! The rate that all sessions of a key share: the option `max-rate`.
//!
//! Copies take from one allowance per direction, a segment at a time. A test reserves the rate that
//! it asks for, in both directions; copies get what is left, and a sixteenth at the least, so that a
//! test does not break their connections.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;

use crate::lock::lock;

/// The least that a key may be limited to: at this rate a block of 4 MiB takes 3 s, well within
/// what counts as silence.
pub(super) const LEAST_BPS: u64 = 10_000_000;
/// What may pass at once after a pause.
const BURST: Duration = Duration::from_millis(50);
/// The share of the rate that tests leave to copies.
const COPIES_SHARE: u64 = 16;

/// The rate of a key, shared by its sessions.
#[derive(Debug)]
pub(crate) struct KeyRate {
    limit: Rate,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The rate of the tests that run.
    reserved_bps: u64,
    /// By direction, when all that was taken will have passed at the rate.
    passed: [Option<Instant>; 2],
}

/// The way of bytes, seen from the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    /// From a client.
    In,
    /// To a client.
    Out,
}

/// The rate of a running test; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    rate: Arc<KeyRate>,
    bps: u64,
}

impl KeyRate {
    pub(super) fn new(limit: Rate) -> Arc<Self> {
        Arc::new(KeyRate { limit, state: Mutex::default() })
    }

    /// The rate of all sessions together.
    pub(crate) fn limit(&self) -> Rate {
        self.limit
    }

    /// Waits until `bytes` more may pass.
    pub(crate) fn take(&self, way: Direction, bytes: usize) {
        let wait = self.due(way, bytes, Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }

    /// Takes `bytes` from the allowance at `now`, and returns the wait until they may pass.
    fn due(&self, way: Direction, bytes: usize, now: Instant) -> Duration {
        let mut state = lock(&self.state);
        let limit = self.limit.bps();
        let left = limit.saturating_sub(state.reserved_bps).max(limit / COPIES_SHARE);
        let passed = &mut state.passed[way as usize];
        let start = passed.map_or(now, |passed| passed.max(now.checked_sub(BURST).unwrap_or(now)));
        let end = start + Duration::from_secs_f64(bytes as f64 * 8.0 / left as f64);
        *passed = Some(end);
        end.saturating_duration_since(now)
    }

    /// Reserves the rate that a test asks for; the rate that is left if that is too much, or if it
    /// asks for as much as there is.
    pub(crate) fn reserve(self: &Arc<Self>, wanted: Option<Rate>) -> Result<Reserved, Rate> {
        let mut state = lock(&self.state);
        let left = self.limit.bps().saturating_sub(state.reserved_bps);
        match wanted.map(|wanted| wanted.bps()).filter(|wanted| *wanted <= left) {
            Some(bps) => {
                state.reserved_bps += bps;
                Ok(Reserved { rate: self.clone(), bps })
            }
            None => Err(Rate::from_bps(left)),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        lock(&self.rate.state).reserved_bps -= self.bps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1_000_000;

    /// How long ten megabytes take that are taken one by one by two sessions.
    fn ten_megabytes(rate: &KeyRate, way: Direction, now: Instant) -> Duration {
        let mut wait = Duration::ZERO;
        (0..10).for_each(|_| wait = rate.due(way, MEGABYTE, now));
        wait
    }

    #[test]
    fn the_sessions_of_a_key_share_its_rate_in_each_direction() {
        let rate = KeyRate::new(Rate::from_bps(80_000_000));
        let now = Instant::now();
        assert_eq!(ten_megabytes(&rate, Direction::In, now), Duration::from_secs(1));
        assert_eq!(ten_megabytes(&rate, Direction::Out, now), Duration::from_secs(1));
        assert_eq!(ten_megabytes(&rate, Direction::In, now), Duration::from_secs(2));
        let later = now + Duration::from_secs(10);
        let burst = ten_megabytes(&rate, Direction::In, later);
        assert_eq!(burst, Duration::from_secs(1) - BURST, "a pause is not saved up");
    }

    #[test]
    fn a_test_takes_its_rate_from_the_others() {
        let rate = KeyRate::new(Rate::from_bps(80_000_000));
        assert_eq!(rate.reserve(None).unwrap_err(), rate.limit());
        let test = rate.reserve(Some(Rate::from_bps(60_000_000))).unwrap();
        assert_eq!(rate.reserve(Some(rate.limit())).unwrap_err(), Rate::from_bps(20_000_000));
        let now = Instant::now();
        assert_eq!(ten_megabytes(&rate, Direction::In, now), Duration::from_secs(4));
        let _rest = rate.reserve(Some(Rate::from_bps(20_000_000))).unwrap();
        assert_eq!(ten_megabytes(&rate, Direction::Out, now), Duration::from_secs(16));
        drop(test);
        assert!(rate.reserve(Some(Rate::from_bps(60_000_000))).is_ok());
    }
}
