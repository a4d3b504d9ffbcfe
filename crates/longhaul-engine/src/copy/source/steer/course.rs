//! Decides on the data connections from the measurements of a window of time.

use std::fmt;

use longhaul_core::units::Rate;

use super::steered::rate_of;
use crate::copy::streams::{FIRST_STREAMS, MOST_STREAMS};

/// The least increase of the rate that keeps more connections.
const WORTH: f64 = 1.1;
/// The share of the time from which on the network limits the senders.
const HELD_UP: f64 = 0.5;
/// The share of the host's processor time that counts as full.
const CPU_FULL: f64 = 0.95;
/// Bytes sent again for each byte delivered from which on loss is what limits a window: one lost
/// segment in 20,000 keeps a loss-based window below 200 segments (RFC 3649, section 2).
const LOSSY: f64 = 5e-5;
/// The same from which on, where it has doubled with the connections, they lose by themselves: they
/// overrun a queue.
const OVERRUN: f64 = 1e-3;

/// The measurements of one window, of all connections together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
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
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Turn {
    /// Nothing.
    Keep,
    /// BBR instead of a congestion control that takes this loss for congestion.
    Bbr { loss: f64 },
    /// More connections.
    Add { from: u32, to: u32, rate: f64 },
    /// No more connections from now on.
    Stop { streams: u32, why: Why },
}

/// The reason why no more connections are added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Why {
    /// The last ones brought too little.
    NotWorth { rate: f64, before: f64, fewer: u32 },
    /// More is lost since.
    Overrun { loss: f64, before: f64 },
    /// The processors are used up.
    Cpu,
    /// There are as many as ever are.
    Enough,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Turn::Keep => Ok(()),
            Turn::Bbr { loss } => write!(f, "bbr: {:.4} % was lost", 100.0 * loss),
            Turn::Add { from, to, rate } => {
                write!(f, "from {from} to {to} streams at {}", rate_of(*rate))
            }
            Turn::Stop { streams, why } => match why {
                Why::NotWorth { rate, before, fewer } => write!(
                    f,
                    "{streams} streams: {} where {fewer} brought {}, no more added",
                    rate_of(*rate),
                    rate_of(*before)
                ),
                Why::Overrun { loss, before } => write!(
                    f,
                    "{streams} streams: {:.3} % is lost, {:.3} % before, no more added",
                    100.0 * loss,
                    100.0 * before
                ),
                Why::Cpu => {
                    write!(f, "{streams} streams: the processors are used up, no more added")
                }
                Why::Enough => write!(f, "{streams} streams: as many as are ever opened"),
            },
        }
    }
}

/// The state of the decisions.
#[derive(Debug)]
pub(super) struct Course {
    /// True if the number of connections is chosen by measurement.
    free: bool,
    /// True if the congestion control may be changed.
    congestion_free: bool,
    /// Connections that are wanted in all.
    wanted: u32,
    /// The measurements before connections were added.
    before: Option<Seen>,
}

impl Course {
    /// A course that keeps to `streams` connections if they are given, and to the congestion control
    /// that there is if it `keeps` it.
    pub(super) fn new(streams: Option<u32>, keeps: bool) -> Self {
        Course {
            free: streams.is_none(),
            congestion_free: !keeps,
            wanted: streams.unwrap_or(FIRST_STREAMS),
            before: None,
        }
    }

    /// Connections that are wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Decides; `limit` is what the user allows, `congestion` what the connections use.
    pub(super) fn decide(&mut self, seen: Seen, limit: Option<Rate>, congestion: &str) -> Turn {
        // Senders that wait for blocks have the disk, or the sink's, to wait for.
        let held_up = seen.sending >= HELD_UP;
        if self.congestion_free && held_up && seen.loss >= LOSSY {
            self.congestion_free = false;
            if !congestion.starts_with("bbr") {
                // What it brings must show before anything else is changed.
                self.before = None;
                return Turn::Bbr { loss: seen.loss };
            }
        }
        // With fewer than wanted the last ones are not open yet, or cannot be.
        if !self.free || limit.is_some() || !held_up || seen.streams < self.wanted {
            return Turn::Keep;
        }
        if let Some(why) = self.why_stop(&seen) {
            self.free = false;
            return Turn::Stop { streams: seen.streams, why };
        }
        self.before = Some(seen);
        self.wanted = (2 * seen.streams).min(MOST_STREAMS);
        Turn::Add { from: seen.streams, to: self.wanted, rate: seen.rate }
    }

