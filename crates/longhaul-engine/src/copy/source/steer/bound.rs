//! The bound on the sending rate of all connections of a copy together, which keeps the copy from
//! starving other traffic.
//!
//! Congestion control works per connection. Several slow starts at once, or BBR beside loss-based
//! flows, overflow the queue of a shared link and take nearly all of it. The bound is a pacing rate
//! over all connections. It depends on the delivered rate, at which the receiver acknowledges
//! bytes, also selectively:
//!
//! - in slow start, two to three times the delivered rate while the path has no queue, and about the
//!   delivered rate while a queue builds up ([`RampUp`]),
//! - below the delivered rate after the queue has overflowed. From there the bound rises slowly.
//!
//! Loss that occurs without a queue and does not grow is random loss and does not lower the bound.

use std::collections::VecDeque;
use std::time::Duration;

use super::after_loss::{BoundAfterLoss, Lowering};
use super::onset::Onset;
use super::ramp_up::RampUp;
use super::sample::{ConnectionsSample, rate};

/// The shortest round trip of a path with a bound. On shorter paths congestion control reacts
/// within milliseconds, and pacing costs CPU time at the rates of a local network.
const SHORT_PATH: Duration = Duration::from_millis(2);

/// The loss share above which the bound is lowered, on a path without a queue.
const LOSS_LIMIT: f64 = 0.02;
/// The loss share above which the bound is lowered, on a path with a queue. The queue then
/// overflows.
const OVERFLOW_LIMIT: f64 = 0.002;
/// The loss share below which loss before the first lowering and without a queue may be random.
const RANDOM_LIMIT: f64 = 0.03;
/// The maximum of the estimate of random loss. A queue can overflow while it is too short to be seen; the
/// estimate must not follow the losses that the copy itself causes.
const MOST_RANDOM: f64 = 0.015;
/// The number of lost bytes up to which a loss share is not significant.
const INSIGNIFICANT_BYTES: f64 = 16.0 * 1448.0;
/// The time constant of the estimate of random loss, in seconds.
const RANDOM_TIME_CONSTANT: f64 = 1.0;

/// The bound divided by the delivered rate before the first loss and where [`RampUp`] does not
/// apply, without and with a queue. In slow start the rate doubles in a round trip. The delivered
/// rate over the last round trip is one and a half round trips old on average, in which the rate
/// grows by a factor of 2^1.5 = 2.8.
const SLOW_START: f64 = 3.0;
const SLOW_START_QUEUED: f64 = 1.1;
/// The bound before the first loss, divided by the rate that an earlier copy reached. If the
/// delivered rate exceeds the share `EARLIER_USED` of this bound for `EARLIER_TRIPS` round trips
/// without a queue, the path carries more, and this bound no longer applies.
const EARLIER: f64 = 1.25;
const EARLIER_USED: f64 = 0.7;
const EARLIER_TRIPS: f64 = 2.0;
/// The bound divided by the delivered rate after a loss share above [`LOSS_LIMIT`], and after a
/// smaller loss share.
const AFTER_LOSS: f64 = 0.7;
const AFTER_OVERFLOW: f64 = 0.8;
/// The delay above the lowest RTT that counts as a queue: this share of the lowest RTT, but at
/// least the delay that a busy host adds.
const QUEUE_SHARE: f64 = 0.15;
const QUEUE_FLOOR: Duration = Duration::from_millis(3);
/// The window over which rate and loss are measured: this number of round trips, but at least this
/// time.
const WINDOW_TRIPS: u32 = 4;
const WINDOW_FLOOR: Duration = Duration::from_millis(60);
/// The number of round trips that, added to a window, is the time after a lowered bound in which
/// further losses have the same cause.
const SETTLING_TRIPS: u32 = 3;
/// The number of round trips after a lowered bound in which the queue of the path drains.
const DRAINING_TRIPS: u32 = 2;
/// The time in which the maximum of earlier delivered rates halves, in seconds.
const HALF_LIFE: f64 = 2.0;
/// The maximum of the delivered rate over a round trip, divided by that over a window. A burst of
/// acknowledgements can exceed it.
const BURST: f64 = 1.3;

/// The number of samples per round trip, during the ramp-up and otherwise, and the limits of the
/// interval between two samples.
const SAMPLES_IN_RAMP_UP: u32 = 16;
const SAMPLES: u32 = 2;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(4);
const LONGEST_INTERVAL: Duration = Duration::from_millis(30);

/// The bound as a function of samples, without a clock or a socket.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// The samples of the last window.
    samples: VecDeque<ConnectionsSample>,
    /// The recent maximum of the delivered rate over a round trip, in bytes per second.
    trip_rate: f64,
    /// The recent maximum of the delivered rate over a window, in bytes per second.
    window_rate: f64,
    /// The loss share without a queue.
    random_loss: f64,
    /// The time over which `random_loss` was observed, in seconds.
    random_time: f64,
    earlier: Option<BoundFromCache>,
    lowered: Option<BoundAfterLoss>,
    ramp_up: RampUp,
    /// The last loss without a queue that lowered the bound.
    onset: Option<Onset>,
}

