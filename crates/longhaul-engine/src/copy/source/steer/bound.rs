//! The bound on the sending rate of all connections of a copy together, which keeps the copy from
//! starving other traffic.
//!
//! Congestion control works per connection. Several slow starts at once, or BBR beside loss-based
//! flows, overflow the queue of a shared link and take nearly all of it. The bound is a pacing rate
//! over all connections: three times the delivered rate while the path has no queue, a tenth above it
//! while a queue builds up, and below it after the queue overflowed, from where it rises slowly.
//! Loss that occurs without a queue and does not grow is random loss and does not lower the bound.

use std::collections::VecDeque;
use std::time::Duration;

use super::onset::Onset;

/// Paths with a shorter round trip are not bounded: their congestion control reacts within
/// milliseconds, and pacing costs processor time at the rates of a local network.
const SHORT_PATH: Duration = Duration::from_millis(2);

/// Share of the sent bytes whose loss lowers the bound.
const LOSS_LIMIT: f64 = 0.02;
/// The same while there is a queue, which then overflows.
const OVERFLOW_LIMIT: f64 = 0.002;
/// The largest loss without a queue that a startup takes for random.
const RANDOM_LIMIT: f64 = 0.05;
/// Retransmitted bytes below which a share says nothing.
const FEW_BYTES: f64 = 16.0 * 1448.0;
/// Time constant of the estimate of random loss, in seconds.
const RANDOM_SECONDS: f64 = 0.5;

/// Bound over delivered rate before the first loss: without a queue, and with one. A startup doubles
/// its rate in a round trip, and the delivered rate of the last round trip is a round trip and a
/// half old; three times that rate lets it double.
const STARTUP: f64 = 3.0;
const STARTUP_QUEUED: f64 = 1.1;
/// Bound of a startup over the rate that an earlier copy reached. If the delivered rate stays above
/// this share of that bound for so many round trips without a queue, the path carries more, and the
/// startup continues.
const EARLIER: f64 = 1.25;
const EARLIER_USED: f64 = 0.7;
const EARLIER_TRIPS: f64 = 2.0;
/// Bound over delivered rate after a loss above [`LOSS_LIMIT`], and after a smaller one.
const AFTER_LOSS: f64 = 0.7;
const AFTER_OVERFLOW: f64 = 0.8;
/// Growth in a second after a loss: towards the rate before it, at that rate, and with a queue.
const RECOVERY: f64 = 3.0;
const PROBING: f64 = 1.3;
const PROBING_QUEUED: f64 = 1.2;
/// Share of the rate before the loss at which recovery ends.
const PLATEAU: f64 = 0.95;

/// Delay above the least round trip that counts as a queue: a share of that round trip, and at
/// least the time by which a busy host is late.
const QUEUE_SHARE: f64 = 0.15;
const QUEUE_FLOOR: Duration = Duration::from_millis(3);
/// Round trips over which rate and loss are measured, and the shortest such time.
const WINDOW_TRIPS: u32 = 4;
const WINDOW_FLOOR: Duration = Duration::from_millis(60);
/// Round trips after a loss in which further losses have the same cause, beside a window.
const SETTLING_TRIPS: u32 = 3;
/// Time after which a delivered rate counts half, in seconds.
const HALF_LIFE: f64 = 2.0;
/// The most by which a burst of acknowledgements may raise the rate of a round trip above that of a
/// window.
const BURST: f64 = 1.3;

/// The state of all connections at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionsSample {
    /// Time since the start of the copy.
    pub(super) at: Duration,
    /// Bytes that the receiver acknowledged, of all connections.
    pub(super) acked: u64,
    /// Bytes that were retransmitted, of all connections.
    pub(super) retransmitted: u64,
    /// The smallest smoothed round-trip time.
    pub(super) rtt: Duration,
    /// The least round-trip time of any connection.
    pub(super) least_rtt: Duration,
    /// Bytes that the first congestion windows allow, of all connections.
    pub(super) first_windows: u64,
}

/// The bound: a function of samples, without a clock or a socket.
#[derive(Debug, Default)]
pub(super) struct Bound {
    samples: VecDeque<ConnectionsSample>,
    /// Recent maximum of the rate over a round trip, in bytes per second.
    trip_rate: f64,
    /// Recent maximum of the rate over a window, in bytes per second.
    window_rate: f64,
    /// Share of the bytes lost without a queue.
    random_loss: f64,
    earlier: Option<Earlier>,
    lowered: Option<Lowered>,
    /// The last loss without a queue that lowered the bound.
    onset: Option<Onset>,
}

/// The bound of a startup on a path whose rate is known.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    /// Bytes per second.
    rate: f64,
    /// The time for which the path has carried it without a queue, in round trips.
    carried: f64,
}

/// The bound after a loss.
#[derive(Debug, Clone, Copy)]
struct Lowered {
    /// Bytes per second.
    rate: f64,
    /// The rate before the loss.
    before: f64,
    /// End of the time in which losses have the same cause; growth starts then.
    grown: Duration,
}

/// Rate and loss of the recent past.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Seconds since the sample before.
    step: f64,
    window: Duration,
    window_rate: f64,
    queued: bool,
    /// Bytes sent in the window.
    sent: f64,
    /// Share of the bytes lost, and the part of it above random loss.
    loss: f64,
    congestion_loss: f64,
    /// Retransmitted bytes are enough to judge by.
    significant: bool,
}

