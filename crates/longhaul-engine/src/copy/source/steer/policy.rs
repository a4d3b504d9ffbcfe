//! Decides on the data connections from the measurements of a window of time.

use std::fmt;

use longhaul_core::units::Rate;

use super::steered::rate_of;
use crate::copy::streams::{FIRST_STREAMS, MOST_STREAMS};

/// The least increase of the rate that keeps more connections.
pub(super) const WORTH: f64 = 1.1;
/// The share of the time from which on the network limits the senders.
const HELD_UP: f64 = 0.5;
/// The share of the connections that the sender or a window limits from which on more of them help.
const LIMITED: f64 = 0.5;
/// The share of the host's processor time that counts as full.
const CPU_FULL: f64 = 0.95;
/// Bytes sent again for each byte delivered from which on loss is what limits a window: one lost
/// segment in 20,000 keeps a loss-based window below 200 segments (RFC 3649, section 2).
const LOSSY: f64 = 5e-5;
/// The same from which on, where it has doubled with the connections, they lose by themselves: they
/// overrun a queue.
const OVERRUN: f64 = 1e-3;

/// The measurements of one window of time, of all connections together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowStats {
    /// Connections that are open.
    pub(super) streams: u32,
    /// Bytes delivered in a second.
    pub(super) rate: f64,
    /// Bytes sent again for each delivered.
    pub(super) loss: f64,
    /// The share of their time that the senders were at work or waited for their sockets.
    pub(super) sending: f64,
    /// The share of the host's processor time in use.
    pub(super) cpu: f64,
    /// The second half of the window was faster than the first by [`WORTH`]: a startup.
    pub(super) growing: bool,
    /// The share of the connections that the sending thread, the send buffer or the receive window
    /// limits, not the congestion window.
    pub(super) limited: f64,
    /// Packets wait in a queue of the path.
    pub(super) queued: bool,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Decision {
    /// Nothing.
    Keep,
    /// BBR instead of a congestion control that takes this loss for congestion.
    Bbr { loss: f64 },
    /// More connections.
    Add { from: u32, to: u32, rate: f64 },
    /// No more connections from now on.
    Stop { streams: u32, reason: StopReason },
}

/// The cause that no more connections are added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StopReason {
    /// The last ones brought too little.
    NotWorth { rate: f64, before: f64, fewer: u32 },
    /// More is lost since.
    Overrun { loss: f64, before: f64 },
    /// The processors are used up.
    Cpu,
    /// There are as many as ever are.
    Enough,
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
                StopReason::NotWorth { rate, before, fewer } => write!(
                    f,
                    "{streams} streams: {} where {fewer} brought {}, no more added",
                    rate_of(*rate),
                    rate_of(*before)
                ),
                StopReason::Overrun { loss, before } => write!(
                    f,
                    "{streams} streams: {:.3} % is lost, {:.3} % before, no more added",
                    100.0 * loss,
                    100.0 * before
                ),
                StopReason::Cpu => {
                    write!(f, "{streams} streams: the processors are used up, no more added")
                }
                StopReason::Enough => write!(f, "{streams} streams: as many as are ever opened"),
            },
        }
    }
}

/// The state of the decisions.
#[derive(Debug)]
pub(super) struct StreamPolicy {
    /// True if the number of connections is chosen by measurement.
    free: bool,
    /// True if the congestion control may be changed.
    congestion_free: bool,
    /// Connections that are wanted in all.
    wanted: u32,
    /// The measurements before connections were added.
    before: Option<WindowStats>,
}

impl StreamPolicy {
    /// A policy that keeps to `streams` connections if they are given, and to the congestion control
    /// that there is if it `fixed` it.
    pub(super) fn new(streams: Option<u32>, fixed: bool) -> Self {
        StreamPolicy {
            free: streams.is_none(),
            congestion_free: !fixed,
            wanted: streams.unwrap_or(FIRST_STREAMS),
            before: None,
        }
    }