/// The bound before the first loss, on a path whose rate is known from an earlier copy.
#[derive(Debug, Clone, Copy)]
struct BoundFromCache {
    /// Bytes per second.
    rate: f64,
    /// The time for which the path has carried this rate without a queue, in round trips.
    carried: f64,
}

/// The rate and the loss share of the last window.
#[derive(Debug, Clone, Copy)]
struct Observation {
    /// The seconds since the previous sample.
    step: f64,
    /// The length of the window.
    window: Duration,
    /// The delivered rate in bytes per second.
    window_rate: f64,
    /// True if packets wait in a queue of the path.
    queued: bool,
    /// The bytes delivered or lost in the window.
    sent: f64,
    /// The loss share.
    loss: f64,
    /// The loss share less twice that of random loss.
    congestion_loss: f64,
    /// True if enough bytes were lost for `loss` to be significant.
    significant: bool,
}

impl Bound {
    /// Creates a bound for a path over which an earlier copy reached the rate `earlier`, in bytes
    /// per second.
    pub(super) fn with_earlier_rate(earlier: Option<f64>) -> Self {
        let earlier = earlier.map(|rate| BoundFromCache { rate: EARLIER * rate, carried: 0.0 });
        Bound { earlier, ..Bound::default() }
    }

    /// Returns the recent maximum of the delivered rate over a window, in bytes per second; `None`
    /// before the first window.
    pub(super) fn delivered(&self) -> Option<f64> {
        (self.window_rate > 0.0).then_some(self.window_rate)
    }

    /// Adds the sample `now` and returns the bound on the rate of all connections together, in
    /// bytes per second; `None` on a path shorter than [`SHORT_PATH`].
    pub(super) fn next(&mut self, now: ConnectionsSample) -> Option<f64> {
        if now.least_rtt < SHORT_PATH {
            return None;
        }
        let observed = self.observe(now);
        let limit = if observed.queued { OVERFLOW_LIMIT } else { LOSS_LIMIT };
        let may_be_random =
            self.lowered.is_none() && !observed.queued && observed.loss < RANDOM_LIMIT;
        let congested = observed.significant && observed.congestion_loss > limit && !may_be_random;
        match &mut self.lowered {
            Some(lowered) if !lowered.is_settled(now.at) => {
                lowered.grow(now.at, observed.window_rate, observed.queued);
            }
            _ if congested => self.lower(now, observed),
            Some(lowered) => {
                if let Some(onset) = self.onset.as_mut().filter(|_| !observed.queued) {
                    onset.compare(observed.window_rate, observed.sent, observed.loss);
                }
                lowered.grow(now.at, observed.window_rate, observed.queued);
            }
            None => {}
        }
        self.check_earlier(observed, now.rtt);
        let least = SLOW_START * now.initial_windows as f64 / now.rtt.as_secs_f64();
        let most = self.earlier.map_or(f64::INFINITY, |earlier| earlier.rate);
        let unlimited = match self.lowered {
            Some(lowered) => return Some(lowered.rate().max(least / 8.0)),
            None => {
                let is_known = self.earlier.is_some();
                self.ramp_up.next(&self.samples, self.trip_rate, self.window_rate, is_known)
            }
        };
        Some(match unlimited {
            Some(rate) => rate.min(most).max(least),
            None if observed.queued => (SLOW_START_QUEUED * self.window_rate).max(least),
            None => (SLOW_START * self.trip_rate).min(most).max(least),
        })
    }

    /// Returns the time until the next sample, given the smoothed RTT `rtt`.
    pub(super) fn interval(&self, rtt: Duration) -> Duration {
        let least = self.samples.back().map_or(rtt, |sample| sample.least_rtt);
        let ramps_up = self.lowered.is_none() && self.ramp_up.applies(least);
        let per_trip = if ramps_up { SAMPLES_IN_RAMP_UP } else { SAMPLES };
        (rtt / per_trip).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
    }

    /// Returns whether a loss has lowered the bound.
    pub(super) fn is_lowered(&self) -> bool {
        self.lowered.is_some()
    }