    fn why_stop(&self, seen: &Seen) -> Option<Why> {
        if let Some(before) = &self.before {
            if seen.rate < WORTH * before.rate {
                let (rate, fewer) = (seen.rate, before.streams);
                return Some(Why::NotWorth { rate, before: before.rate, fewer });
            }
            if seen.loss >= OVERRUN.max(2.0 * before.loss) {
                return Some(Why::Overrun { loss: seen.loss, before: before.loss });
            }
        }
        if seen.cpu >= CPU_FULL {
            return Some(Why::Cpu);
        }
        (seen.streams >= MOST_STREAMS).then_some(Why::Enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(streams: u32, rate: f64) -> Seen {
        Seen { streams, rate, loss: 0.0, sending: 0.9, cpu: 0.3 }
    }

    /// Follows `course` over windows of a path on which so many connections bring `rate_of`, until
    /// it adds no more, and returns the number of connections in each.
    fn follow(mut course: Course, rate_of: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut streams = vec![course.wanted()];
        for _ in 0..20 {
            let now = *streams.last().unwrap();
            match course.decide(seen(now, rate_of(now)), None, "cubic") {
                Turn::Add { to, .. } => streams.push(to),
                Turn::Stop { .. } => return streams,
                turn => panic!("{turn:?}"),
            }
        }
        panic!("it never ends: {streams:?}")
    }

    #[test]
    fn connections_are_doubled_while_they_bring_a_tenth_more() {
        let course = || Course::new(None, false);
        assert_eq!(follow(course(), f64::from), [4, 8, 16], "each as much as the first");
        assert_eq!(follow(course(), |_| 1.0), [4, 8], "one would have been enough");
        assert_eq!(follow(course(), |n| f64::from(n.min(8))), [4, 8, 16], "the path is full");
    }

    #[test]
    fn a_number_that_was_asked_for_is_kept_to() {
        let mut course = Course::new(Some(3), false);
        for _ in 0..5 {
            assert_eq!(course.decide(seen(3, 1.0), None, "cubic"), Turn::Keep);
        }
        assert_eq!(course.wanted(), 3);
    }

    #[test]
    fn disk_processors_loss_and_the_users_limit_end_it() {
        let with = |change: fn(&mut Seen)| {
            let mut seen = seen(4, 1.0);
            change(&mut seen);
            seen
        };
        let first = |seen, limit| Course::new(None, true).decide(seen, limit, "cubic");
        assert_eq!(first(with(|seen| seen.sending = 0.3), None), Turn::Keep, "the disk is slow");
        assert_eq!(first(seen(4, 1.0), Some(Rate::from_bps(1))), Turn::Keep);
        assert_eq!(first(seen(3, 1.0), None), Turn::Keep, "the last is not open yet");
        let stop = |streams, why| Turn::Stop { streams, why };
        assert_eq!(first(with(|seen| seen.cpu = 0.99), None), stop(4, Why::Cpu));

        let mut course = Course::new(None, true);
        assert_eq!(
            course.decide(with(|seen| seen.loss = 1e-4), None, "cubic"),
            Turn::Add { from: 4, to: 8, rate: 1.0 }
        );
        let lossy = Seen { loss: 2e-3, ..seen(8, 1.5) };
        let why = Why::Overrun { loss: 2e-3, before: 1e-4 };
        assert_eq!(course.decide(lossy, None, "cubic"), stop(8, why), "faster, but it overruns");
        assert_eq!(course.decide(seen(8, 9.0), None, "cubic"), Turn::Keep, "it stays stopped");
    }

    #[test]
    fn loss_brings_bbr_once_and_only_where_it_is_not_there() {
        let lossy = |streams, rate| Seen { loss: 1e-4, ..seen(streams, rate) };
        let mut course = Course::new(None, false);
        assert_eq!(
            course.decide(seen(4, 1.0), None, "cubic"),
            Turn::Add { from: 4, to: 8, rate: 1.0 }
        );
        assert_eq!(course.decide(lossy(8, 1.0), None, "cubic"), Turn::Bbr { loss: 1e-4 });
        let next = course.decide(lossy(8, 1.0), None, "bbr");
        assert_eq!(
            next,
            Turn::Add { from: 8, to: 16, rate: 1.0 },
            "measured anew since the change"
        );

        let clean = Seen { loss: 2e-5, ..seen(4, 1.0) };
        let idle = Seen { sending: 0.2, ..lossy(4, 1.0) };
        for (seen, congestion, keeps) in
            [(clean, "cubic", false), (lossy(4, 1.0), "bbr", false), (lossy(4, 1.0), "lp", true)]
        {
            let turn = Course::new(None, keeps).decide(seen, None, congestion);
            assert_eq!(turn, Turn::Add { from: 4, to: 8, rate: 1.0 }, "{congestion}");
        }
        let turn = Course::new(None, false).decide(idle, None, "cubic");
        assert_eq!(turn, Turn::Keep, "what limits is the disk");
    }

    #[test]
    fn turns_are_told_in_words() {
        let add = Turn::Add { from: 4, to: 8, rate: 125e6 };
        assert_eq!(add.to_string(), "from 4 to 8 streams at 1.00 Gb/s");
        let why = Why::NotWorth { rate: 125e6, before: 250e6, fewer: 4 };
        let stop = Turn::Stop { streams: 8, why };
        assert_eq!(
            stop.to_string(),
            "8 streams: 1.00 Gb/s where 4 brought 2.00 Gb/s, no more added"
        );
    }
}