    /// The same for a copy that begins with `first` connections.
    pub(super) fn beginning_with(self, first: u32) -> Self {
        StreamPolicy { wanted: first, ..self }
    }

    /// Connections that are wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Decides, under the user's rate limit `limit` and the present `congestion` control.
    pub(super) fn decide(
        &mut self,
        seen: WindowStats,
        limit: Option<Rate>,
        congestion: &str,
    ) -> Decision {
        // Senders that wait for blocks have the disk, or the sink's, to wait for.
        let held_up = seen.sending >= HELD_UP;
        if self.congestion_free && held_up && seen.loss >= LOSSY {
            self.congestion_free = false;
            if !congestion.starts_with("bbr") {
                // Its effect is measured before anything else is changed.
                self.before = None;
                return Decision::Bbr { loss: seen.loss };
            }
        }
        // With fewer than wanted the last ones are not open yet, or cannot be.
        if !self.free || limit.is_some() || !held_up || seen.streams < self.wanted {
            return Decision::Keep;
        }
        // One BBR connection fills a path, and further ones would only take the share of others.
        // Loss-based ones grow slowly on a long path, so that more of them fill it earlier.
        let path_has_room = !congestion.starts_with("bbr") && !seen.queued;
        if seen.growing || !(seen.limited >= LIMITED || path_has_room) {
            return Decision::Keep;
        }
        if let Some(reason) = self.stop_reason(&seen) {
            self.free = false;
            return Decision::Stop { streams: seen.streams, reason };
        }
        self.before = Some(seen);
        self.wanted = (2 * seen.streams).min(MOST_STREAMS);
        Decision::Add { from: seen.streams, to: self.wanted, rate: seen.rate }
    }