    /// Returns the cause of the first lowering.
    pub(super) fn reason(&self) -> &'static str {
        match self.onset {
            Some(_) => "the path drops segments that did not wait in a queue",
            None => "the queue of the path overflows",
        }
    }

    /// Returns the rate from which on segments were lost without a queue, if fewer are lost below the
    /// first such rate: the highest delivered rate, because the losses lower the present one.
    pub(super) fn drops_at(&self) -> Option<f64> {
        let onset = self.onset.filter(Onset::is_confirmed)?;
        Some(onset.rate().max(self.window_rate))
    }

    /// Returns the delivered rate at which the queue overflowed, in bytes per second, if that lowered
    /// the bound.
    pub(super) fn overflows_at(&self) -> Option<f64> {
        (self.lowered.is_some() && self.onset.is_none()).then_some(self.window_rate)
    }

    fn observe(&mut self, now: ConnectionsSample) -> Observation {
        let window = (now.rtt * WINDOW_TRIPS).max(WINDOW_FLOOR);
        while self.samples.len() > 1 && now.at.saturating_sub(self.samples[1].at) >= window {
            self.samples.pop_front();
        }
        let step = self.samples.back().map_or(0.0, |last| (now.at - last.at).as_secs_f64());
        self.samples.push_back(now);
        let first = self.samples[0];
        let trip = self.samples.iter().rev().find(|then| now.at - then.at >= now.rtt);
        let trip_rate = trip.map_or(0.0, |then| rate(then, &now));
        let window_rate = rate(&first, &now);
        let kept = 0.5_f64.powf(step / HALF_LIFE);
        self.trip_rate = (self.trip_rate * kept).max(trip_rate);
        self.window_rate = (self.window_rate * kept).max(window_rate);

        let queued = is_queued(now.rtt, now.least_rtt);
        let lost = now.lost.saturating_sub(first.lost) as f64;
        let sent = now.delivered.saturating_sub(first.delivered) as f64 + lost;
        let loss = lost / sent.max(1.0);
        let congestion_loss = (loss - 2.0 * self.random_loss).max(0.0);
        // The losses of a window in which the path had a queue may be those of the queue.
        let had_queue = self.samples.iter().any(|then| is_queued(then.rtt, then.least_rtt));
        if !had_queue && sent > 100.0 * INSIGNIFICANT_BYTES {
            // The estimate is the mean during the first second, because a slower estimate would let random
            // loss lower the bound in slow start.
            self.random_time += step;
            let time = self.random_time.min(RANDOM_TIME_CONSTANT);
            let weight = (step / time.max(f64::EPSILON)).min(1.0);
            self.random_loss += weight * (loss.min(MOST_RANDOM) - self.random_loss);
        }
        let significant = lost > INSIGNIFICANT_BYTES;
        Observation { step, window, window_rate, queued, sent, loss, congestion_loss, significant }
    }

    /// Removes the bound by the earlier copy if the path carries its rate without a queue. The path
    /// has then become faster, or it did not limit the earlier copy.
    fn check_earlier(&mut self, observed: Observation, rtt: Duration) {
        let Some(earlier) = &mut self.earlier else { return };
        let carries = !observed.queued && self.trip_rate > EARLIER_USED * earlier.rate;
        earlier.carried =
            if carries { earlier.carried + observed.step / rtt.as_secs_f64() } else { 0.0 };
        if earlier.carried >= EARLIER_TRIPS {
            self.earlier = None;
        }
    }

    fn lower(&mut self, now: ConnectionsSample, observed: Observation) {
        // In slow start the rate over a window is lower than the present rate. The rate over a
        // round trip may be too high because of a burst of acknowledgements, except if a queue has
        // limited it.
        let is_full = self.lowered.is_none() && (observed.queued || self.ramp_up.found_queue());
        let delivered = if is_full {
            self.trip_rate.max(self.window_rate)
        } else {
            self.trip_rate.clamp(self.window_rate, BURST * self.window_rate)
        };
        let factor =
            if observed.congestion_loss > LOSS_LIMIT { AFTER_LOSS } else { AFTER_OVERFLOW };
        self.onset = match self.onset {
            // A queue that builds up later is that of the path.
            _ if observed.queued => None,
            Some(onset) if onset.is_confirmed() => Some(onset),
            _ => Some(Onset::new(delivered, observed.loss)),
        };
        let settled_at = now.at + observed.window + now.rtt * SETTLING_TRIPS;
        // The loss of an onset is compared with that at the lowered rate.
        let compares = self.onset.is_some_and(|onset| !onset.is_confirmed());
        let drained_at = if compares { settled_at } else { now.at + now.rtt * DRAINING_TRIPS };
        let loss = Lowering {
            delivered,
            factor,
            at: now.at,
            drained_at,
            settled_at,
            least_rtt: now.least_rtt,
        };
        self.lowered = Some(match self.lowered {
            Some(lowered) => lowered.again(loss),
            None => BoundAfterLoss::first(loss),
        });
    }
}

/// Returns whether the smoothed RTT `rtt` exceeds the lowest RTT `least` by the delay of a queue.
pub(super) fn is_queued(rtt: Duration, least: Duration) -> bool {
    rtt.saturating_sub(least) > least.mul_f64(QUEUE_SHARE).max(QUEUE_FLOOR)
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "slow_start_tests.rs"]
mod slow_start_tests;
