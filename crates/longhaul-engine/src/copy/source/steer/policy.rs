//! Decides on the number and the congestion control of the data connections, from measurements over
//! a window of time.

use std::fmt;

use longhaul_core::units::Rate;

use super::steered::rate_of;
use crate::copy::streams::{FIRST_STREAMS, MOST_STREAMS};

/// The minimum factor by which a doubling of the connections must increase the rate.
pub(super) const LEAST_GAIN: f64 = 1.1;
/// The minimum share of the time in which the senders work or wait for their sockets, if the
/// network limits them and not the disk.
const NETWORK_LIMITED: f64 = 0.5;
/// The minimum share of connections limited by the sender or by a window, for which further
/// connections help.
const SENDER_LIMITED: f64 = 0.5;
/// The minimum share of the host's CPU time in use at which the processors count as busy.
const CPU_FULL: f64 = 0.95;
/// The minimum loss share that limits a congestion window. With one lost segment in
/// 20,000 a loss-based congestion control keeps its window below 200 segments (RFC 3649, section
/// 2).
const LIMITING_LOSS: f64 = 5e-5;
/// The minimum loss share that shows that the connections overflow a queue, if the loss
/// share has also doubled with the number of connections.
const OVERFLOW_LOSS: f64 = 1e-3;

/// The measurements of all connections together over one window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowStats {
    /// The number of open connections.
    pub(super) streams: u32,
    /// Acknowledged bytes per second.
    pub(super) rate: f64,
    /// Retransmitted bytes per acknowledged byte.
    pub(super) loss: f64,
    /// The share of the time in which the senders worked or waited for their sockets, from 0 to 1.
    pub(super) sending: f64,
    /// The share of the host's CPU time in use, from 0 to 1.
    pub(super) cpu: f64,
    /// True if the rate in the second half of the window was more than [`LEAST_GAIN`] times the
    /// rate in the first half, as in slow start.
    pub(super) growing: bool,
    /// The share of the connections that the sending thread, the send buffer or the receive window
    /// limits, and not the congestion window; from 0 to 1.
    pub(super) limited: f64,
    /// True if packets wait in a queue of the path.
    pub(super) queued: bool,
}

/// A decision on the connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Decision {
    /// Changes nothing.
    Keep,
    /// Replaces a congestion control that treats this loss share as congestion by BBR.
    Bbr { loss: f64 },
    /// Opens further connections. `rate` is the present rate in bytes per second.
    Add { from: u32, to: u32, rate: f64 },
    /// Opens no more connections during this copy.
    Stop { streams: u32, reason: StopReason },
}

/// The reason for opening no more connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StopReason {
    /// The rate is less than [`LEAST_GAIN`] times the rate `before` with `fewer` connections; in
    /// bytes per second.
    TooLittleGain { rate: f64, before: f64, fewer: u32 },
    /// The loss share has increased since connections were added.
    Overflow { loss: f64, before: f64 },
    /// The processors are busy.
    Cpu,
    /// The maximum number of connections is open.
    Maximum,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Keep => Ok(()),
            Decision::Bbr { loss } => write!(f, "bbr: {:.4} % was lost", 100.0 * loss),
            Decision::Add { from, to, rate } => {
                write!(f, "from {from} to {to} streams at {}", rate_of(*rate))
            }
            Decision::Stop { streams, reason } => match reason {
                StopReason::TooLittleGain { rate, before, fewer } => write!(
                    f,
                    "{streams} streams: {}, and {} with {fewer}; longhaul adds no more",
                    rate_of(*rate),
                    rate_of(*before)
                ),
                StopReason::Overflow { loss, before } => write!(
                    f,
                    "{streams} streams: the loss is {:.3} %, and was {:.3} %; longhaul adds no more",
                    100.0 * loss,
                    100.0 * before
                ),
                StopReason::Cpu => {
                    write!(f, "{streams} streams: the processors are busy; longhaul adds no more")
                }
                StopReason::Maximum => write!(f, "{streams} streams: the maximum"),
            },
        }
    }
}

/// The state of the decisions.
#[derive(Debug)]
pub(super) struct StreamPolicy {
    /// True while the number of connections may increase.
    free: bool,
    /// True while the congestion control may change.
    congestion_free: bool,
    /// The total number of connections to open.
    wanted: u32,
    /// The measurements before the last connections were added.
    before: Option<WindowStats>,
}