impl Bound {
    /// A bound for a path over which an earlier copy reached the rate `earlier`.
    pub(super) fn after(earlier: Option<f64>) -> Self {
        let earlier = earlier.map(|rate| Earlier { rate: EARLIER * rate, carried: 0.0 });
        Bound { earlier, ..Bound::default() }
    }

    /// Returns the highest rate over the last windows; `None` before there was a window.
    pub(super) fn delivered(&self) -> Option<f64> {
        (self.window_rate > 0.0).then_some(self.window_rate)
    }

    /// Returns the rate in bytes per second that all connections together may send at after `now`;
    /// `None` on a short path.
    pub(super) fn next(&mut self, now: ConnectionsSample) -> Option<f64> {
        if now.least_rtt < SHORT_PATH {
            return None;
        }
        let seen = self.observe(now);
        let limit = if seen.queued { OVERFLOW_LIMIT } else { LOSS_LIMIT };
        let congested = seen.significant && seen.congestion_loss > limit;
        match self.lowered {
            Some(lowered) if now.at < lowered.grown => {}
            None if congested && !seen.queued && seen.loss < RANDOM_LIMIT => {
                self.random_loss = seen.loss;
            }
            _ if congested => self.lower(now, seen),
            Some(lowered) => {
                if let Some(onset) = self.onset.as_mut().filter(|_| !seen.queued) {
                    onset.compare(seen.window_rate, seen.sent, seen.loss);
                }
                self.lowered = Some(lowered.grow(now.at, seen));
            }
            None => {}
        }
        self.check_earlier(seen, now.rtt);
        let least = STARTUP * now.first_windows as f64 / now.rtt.as_secs_f64();
        let most = self.earlier.map_or(f64::INFINITY, |earlier| earlier.rate);
        Some(match self.lowered {
            Some(lowered) => lowered.rate.max(least / 8.0),
            None if seen.queued => (STARTUP_QUEUED * self.window_rate).max(least),
            None => (STARTUP * self.trip_rate).min(most).max(least),
        })
    }

    /// True once a loss has lowered the bound.
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

    fn observe(&mut self, now: ConnectionsSample) -> Seen {
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
        let retransmitted = now.retransmitted.saturating_sub(first.retransmitted) as f64;
        let sent = now.acked.saturating_sub(first.acked) as f64 + retransmitted;
        let loss = retransmitted / sent.max(1.0);
        let congestion_loss = (loss - 2.0 * self.random_loss).max(0.0);
        if !queued && sent > 100.0 * FEW_BYTES {
            let weight = (step / RANDOM_SECONDS).min(1.0);
            self.random_loss += weight * (loss.min(RANDOM_LIMIT) - self.random_loss);
        }
        let significant = retransmitted > FEW_BYTES;
        Seen { step, window, window_rate, queued, sent, loss, congestion_loss, significant }
    }

    /// Forgets the rate of an earlier copy if the path carries it without a queue: the path has
    /// become faster, or something else than the path limited that copy.
    fn check_earlier(&mut self, seen: Seen, rtt: Duration) {
        let Some(earlier) = &mut self.earlier else { return };
        let carries = !seen.queued && self.trip_rate > EARLIER_USED * earlier.rate;
        earlier.carried =
            if carries { earlier.carried + seen.step / rtt.as_secs_f64() } else { 0.0 };
        if earlier.carried >= EARLIER_TRIPS {
            self.earlier = None;
        }
    }

    fn lower(&mut self, now: ConnectionsSample, seen: Seen) {
        // A window that a startup doubles in is behind the rate; a round trip may hold a burst.
        let delivered = self.trip_rate.clamp(self.window_rate, BURST * self.window_rate);
        let factor = if seen.congestion_loss > LOSS_LIMIT { AFTER_LOSS } else { AFTER_OVERFLOW };
        let most = self.lowered.map_or(f64::INFINITY, |lowered| lowered.rate);
        self.onset = match self.onset {
            // A queue that builds up later is that of the path.
            _ if seen.queued => None,
            Some(onset) if onset.is_confirmed() => Some(onset),
            _ => Some(Onset::new(delivered, seen.loss)),
        };
        self.lowered = Some(Lowered {
            rate: factor * delivered.min(most),
            before: delivered,
            grown: now.at + seen.window + now.rtt * SETTLING_TRIPS,
        });
    }
}

impl Lowered {
    fn grow(self, now: Duration, seen: Seen) -> Self {
        let growth = match self.rate < PLATEAU * self.before {
            _ if seen.queued => PROBING_QUEUED,
            true => RECOVERY,
            false => PROBING,
        };
        // A rate that the copy does not use does not grow.
        let used = seen.window_rate > self.rate / 2.0;
        let growth = if used { growth.powf((now - self.grown).as_secs_f64()) } else { 1.0 };
        Lowered { rate: self.rate * growth, grown: now, ..self }
    }
}

/// True if the smoothed RTT `rtt` exceeds `least` by the delay of a queue.
pub(super) fn is_queued(rtt: Duration, least: Duration) -> bool {
    rtt.saturating_sub(least) > least.mul_f64(QUEUE_SHARE).max(QUEUE_FLOOR)
}

/// Returns the bytes per second acknowledged between two samples.
fn rate(then: &ConnectionsSample, now: &ConnectionsSample) -> f64 {
    let seconds = now.at.saturating_sub(then.at).as_secs_f64();
    if seconds > 0.0 { now.acked.saturating_sub(then.acked) as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
