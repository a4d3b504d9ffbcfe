//! The queue before a link's rate: decides which segments are admitted and when each has been sent.
//!
//! No packet waits here. In a queue that is served in order, the sending time of a segment depends
//! only on earlier segments, so it is computed when the segment arrives.

use std::ops::Range;
use std::time::Duration;

use longhaul_core::plan::link::{Aqm, QueueLimit};
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::Impairments;
use longhaul_core::units::Bytes;

use super::capacity::{Capacity, Progress, bytes_of, units_of};
use super::codel::Codel;
use super::cross::Cross;
use super::model::segments_of;
use super::pie::Pie;
use super::random::{Purpose, Stream};
use super::{LinkTime, PacketShape, Piece, Treatment};

/// A queue with its bottleneck.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    capacity: Capacity,
    progress: Progress,
    limit: QueueLimit,
    overhead: u32,
    mtu: u32,
    manager: Option<Manager>,
    cross: Option<Cross>,
    /// The parts of the plan that are compared with those of a new plan.
    plan: (Option<Aqm>, Option<longhaul_core::plan::link::CrossTraffic>),
    random: Stream,
    random_cross: Stream,
}

/// Segments that arrive at a queue.
pub(super) struct Offered<'a> {
    /// The time of arrival.
    pub(super) now: LinkTime,
    pub(super) packet: &'a PacketShape,
    /// The number of the packet's first segment.
    pub(super) first: u64,
    /// The time at which the link goes down next.
    pub(super) cut_at: Option<LinkTime>,
}

/// The decision of the queue management on a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Management {
    Pass,
    Mark,
    Drop,
}

#[derive(Debug, Clone)]
enum Manager {
    Codel { codel: Codel, target: Duration },
    Pie(Pie),
}

/// The outcome for one segment.
enum Fate {
    Sent { at: LinkTime, mark: bool },
    Full,
    Managed,
}

/// A super-packet that takes longer to send leaves segment by segment; 64 KB take as long at 1
/// Gb/s. A faster one leaves in one piece when its last bit has been sent.
const SMOOTH_BEYOND: Duration = Duration::from_micros(500);

impl Queue {
    /// Creates the empty queue of `plan` in the direction from `from` at `now`, if it has a rate.
    pub(super) fn new(plan: &LinkPlan, from: Side, now: LinkTime) -> Option<Self> {
        let direction = plan.from(from);
        let capacity = Capacity::of(direction)?;
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let progress = capacity.begin(now);
        let mut queue = Queue {
            capacity,
            progress,
            limit: plan.queue_limit(from)?,
            overhead: direction.overhead_bytes,
            mtu: plan.mtu,
            manager: None,
            cross: None,
            plan: (direction.aqm, direction.cross),
            random: stream(Purpose::Pie),
            random_cross: stream(Purpose::PieCross),
        };
        queue.manager = direction.aqm.map(|aqm| match aqm {
            Aqm::Codel { target, interval } => {
                Manager::Codel { codel: Codel::new(interval), target }
            }
            Aqm::Pie { target } => Manager::Pie(Pie::new(target, now)),
        });
        queue.cross = direction.cross.map(|cross| {
            let packet = queue.mtu + queue.overhead;
            Cross::new(&cross, packet, stream(Purpose::CrossGap), stream(Purpose::CrossBurst), now)
        });
        Some(queue)
    }

    /// Takes over from the queue of a plan that ends at `now`: bytes that the old queue has
    /// accepted are sent first, and unchanged parts keep their state.
    pub(super) fn follow(&mut self, before: Queue, now: LinkTime) {
        if before.capacity == self.capacity {
            self.progress = before.progress;
        } else {
            self.progress = self.capacity.begin(before.progress.free_at.max(now));
        }
        if self.plan.0 == before.plan.0 {
            self.manager = before.manager;
        }
        let same_packets = (self.mtu, self.overhead) == (before.mtu, before.overhead);
        match (&mut self.cross, before.cross) {
            (Some(cross), Some(old)) if self.plan.1 == before.plan.1 && same_packets => {
                *cross = old;
            }
            (Some(cross), Some(old)) => cross.continue_from(&old),
            _ => {}
        }
    }

    /// Offers adjacent segments of a packet. Appends the admitted ones as pieces with the times at
    /// which they have been sent.
    pub(super) fn offer(
        &mut self,
        offered: &Offered,
        segments: Range<u32>,
        pieces: &mut Vec<Piece>,
        counts: &mut Impairments,
    ) {
        let Offered { now, packet, first, cut_at } = *offered;
        let count = segments.end - segments.start;
        if self.manager.is_none() {
            let bytes = self.bytes(packet, segments.clone());
            let sent = self.sent(now, bytes);
            let time = sent.free_at.since(self.progress.free_at.max(now));
            let fits = count == 1 && self.is_idle(now) || self.fits(now, bytes, sent);
            // Part of the segments may have been sent before the link goes down.
            let together = time <= SMOOTH_BEYOND && cut_at.is_none_or(|cut| sent.free_at < cut);
            if fits && (count == 1 || together) {
                self.progress = sent;
                pieces.push(Piece { segments, at: sent.free_at, treatment: Treatment::default() });
                return;
            }
        }
        for segment in segments {
            let one = segment..segment + 1;
            let bytes = self.bytes(packet, one.clone());
            let random = (self.random, first + u64::from(segment));
            match self.pass(now, bytes, packet.ecn_capable, random) {
                Fate::Full => counts.queue_full += segments_of(packet, one),
                Fate::Managed => counts.aqm_dropped += segments_of(packet, one),
                Fate::Sent { at, mark } => {
                    if mark {
                        counts.marked_ce += segments_of(packet, one);
                    }
                    append(pieces, segment, at, mark);
                }
            }
        }
    }

