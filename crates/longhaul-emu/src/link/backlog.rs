//! The bytes that wait for a bottleneck, also if its capacity changes while they wait.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::units::Bytes;

use super::LinkTime;
use super::capacity::{Capacity, Progress, bytes_of};

/// The bytes that a bottleneck accepted at one capacity, sent in order from a start time on.
#[derive(Debug, Clone)]
pub(super) struct Phase {
    pub(super) capacity: Capacity,
    pub(super) progress: Progress,
    /// The time from which on the bottleneck sends at this capacity.
    start: LinkTime,
    accepted: Accepted,
}

/// The segments that a bottleneck accepted and has not sent.
#[derive(Debug, Clone, Default)]
struct Accepted {
    /// Times at which segments have been sent, each with the number of segments accepted until
    /// then.
    sent: VecDeque<(LinkTime, u64)>,
    /// The number of segments that have been removed from `sent`.
    before: u64,
}

impl Accepted {
    fn add(&mut self, now: LinkTime, at: LinkTime, segments: u32) {
        while let Some((_, count)) = self.sent.pop_front_if(|(at, _)| *at <= now) {
            self.before = count;
        }
        let count = self.sent.back().map_or(self.before, |(_, count)| *count);
        self.sent.push_back((at, count + u64::from(segments)));
    }

    fn waiting(&self, now: LinkTime) -> u64 {
        let gone = self.sent.partition_point(|(at, _)| *at <= now);
        let count = |index: usize| self.sent.get(index).map_or(self.before, |(_, count)| *count);
        let last = self.sent.len().checked_sub(1).map_or(self.before, count);
        last - gone.checked_sub(1).map_or(self.before, count)
    }
}

impl Phase {
    /// Creates a phase that has accepted no bytes and sends from `start` on.
    pub(super) fn starting(capacity: Capacity, start: LinkTime) -> Self {
        let accepted = Accepted::default();
        Phase { progress: capacity.begin(start), capacity, start, accepted }
    }

    /// Accepts segments at `now`, after which the progress is `sent`.
    pub(super) fn accept(&mut self, now: LinkTime, sent: Progress, segments: u32) {
        self.progress = sent;
        self.accepted.add(now, sent.free_at, segments);
    }

    /// Returns the number of segments that wait at `now` or are being sent.
    pub(super) fn waiting_segments(&self, now: LinkTime) -> u64 {
        self.accepted.waiting(now)
    }

    /// Returns the amount that waits at `now` or is being sent, in fractions of a byte.
    pub(super) fn waiting(&self, now: LinkTime) -> u128 {
        if now < self.start {
            self.capacity.accepted(self.progress, self.start)
        } else {
            self.capacity.waiting(self.progress, now)
        }
    }

    /// Discards all accepted bytes, and sends from `start` on.
    pub(super) fn restart(&mut self, start: LinkTime) {
        *self = Phase::starting(self.capacity.clone(), start);
    }
}

/// The phases of earlier plans whose bytes have not all been sent. Their segments keep their times,
/// so the segments of the next plan are sent after them.
#[derive(Debug, Clone, Default)]
pub(super) struct Backlog {
    phases: Vec<Ending>,
}

/// A phase that accepts no more bytes.
#[derive(Debug, Clone)]
struct Ending {
    phase: Phase,
    /// The time at which its last byte has been sent, or at which an outage discards the rest.
    end: LinkTime,
}

impl Backlog {
    /// Adds a phase that ends at `now`, and whose waiting bytes an outage discards at `cut_at`.
    pub(super) fn push(&mut self, phase: Phase, cut_at: Option<LinkTime>, now: LinkTime) {
        let sent = phase.progress.free_at;
        let end = cut_at.map_or(sent, |cut| sent.min(cut));
        if phase.waiting(now) > 0 {
            self.phases.push(Ending { phase, end });
        }
        self.forget(now);
    }

    /// Removes the phases that have ended by `now`.
    pub(super) fn forget(&mut self, now: LinkTime) {
        self.phases.retain(|ending| ending.end > now);
    }

    /// Returns the time at which the last phase ends; the origin if there are none.
    pub(super) fn end(&self) -> LinkTime {
        // An outage can end a phase before the phase that precedes it.
        self.phases.iter().map(|ending| ending.end).max().unwrap_or_default()
    }

    /// Returns the bytes that wait at `now` or are being sent, as the rate counts them, and the
    /// time until the last of them leaves the queue.
    pub(super) fn depth(&self, now: LinkTime) -> (Bytes, Duration) {
        (Bytes::new(bytes_of(self.waiting(now))), self.end().since(now))
    }

    /// Returns the amount that waits at `now`, in fractions of a byte.
    pub(super) fn waiting(&self, now: LinkTime) -> u128 {
        let waits = |ending: &&Ending| ending.end > now;
        self.phases.iter().filter(waits).map(|ending| ending.phase.waiting(now)).sum()
    }

    /// Returns the number of segments that wait at `now`.
    pub(super) fn waiting_segments(&self, now: LinkTime) -> u64 {
        let waits = |ending: &&Ending| ending.end > now;
        self.phases.iter().filter(waits).map(|ending| ending.phase.waiting_segments(now)).sum()
    }
}