impl StreamPolicy {
    /// Creates a policy. It uses exactly `streams` connections if given, and keeps the congestion
    /// control if `fixed_congestion`.
    pub(super) fn new(streams: Option<u32>, fixed_congestion: bool) -> Self {
        StreamPolicy {
            free: streams.is_none(),
            congestion_free: !fixed_congestion,
            wanted: streams.unwrap_or(FIRST_STREAMS),
            before: None,
        }
    }

    /// Sets the number of connections at the start of the copy.
    pub(super) fn starting_with(self, first: u32) -> Self {
        StreamPolicy { wanted: first, ..self }
    }

    /// Returns the total number of connections to open.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Returns the decision for the measurements `stats`, given the user's rate limit and the name
    /// of the present congestion control.
    pub(super) fn decide(
        &mut self,
        stats: WindowStats,
        limit: Option<Rate>,
        congestion: &str,
    ) -> Decision {
        // Otherwise the senders wait for blocks, so a disk limits the copy.
        let network_limits = stats.sending >= NETWORK_LIMITED;
        if self.congestion_free && network_limits && stats.loss >= LIMITING_LOSS {
            self.congestion_free = false;
            if !congestion.starts_with("bbr") {
                // The rate with BBR is not compared with an earlier rate.
                self.before = None;
                return Decision::Bbr { loss: stats.loss };
            }
        }
        // The last connections that were requested may not be open yet.
        if !self.free || limit.is_some() || !network_limits || stats.streams < self.wanted {
            return Decision::Keep;
        }
        // One BBR connection fills a path, and further ones would only reduce the share of other
        // traffic. A loss-based connection increases its window slowly on a long path, so several
        // connections fill the path earlier.
        let path_has_room = !congestion.starts_with("bbr") && !stats.queued;
        if stats.growing || !(stats.limited >= SENDER_LIMITED || path_has_room) {
            return Decision::Keep;
        }
        if let Some(reason) = self.stop_reason(&stats) {
            self.free = false;
            return Decision::Stop { streams: stats.streams, reason };
        }
        self.before = Some(stats);
        self.wanted = (2 * stats.streams).min(MOST_STREAMS);
        Decision::Add { from: stats.streams, to: self.wanted, rate: stats.rate }
    }