    /// Passes the cross traffic that arrived until `now`.
    pub(super) fn catch_up(&mut self, now: LinkTime, counts: &mut Impairments) {
        let Some(mut cross) = self.cross.take() else { return };
        // A queue of bounded length is not affected by older traffic.
        let memory = Duration::from_secs(1) + self.progress.free_at.since(now);
        cross
            .skip_to(LinkTime::from_nanos(now.as_nanos().saturating_sub(memory.as_nanos() as u64)));
        while let Some((at, packets, burst)) = cross.next_until(now) {
            let bytes = u64::from(self.mtu + self.overhead);
            for packet in 0..packets {
                let random = (self.random_cross, burst.wrapping_mul(1 << 24) + packet);
                let ip = longhaul_core::result::Segments { segments: 1, bytes: self.mtu.into() };
                match self.pass(at, bytes, false, random) {
                    Fate::Sent { .. } => counts.cross_sent += ip,
                    Fate::Full | Fate::Managed => counts.cross_dropped += ip,
                }
            }
        }
        self.cross = Some(cross);
    }

    /// Discards everything that waits, and cross traffic that arrived before `now`.
    pub(super) fn flush(&mut self, now: LinkTime) {
        self.progress = self.capacity.begin(now);
        if let Some(cross) = &mut self.cross {
            cross.skip_to(now);
        }
    }

    /// Returns the bytes that wait at `now` or are being sent, as the rate counts them, and the
    /// time until they have been sent.
    pub(super) fn depth(&self, now: LinkTime) -> (Bytes, Duration) {
        let waiting = bytes_of(self.capacity.waiting(self.progress, now));
        (Bytes::new(waiting), self.progress.free_at.since(now))
    }

    fn pass(
        &mut self,
        now: LinkTime,
        bytes: u64,
        ecn_capable: bool,
        (random, index): (Stream, u64),
    ) -> Fate {
        let sent = self.sent(now, bytes);
        if !self.is_idle(now) && !self.fits(now, bytes, sent) {
            return Fate::Full;
        }
        let managed = self.manage(now, ecn_capable, random, index);
        if managed == Management::Drop {
            return Fate::Managed;
        }
        self.progress = sent;
        Fate::Sent { at: sent.free_at, mark: managed == Management::Mark }
    }

    fn manage(
        &mut self,
        now: LinkTime,
        ecn_capable: bool,
        random: Stream,
        index: u64,
    ) -> Management {
        let Some(manager) = &mut self.manager else { return Management::Pass };
        let packet = self.capacity.time_for(u64::from(self.mtu + self.overhead), now);
        let head = self.progress.free_at.max(now);
        let wait = head.since(now);
        match manager {
            Manager::Codel { codel, target } => {
                codel.decide(head, wait, (*target).max(packet), ecn_capable)
            }
            Manager::Pie(pie) => {
                let random = || random.unit(index);
                pie.decide(now, self.progress.free_at, wait < packet * 2, ecn_capable, random)
            }
        }
    }

    /// Returns the progress with `bytes` more that arrive at `now`.
    fn sent(&self, now: LinkTime, bytes: u64) -> Progress {
        let from = if self.is_idle(now) { self.capacity.begin(now) } else { self.progress };
        self.capacity.after(from, bytes)
    }

    fn is_idle(&self, now: LinkTime) -> bool {
        self.progress.free_at < now
            || self.progress.free_at == now && !matches!(self.capacity, Capacity::Opportunities(_))
    }

    /// Returns whether the queue has room at `now` for `bytes`, after which its progress is `sent`.
    /// A segment that finds the link idle is accepted whatever its size; otherwise a short queue
    /// would block it forever.
    fn fits(&self, now: LinkTime, bytes: u64, sent: Progress) -> bool {
        match self.limit {
            QueueLimit::Time(limit) => sent.free_at.since(now) <= limit,
            QueueLimit::Bytes(limit) => {
                let waiting = self.capacity.waiting(self.progress, now);
                waiting + units_of(bytes) <= units_of(limit.get())
            }
        }
    }

    fn bytes(&self, packet: &PacketShape, segments: Range<u32>) -> u64 {
        let count = u64::from(segments.end - segments.start);
        packet.bytes_of(segments) + count * u64::from(self.overhead)
    }
}

/// Adds a segment to the last piece if it leaves at the same time, or as a new piece.
fn append(pieces: &mut Vec<Piece>, segment: u32, at: LinkTime, mark_ce: bool) {
    match pieces.last_mut() {
        Some(last)
            if last.segments.end == segment
                && last.at == at
                && last.treatment.mark_ce == mark_ce =>
        {
            last.segments.end += 1;
        }
        _ => pieces.push(Piece {
            segments: segment..segment + 1,
            at,
            treatment: Treatment { mark_ce, ..Treatment::default() },
        }),
    }
}
