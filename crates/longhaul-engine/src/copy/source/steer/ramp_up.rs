//! The bound before the first loss, which finds the queue of a path before slow start overflows it.
//!
//! Slow start doubles the rate in a round trip, and the sender learns of a queue one round trip after
//! the queue begins to grow. By then the copy sends at twice the rate of the path. The bound
//! therefore modulates the rate: in a quarter of a round trip the copy sends at twice the mean rate.
//! This pulse exceeds the rate of the path, and delays packets, when the mean rate is still below
//! the rate of the path.

use std::collections::VecDeque;
use std::time::Duration;

use super::sample::{ConnectionsSample, rate};

/// The bound divided by the delivered rate of a round trip, averaged over a pulse and the time to
/// the next. The delivered rate is one and a half round trips old on average, in which a rate that
/// grows by a factor of 1.7 per round trip grows by 2.2.
const GROWTH: f64 = 2.2;
/// The rate in a pulse divided by the mean rate, and the share of a round trip of a pulse. There is
/// a pulse in every round trip.
const PULSE: f64 = 2.0;
const PULSE_SHARE: f64 = 0.25;
/// The shortest round trip with pulses. In a shorter one the samples are too far apart, and slow
/// start overflows a queue less.
const LEAST_TRIP: Duration = Duration::from_millis(40);
/// The rise of the smoothed RTT that counts as a queue, in seconds.
const RISE: f64 = 0.002;
/// The growth of this rise per round trip while a queue holds the rate down, in seconds. A
/// varying RTT without a queue therefore soon has no effect.
const TOLERANCE: f64 = 0.002;
/// The bound divided by the delivered rate: while a queue builds up, and in the `HELD_TRIPS` round
/// trips after.
const HELD: f64 = 0.9;
const RELEASED: f64 = 1.3;
const HELD_TRIPS: u32 = 2;
/// The share of a round trip over which the delivered rate is measured while a queue builds up.
const RECENT_SHARE: f64 = 0.25;
/// The rate of a round trip divided by that of a window up to which the rate does not grow, and the
/// number of round trips after which slow start is then over.
const STEADY: f64 = 1.25;
const STEADY_TRIPS: f64 = 8.0;

/// The state of the ramp-up.
#[derive(Debug, Default)]
pub(super) struct RampUp {
    /// The growth of `RISE` so far, in seconds.
    tolerated: f64,
    /// The time of the last sample with a queue.
    queued_at: Option<Duration>,
    /// The time for which the rate has not grown, in round trips.
    steady: f64,
    /// True if slow start is over. A source that pauses and resumes does not repeat it.
    over: bool,
}

impl RampUp {
    /// Returns the bound in bytes per second, and `None` if slow start is over. `samples` are those
    /// of the last window, and the recent maxima of the delivered rate over a round trip and over a
    /// window are `trip_rate` and `window_rate`. If the rate of the path `is_known`, which limits the
    /// overshoot, the rate between the pulses is not lowered.
    pub(super) fn next(
        &mut self,
        samples: &VecDeque<ConnectionsSample>,
        trip_rate: f64,
        window_rate: f64,
        is_known: bool,
    ) -> Option<f64> {
        let now = samples.back()?;
        let previous = samples.iter().rev().nth(1).map_or(now.at, |previous| previous.at);
        let trips = (now.at - previous).as_secs_f64() / now.rtt.as_secs_f64();
        let steady = trip_rate > 0.0 && trip_rate <= STEADY * window_rate;
        self.steady = if steady { self.steady + trips } else { 0.0 };
        self.over |= self.steady >= STEADY_TRIPS;
        if !self.applies(now.least_rtt) {
            return None;
        }
        let held = |at: Option<Duration>| at.is_some_and(|at| now.at - at < now.rtt * HELD_TRIPS);
        if held(self.queued_at) {
            self.tolerated += TOLERANCE * trips;
        }
        let least = samples.iter().map(|sample| sample.rtt).min()?;
        if (now.rtt - least).as_secs_f64() > RISE + self.tolerated {
            self.queued_at = Some(now.at);
        }
        let recent = recent_rate(samples, now);
        Some(if self.queued_at == Some(now.at) {
            HELD * recent
        } else if held(self.queued_at) {
            RELEASED * recent
        } else {
            let modulation = modulation(now.at, now.least_rtt);
            GROWTH * trip_rate * if is_known { modulation.max(1.0) } else { modulation }
        })
    }

    /// Returns whether a queue has been found.
    pub(super) fn found_queue(&self) -> bool {
        self.queued_at.is_some()
    }

    /// Returns whether this bound applies on a path with the lowest RTT `least_rtt`: until slow start
    /// is over.
    pub(super) fn applies(&self, least_rtt: Duration) -> bool {
        least_rtt >= LEAST_TRIP && !self.over
    }
}

/// Returns the rate at the time `at` divided by the mean rate.
fn modulation(at: Duration, trip: Duration) -> f64 {
    let phase = (at.as_secs_f64() / trip.as_secs_f64()).fract();
    if phase < PULSE_SHARE { PULSE } else { (1.0 - PULSE * PULSE_SHARE) / (1.0 - PULSE_SHARE) }
}

/// Returns the delivered rate of the last `RECENT_SHARE` of a round trip.
fn recent_rate(samples: &VecDeque<ConnectionsSample>, now: &ConnectionsSample) -> f64 {
    let time = now.rtt.mul_f64(RECENT_SHARE);
    samples.iter().rev().find(|then| now.at - then.at >= time).map_or(0.0, |then| rate(then, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulses_do_not_change_the_mean_rate() {
        let trip = Duration::from_millis(100);
        let sum: f64 = (0..1000).map(|ms| modulation(Duration::from_millis(ms), trip)).sum();
        assert!((sum / 1000.0 - 1.0).abs() < 0.01, "{sum}");
    }
}