    fn stop_reason(&self, seen: &WindowStats) -> Option<StopReason> {
        if let Some(before) = &self.before {
            if seen.rate < WORTH * before.rate {
                let (rate, fewer) = (seen.rate, before.streams);
                return Some(StopReason::NotWorth { rate, before: before.rate, fewer });
            }
            if seen.loss >= OVERRUN.max(2.0 * before.loss) {
                return Some(StopReason::Overrun { loss: seen.loss, before: before.loss });
            }
        }
        if seen.cpu >= CPU_FULL {
            return Some(StopReason::Cpu);
        }
        (seen.streams >= MOST_STREAMS).then_some(StopReason::Enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(streams: u32, rate: f64) -> WindowStats {
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

    /// Follows `policy` over windows of a path on which so many connections bring `rate_of`, until
    /// it adds no more, and returns the number of connections in each.
    fn follow(mut policy: StreamPolicy, rate_of: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut streams = vec![policy.wanted()];
        for _ in 0..20 {
            let now = *streams.last().unwrap();
            match policy.decide(seen(now, rate_of(now)), None, "cubic") {
                Decision::Add { to, .. } => streams.push(to),
                Decision::Stop { .. } => return streams,
                decision => panic!("{decision:?}"),
            }
        }
        panic!("it never ends: {streams:?}")
    }

    #[test]
    fn connections_are_doubled_while_they_bring_a_tenth_more() {
        let policy = || StreamPolicy::new(None, false);
        assert_eq!(follow(policy(), f64::from), [4, 8, 16], "each as much as the first");
        assert_eq!(follow(policy(), |_| 1.0), [4, 8], "one would have been enough");
        assert_eq!(follow(policy(), |n| f64::from(n.min(8))), [4, 8, 16], "the path is full");
    }

    #[test]
    fn a_number_that_was_asked_for_is_kept_to() {
        let mut policy = StreamPolicy::new(Some(3), false);
        for _ in 0..5 {
            assert_eq!(policy.decide(seen(3, 1.0), None, "cubic"), Decision::Keep);
        }
        assert_eq!(policy.wanted(), 3);
    }

    #[test]
    fn disk_processors_loss_and_the_users_limit_end_it() {
        let with = |change: fn(&mut WindowStats)| {
            let mut seen = seen(4, 1.0);
            change(&mut seen);
            seen
        };
        let first = |seen, limit| StreamPolicy::new(None, true).decide(seen, limit, "cubic");
        assert_eq!(
            first(with(|seen| seen.sending = 0.3), None),
            Decision::Keep,
            "the disk is slow"
        );
        assert_eq!(first(seen(4, 1.0), Some(Rate::from_bps(1))), Decision::Keep);
        assert_eq!(first(seen(3, 1.0), None), Decision::Keep, "the last is not open yet");
        let stop = |streams, reason| Decision::Stop { streams, reason };
        assert_eq!(first(with(|seen| seen.cpu = 0.99), None), stop(4, StopReason::Cpu));

        let mut policy = StreamPolicy::new(None, true);
        assert_eq!(
            policy.decide(with(|seen| seen.loss = 1e-4), None, "cubic"),
            Decision::Add { from: 4, to: 8, rate: 1.0 }
        );
        let lossy = WindowStats { loss: 2e-3, ..seen(8, 1.5) };
        let reason = StopReason::Overrun { loss: 2e-3, before: 1e-4 };
        assert_eq!(policy.decide(lossy, None, "cubic"), stop(8, reason), "faster, but it overruns");
        assert_eq!(policy.decide(seen(8, 9.0), None, "cubic"), Decision::Keep, "it stays stopped");
    }

    #[test]
    fn loss_brings_bbr_once_and_only_where_it_is_not_there() {
        let lossy = |streams, rate| WindowStats { loss: 1e-4, ..seen(streams, rate) };
        let mut policy = StreamPolicy::new(None, false);
        assert_eq!(
            policy.decide(seen(4, 1.0), None, "cubic"),
            Decision::Add { from: 4, to: 8, rate: 1.0 }
        );
        assert_eq!(policy.decide(lossy(8, 1.0), None, "cubic"), Decision::Bbr { loss: 1e-4 });
        let next = policy.decide(lossy(8, 1.0), None, "bbr");
        assert_eq!(
            next,
            Decision::Add { from: 8, to: 16, rate: 1.0 },
            "measured anew since the change"
        );

        let clean = WindowStats { loss: 2e-5, ..seen(4, 1.0) };
        let idle = WindowStats { sending: 0.2, ..lossy(4, 1.0) };
        for (seen, congestion, fixed) in
            [(clean, "cubic", false), (lossy(4, 1.0), "bbr", false), (lossy(4, 1.0), "lp", true)]
        {
            let decision = StreamPolicy::new(None, fixed).decide(seen, None, congestion);
            assert_eq!(decision, Decision::Add { from: 4, to: 8, rate: 1.0 }, "{congestion}");
        }
        let decision = StreamPolicy::new(None, false).decide(idle, None, "cubic");
        assert_eq!(decision, Decision::Keep, "what limits is the disk");
    }

    #[test]
    fn a_startup_and_a_full_path_get_no_more_connections() {
        let decide = |seen, congestion| {
            StreamPolicy::new(None, true).decide(seen, None, congestion) != Decision::Keep
        };
        let path_limits = WindowStats { limited: 0.25, ..seen(4, 1.0) };
        assert!(decide(seen(4, 1.0), "bbr"), "the sender or a window limits");
        assert!(!decide(WindowStats { growing: true, ..seen(4, 1.0) }, "bbr"));
        assert!(!decide(path_limits, "bbr"));
        assert!(decide(path_limits, "cubic"), "cubic grows slowly");
        assert!(!decide(WindowStats { queued: true, ..path_limits }, "cubic"));
    }

    #[test]
    fn turns_are_told_in_words() {
        let add = Decision::Add { from: 4, to: 8, rate: 125e6 };
        assert_eq!(add.to_string(), "from 4 to 8 streams at 1.00 Gb/s");
        let reason = StopReason::NotWorth { rate: 125e6, before: 250e6, fewer: 4 };
        let stop = Decision::Stop { streams: 8, reason };
        assert_eq!(
            stop.to_string(),
            "8 streams: 1.00 Gb/s where 4 brought 2.00 Gb/s, no more added"
        );
    }
}