    fn stop_reason(&self, stats: &WindowStats) -> Option<StopReason> {
        if let Some(before) = &self.before {
            if stats.rate < LEAST_GAIN * before.rate {
                let (rate, fewer) = (stats.rate, before.streams);
                return Some(StopReason::TooLittleGain { rate, before: before.rate, fewer });
            }
            if stats.loss >= OVERFLOW_LOSS.max(2.0 * before.loss) {
                return Some(StopReason::Overflow { loss: stats.loss, before: before.loss });
            }
        }
        if stats.cpu >= CPU_FULL {
            return Some(StopReason::Cpu);
        }
        (stats.streams >= MOST_STREAMS).then_some(StopReason::Maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(streams: u32, rate: f64) -> WindowStats {
        WindowStats {
            streams,
            rate,
            loss: 0.0,
            sending: 0.9,
            cpu: 0.3,
            growing: false,
            limited: 1.0,
            queued: false,
        }
    }

    /// Applies `policy` to windows of a path with a rate of `rate_of` the number of connections,
    /// until the policy adds no more. Returns the number of connections in each window.
    fn follow(mut policy: StreamPolicy, rate_of: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut streams = vec![policy.wanted()];
        for _ in 0..20 {
            let now = *streams.last().unwrap();
            match policy.decide(stats(now, rate_of(now)), None, "cubic") {
                Decision::Add { to, .. } => streams.push(to),
                Decision::Stop { .. } => return streams,
                decision => panic!("{decision:?}"),
            }
        }
        panic!("the policy does not stop: {streams:?}")
    }

    #[test]
    fn connections_are_doubled_while_the_rate_increases_by_a_tenth() {
        let policy = || StreamPolicy::new(None, false);
        assert_eq!(follow(policy(), f64::from), [4, 8, 16], "each connection adds the same rate");
        assert_eq!(follow(policy(), |_| 1.0), [4, 8], "more connections add nothing");
        assert_eq!(
            follow(policy(), |n| f64::from(n.min(8))),
            [4, 8, 16],
            "eight connections fill the path"
        );
    }

    #[test]
    fn a_requested_number_of_connections_does_not_change() {
        let mut policy = StreamPolicy::new(Some(3), false);
        for _ in 0..5 {
            assert_eq!(policy.decide(stats(3, 1.0), None, "cubic"), Decision::Keep);
        }
        assert_eq!(policy.wanted(), 3);
    }

    #[test]
    fn a_slow_disk_busy_processors_loss_and_a_limit_prevent_further_connections() {
        let with = |change: fn(&mut WindowStats)| {
            let mut stats = stats(4, 1.0);
            change(&mut stats);
            stats
        };
        let first = |stats, limit| StreamPolicy::new(None, true).decide(stats, limit, "cubic");
        assert_eq!(
            first(with(|stats| stats.sending = 0.3), None),
            Decision::Keep,
            "a disk limits the copy"
        );
        assert_eq!(first(stats(4, 1.0), Some(Rate::from_bps(1))), Decision::Keep);
        assert_eq!(
            first(stats(3, 1.0), None),
            Decision::Keep,
            "the last connection is not open yet"
        );
        let stop = |streams, reason| Decision::Stop { streams, reason };
        assert_eq!(first(with(|stats| stats.cpu = 0.99), None), stop(4, StopReason::Cpu));

        let mut policy = StreamPolicy::new(None, true);
        assert_eq!(
            policy.decide(with(|stats| stats.loss = 1e-4), None, "cubic"),
            Decision::Add { from: 4, to: 8, rate: 1.0 }
        );
        let lossy = WindowStats { loss: 2e-3, ..stats(8, 1.5) };
        let reason = StopReason::Overflow { loss: 2e-3, before: 1e-4 };
        assert_eq!(
            policy.decide(lossy, None, "cubic"),
            stop(8, reason),
            "faster, but the queue overflows"
        );
        assert_eq!(
            policy.decide(stats(8, 9.0), None, "cubic"),
            Decision::Keep,
            "the decision to stop is final"
        );
    }

    #[test]
    fn loss_selects_bbr_once_and_only_if_it_is_not_in_use() {
        let lossy = |streams, rate| WindowStats { loss: 1e-4, ..stats(streams, rate) };
        let mut policy = StreamPolicy::new(None, false);
        assert_eq!(
            policy.decide(stats(4, 1.0), None, "cubic"),
            Decision::Add { from: 4, to: 8, rate: 1.0 }
        );
        assert_eq!(policy.decide(lossy(8, 1.0), None, "cubic"), Decision::Bbr { loss: 1e-4 });
        let next = policy.decide(lossy(8, 1.0), None, "bbr");
        assert_eq!(
            next,
            Decision::Add { from: 8, to: 16, rate: 1.0 },
            "the rate before BBR does not count"
        );

        let clean = WindowStats { loss: 2e-5, ..stats(4, 1.0) };
        let idle = WindowStats { sending: 0.2, ..lossy(4, 1.0) };
        for (stats, congestion, fixed) in
            [(clean, "cubic", false), (lossy(4, 1.0), "bbr", false), (lossy(4, 1.0), "lp", true)]
        {
            let decision = StreamPolicy::new(None, fixed).decide(stats, None, congestion);
            assert_eq!(decision, Decision::Add { from: 4, to: 8, rate: 1.0 }, "{congestion}");
        }
        let decision = StreamPolicy::new(None, false).decide(idle, None, "cubic");
        assert_eq!(decision, Decision::Keep, "a disk limits the copy");
    }

    #[test]
    fn slow_start_and_a_full_path_prevent_further_connections() {
        let decide = |stats, congestion| {
            StreamPolicy::new(None, true).decide(stats, None, congestion) != Decision::Keep
        };
        let path_limits = WindowStats { limited: 0.25, ..stats(4, 1.0) };
        assert!(decide(stats(4, 1.0), "bbr"), "the sender or a window limits the connections");
        assert!(!decide(WindowStats { growing: true, ..stats(4, 1.0) }, "bbr"));
        assert!(!decide(path_limits, "bbr"));
        assert!(decide(path_limits, "cubic"), "CUBIC increases its window slowly");
        assert!(!decide(WindowStats { queued: true, ..path_limits }, "cubic"));
    }

    #[test]
    fn decisions_are_printed() {
        let add = Decision::Add { from: 4, to: 8, rate: 125e6 };
        assert_eq!(add.to_string(), "from 4 to 8 streams at 1.00 Gb/s");
        let reason = StopReason::TooLittleGain { rate: 125e6, before: 250e6, fewer: 4 };
        let stop = Decision::Stop { streams: 8, reason };
        assert_eq!(
            stop.to_string(),
            "8 streams: 1.00 Gb/s, and 2.00 Gb/s with 4; longhaul adds no more"
        );
    }
}
