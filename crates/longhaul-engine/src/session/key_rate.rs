//! The rate that all sessions of a key share: the option `max-rate`.
//!
//! Copies take from one allowance per direction, a segment at a time. A test reserves its requested
//! rate in both directions; copies get the rest, but at least a sixteenth, so that a test does not
//! break their connections. A path measurement and a step of a diagnosis reserve half of the rate,
//! or the rest of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;

use crate::lock;

/// The lowest rate of a key: a block of 4 MiB then takes 3 s, well below the limit of silence.
pub(super) const LEAST_BPS: u64 = 10_000_000;
/// The burst after a pause.
const BURST: Duration = Duration::from_millis(50);
/// The share of the rate that tests leave to copies.
const COPIES_SHARE: u64 = 16;
/// The longest time that a [`Throttle`] sleeps before it checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// The rate of a key, shared by its sessions.
#[derive(Debug)]
pub(crate) struct KeyRate {
    limit: Rate,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The rate that running tests have reserved.
    reserved_bps: u64,
    /// The time per direction at which all that was taken will have passed at the rate.
    passed: [Option<Instant>; 2],
}

/// The direction of bytes, seen from the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RateDirection {
    /// From a client.
    In,
    /// To a client.
    Out,
}

/// A reserved rate, which is returned when dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    rate: Arc<KeyRate>,
    bps: u64,
}

impl KeyRate {
    pub(super) fn new(limit: Rate) -> Arc<Self> {
        Arc::new(KeyRate { limit, state: Mutex::default() })
    }

    /// Returns the rate of all sessions together.
    pub(crate) fn limit(&self) -> Rate {
        self.limit
    }

    /// Waits until `bytes` more may pass.
    pub(crate) fn take(&self, way: RateDirection, bytes: usize) {
        let wait = self.due(way, bytes, Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }

    /// Takes `bytes` from the allowance at `now`, and returns the wait until they may pass.
    fn due(&self, way: RateDirection, bytes: usize, now: Instant) -> Duration {
        let mut state = lock(&self.state);
        let limit = self.limit.bps();
        let left = limit.saturating_sub(state.reserved_bps).max(limit / COPIES_SHARE);
        let passed = &mut state.passed[way as usize];
        let start = passed.map_or(now, |passed| passed.max(now.checked_sub(BURST).unwrap_or(now)));
        let end = start + Duration::from_secs_f64(bytes as f64 * 8.0 / left as f64);
        *passed = Some(end);
        end.saturating_duration_since(now)
    }

    /// Reserves the rate that a test requests. Fails with the rate that is left if the test
    /// requests more, or no rate.
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

    /// Reserves half of the rate, or the rest if less is left.
    ///
    /// # Errors
    /// Less than a sixteenth is left.
    pub(crate) fn reserve_half(self: &Arc<Self>) -> Result<Reserved, RateTaken> {
        let mut state = lock(&self.state);
        let limit = self.limit.bps();
        let left = limit.saturating_sub(state.reserved_bps);
        if left < limit / COPIES_SHARE {
            return Err(RateTaken { limit: self.limit, left: Rate::from_bps(left) });
        }
        let bps = left.min(limit / 2);
        state.reserved_bps += bps;
        Ok(Reserved { rate: self.clone(), bps })
    }
}

/// Other sessions of the key have reserved its rate.
#[derive(Debug, thiserror::Error)]
#[error(
    "{left} are left of this key's rate of {limit}; try again when another session of the \
    key ends"
)]
pub(crate) struct RateTaken {
    limit: Rate,
    left: Rate,
}

impl Reserved {
    /// Returns the reserved rate.
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bps(self.bps)
    }
}

/// Slows several threads down to a common rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: Option<Rate>,
    begun: Instant,
    taken: AtomicU64,
}

impl Throttle {
    /// Creates a throttle to `rate`; without a rate it never waits.
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Throttle { rate, begun: Instant::now(), taken: AtomicU64::new(0) }
    }

    /// Returns the rate.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Waits until all bytes that were taken before have passed at the rate, or until `deadline` or
    /// `stop`, and takes `bytes`.
    pub(crate) fn take(&self, bytes: u64, deadline: Instant, stop: &AtomicBool) {
        let Some(rate) = self.rate else { return };
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let due = (self.begun + rate.time_for(before)).min(deadline);
        while !stop.load(Ordering::Relaxed) {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(STOP_CHECK));
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

    /// Returns the time of ten megabytes that two sessions take one by one.
    fn ten_megabytes(rate: &KeyRate, way: RateDirection, now: Instant) -> Duration {
        let mut wait = Duration::ZERO;
        (0..10).for_each(|_| wait = rate.due(way, MEGABYTE, now));
        wait
    }

    #[test]
    fn the_sessions_of_a_key_share_its_rate_in_each_direction() {
        let rate = KeyRate::new(Rate::from_bps(80_000_000));
        let now = Instant::now();
        assert_eq!(ten_megabytes(&rate, RateDirection::In, now), Duration::from_secs(1));
        assert_eq!(ten_megabytes(&rate, RateDirection::Out, now), Duration::from_secs(1));
        assert_eq!(ten_megabytes(&rate, RateDirection::In, now), Duration::from_secs(2));
        let later = now + Duration::from_secs(10);
        let burst = ten_megabytes(&rate, RateDirection::In, later);
        assert_eq!(burst, Duration::from_secs(1) - BURST, "a pause is not saved up");
    }

    #[test]
    fn a_test_takes_its_rate_from_the_others() {
        let rate = KeyRate::new(Rate::from_bps(80_000_000));
        assert_eq!(rate.reserve(None).unwrap_err(), rate.limit());
        let test = rate.reserve(Some(Rate::from_bps(60_000_000))).unwrap();
        assert_eq!(rate.reserve(Some(rate.limit())).unwrap_err(), Rate::from_bps(20_000_000));
        let now = Instant::now();
        assert_eq!(ten_megabytes(&rate, RateDirection::In, now), Duration::from_secs(4));
        let _rest = rate.reserve(Some(Rate::from_bps(20_000_000))).unwrap();
        assert_eq!(ten_megabytes(&rate, RateDirection::Out, now), Duration::from_secs(16));
        drop(test);
        assert!(rate.reserve(Some(Rate::from_bps(60_000_000))).is_ok());
    }

    #[test]
    fn a_path_measurement_takes_half_of_the_rate_or_the_rest() {
        let rate = KeyRate::new(Rate::from_bps(80_000_000));
        let test = rate.reserve(Some(Rate::from_bps(50_000_000))).unwrap();
        let rest = rate.reserve_half().unwrap();
        assert_eq!(rest.rate(), Rate::from_bps(30_000_000));
        assert!(rate.reserve_half().unwrap_err().to_string().contains("80.0 Mb/s"));
        drop((test, rest));
        assert_eq!(rate.reserve_half().unwrap().rate(), Rate::from_bps(40_000_000));
    }

    #[test]
    fn a_throttle_keeps_to_its_rate_until_it_is_stopped() {
        let (stop, later) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
        let throttle = Throttle::new(Some(Rate::from_bps(80_000_000)));
        (0..3).for_each(|_| throttle.take(1_000_000, later, &stop));
        assert!(throttle.begun.elapsed() >= Duration::from_millis(200));
        throttle.take(u64::MAX / 16, Instant::now(), &stop);
        throttle.take(1, Instant::now(), &stop);
        stop.store(true, Ordering::Relaxed);
        throttle.take(1, later, &stop);
        assert!(throttle.begun.elapsed() < Duration::from_secs(30));
        Throttle::new(None).take(u64::MAX, later, &AtomicBool::new(false));
    }
}
