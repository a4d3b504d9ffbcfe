//! The queue stage, before a link's rate: decides which segments are admitted and computes when
//! each has been sent.
//!
//! No packet waits in this stage. In a queue that is served in order, the sending time of a segment
//! depends only on earlier segments, so it is computed when the segment arrives.

use std::ops::Range;
use std::time::Duration;

use longhaul_core::plan::link::{Aqm, CrossTraffic, QueueLimit};
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::{Impairments, Segments};
use longhaul_core::units::Bytes;

use super::aqm::{Arriving, Management, Manager};
use super::backlog::{Backlog, Phase};
use super::batch::{Batch, Carrier};
use super::capacity::{Capacity, Progress, bytes_of, units_of};
use super::cross::Cross;
use super::random::{Purpose, Stream};
use super::{DropReason, LinkTime, PacketShape, Piece, Treatment};

/// A queue with its bottleneck.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    phase: Phase,
    /// The bytes that were accepted under earlier plans.
    earlier: Backlog,
    limit: QueueLimit,
    overhead: u32,
    mtu: u32,
    manager: Option<Manager>,
    cross: Option<Cross>,
    /// The parts of the plan that are compared with those of a new plan.
    plan: (Option<Aqm>, Option<CrossTraffic>),
    random: Stream,
    random_cross: Stream,
    /// The end of the last outage. The classes that share the queue report it in turn.
    emptied_at: LinkTime,
}

/// An arriving segment, with its bytes in the layer of the rate.
struct Arrival {
    now: LinkTime,
    bytes: u64,
    ecn_capable: bool,
    /// The random numbers of the queue management, and the index of this segment's number.
    random: (Stream, u64),
}

/// The outcome for one segment.
enum Fate {
    Sent { at: LinkTime, mark: bool },
    Full,
    Managed,
}

/// A super-packet whose transmission takes longer than this time leaves segment by segment; 64 KB
/// take this long at 1 Gb/s. A faster super-packet leaves in one piece when its last bit has been
/// sent.
const SMOOTH_BEYOND: Duration = Duration::from_micros(500);

impl Queue {
    /// Creates the empty queue of `plan` in the direction from `from` at `now`, if it has a rate.
    pub(super) fn new(plan: &LinkPlan, from: Side, now: LinkTime) -> Option<Self> {
        let direction = plan.from(from);
        let capacity = Capacity::of(direction).filter(|_| !direction.is_scheduled())?;
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let cross = direction.cross.map(|cross| {
            let packet = plan.mtu + direction.overhead_bytes;
            Cross::new(&cross, packet, stream(Purpose::CrossGap), stream(Purpose::CrossBurst), now)
        });
        Some(Queue {
            phase: Phase::starting(capacity, now),
            earlier: Backlog::default(),
            limit: plan.queue_limit(from)?,
            overhead: direction.overhead_bytes,
            mtu: plan.mtu,
            manager: direction.aqm.and_then(|aqm| Manager::new(aqm, now)),
            emptied_at: now,
            cross,
            plan: (direction.aqm, direction.cross),
            random: stream(Purpose::Pie),
            random_cross: stream(Purpose::PieCross),
        })
    }

    /// Makes this queue send after the bytes that earlier plans have accepted.
    pub(super) fn wait_for(&mut self, earlier: Backlog, now: LinkTime) {
        self.phase.restart(earlier.end().max(now));
        self.earlier = earlier;
    }

    /// Returns the bytes that wait at `now`, when the plan ends; its next outage would start at
    /// `cut_at`.
    pub(super) fn backlog(&self, now: LinkTime, cut_at: Option<LinkTime>) -> Backlog {
        let mut backlog = self.earlier.clone();
        backlog.push(self.phase.clone(), cut_at, now);
        backlog
    }

    /// Takes over the state of unchanged parts from the queue of a plan that ends at `now`.
    /// `same_outages` is true if both plans have the same outages, with none since the last offer.
    pub(super) fn follow(&mut self, before: Queue, same_outages: bool) {
        if same_outages && before.phase.capacity == self.phase.capacity {
            (self.phase, self.earlier) = (before.phase, before.earlier);
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

    /// Replaces the arriving pieces by the admitted pieces, with the times at which they have been
    /// sent.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        self.advance(batch.now, batch.carrier, batch.counts);
        if batch.carrier.is_down {
            return;
        }
        // The usual case: a packet without losses on a fast link.
        if let [piece] = batch.pieces.as_slice()
            && let Some(sent) = self.offer_together(batch, piece.segments.clone())
        {
            batch.pieces[0].at = sent;
        } else {
            batch.replace_pieces(|batch, piece| self.offer(batch, piece.segments));
        }
    }

    /// Discards the bytes lost in an outage, and adds the cross traffic that arrived until `now`.
    pub(super) fn advance(&mut self, now: LinkTime, carrier: Carrier, counts: &mut Impairments) {
        if let Some(up_at) = carrier.up_at.filter(|up_at| *up_at > self.emptied_at) {
            self.emptied_at = up_at;
            self.flush(up_at);
        }
        if !carrier.is_down {
            self.pass_cross_traffic(now, counts);
        }
    }

    /// Offers adjacent segments, and adds the admitted ones to `batch`.
    fn offer(&mut self, batch: &mut Batch, segments: Range<u32>) {
        if let Some(at) = self.offer_together(batch, segments.clone()) {
            batch.pieces.push(Piece { segments, at, treatment: Treatment::default() });
            return;
        }
        for segment in segments {
            let one = segment..segment + 1;
            let arriving = Arrival {
                now: batch.now,
                bytes: self.bytes(batch.packet, one.clone()),
                ecn_capable: batch.packet.ecn_capable,
                random: (self.random, batch.shared_index(segment)),
            };
            match self.pass(&arriving) {
                Fate::Full => batch.lose(DropReason::QueueFull, one),
                Fate::Managed => batch.lose(DropReason::Managed, one),
                Fate::Sent { at, mark } => {
                    if mark {
                        batch.counts.marked_ce += batch.packet.count_of(one);
                    }
                    append(batch.pieces, segment, at, mark);
                }
            }
        }
    }

    /// Admits adjacent segments together, if there is space for all and their transmission is
    /// short. Returns the time at which they have been sent.
    fn offer_together(&mut self, batch: &Batch, segments: Range<u32>) -> Option<LinkTime> {
        if self.manager.is_some() {
            return None;
        }
        let now = batch.now;
        let count = segments.end - segments.start;
        let is_single = count == 1;
        let bytes = self.bytes(batch.packet, segments.clone());
        let sent = self.sent(now, bytes);
        let time = sent.free_at.since(self.free_at().max(now));
        let fits = is_single && self.is_idle(now) || self.fits(now, (bytes, count), sent);
        // Part of the segments may have been sent before the link goes down.
        let is_short =
            time <= SMOOTH_BEYOND && batch.carrier.down_at.is_none_or(|down| sent.free_at < down);
        if !fits || !is_single && !is_short {
            return None;
        }
        match self.limit {
            // Each segment frees its place when it has been sent.
            QueueLimit::Segments(_) if count > 1 => self.accept_each(batch, segments),
            _ => self.phase.accept(now, sent, count),
        }
        Some(sent.free_at)
    }

    fn accept_each(&mut self, batch: &Batch, segments: Range<u32>) {
        for segment in segments {
            let bytes = self.bytes(batch.packet, segment..segment + 1);
            let sent = self.sent(batch.now, bytes);
            self.phase.accept(batch.now, sent, 1);
        }
    }

    fn pass_cross_traffic(&mut self, now: LinkTime, counts: &mut Impairments) {
        let Some(mut cross) = self.cross.take() else { return };
        // Older traffic does not affect a queue of bounded length.
        let memory = Duration::from_secs(1) + self.free_at().since(now);
        cross
            .skip_to(LinkTime::from_nanos(now.as_nanos().saturating_sub(memory.as_nanos() as u64)));
        while let Some((at, packets, burst)) = cross.next_until(now) {
            let bytes = u64::from(self.mtu + self.overhead);
            for packet in 0..packets {
                let random = (self.random_cross, burst.wrapping_mul(1 << 24) + packet);
                let ip = Segments { segments: 1, bytes: self.mtu.into() };
                match self.pass(&Arrival { now: at, bytes, ecn_capable: false, random }) {
                    Fate::Sent { .. } => counts.cross_sent += ip,
                    Fate::Full | Fate::Managed => counts.cross_dropped += ip,
                }
            }
        }
        self.cross = Some(cross);
    }

    /// Discards all waiting bytes, and cross traffic that arrived before `now`.
    fn flush(&mut self, now: LinkTime) {
        self.phase.restart(self.earlier.end().max(now));
        if let Some(cross) = &mut self.cross {
            cross.skip_to(now);
        }
    }

    /// Returns the bytes that wait at `now` or are being sent, in the layer of the rate, and the
    /// time until the last of them leaves the queue. The next outage starts at `cut_at`.
    pub(super) fn depth(&self, now: LinkTime, cut_at: Option<LinkTime>) -> (Bytes, Duration) {
        self.backlog(now, cut_at).depth(now)
    }

    fn pass(&mut self, arrival: &Arrival) -> Fate {
        let Arrival { now, bytes, .. } = *arrival;
        let sent = self.sent(now, bytes);
        if !self.is_idle(now) && !self.fits(now, (bytes, 1), sent) {
            return Fate::Full;
        }
        let managed = self.manage(arrival);
        if managed == Management::Drop {
            return Fate::Managed;
        }
        self.phase.accept(now, sent, 1);
        Fate::Sent { at: sent.free_at, mark: managed == Management::Mark }
    }

    fn manage(&mut self, arrival: &Arrival) -> Management {
        if self.manager.is_none() {
            return Management::Pass;
        }
        let Arrival { now, ecn_capable, random, .. } = *arrival;
        let packet = u64::from(self.mtu + self.overhead);
        let waiting = self.waiting(now);
        let arriving = Arriving {
            now,
            free_at: self.free_at(),
            packet_time: self.phase.capacity.time_for(packet, now),
            waiting_bytes: bytes_of(waiting),
            is_short: waiting < units_of(2 * packet),
            ecn_capable,
            random,
        };
        self.manager.as_mut().map_or(Management::Pass, |manager| manager.decide(&arriving))
    }

    /// Returns the progress after `bytes` more that arrive at `now`.
    fn sent(&self, now: LinkTime, bytes: u64) -> Progress {
        let Phase { capacity, progress, .. } = &self.phase;
        let from = if self.is_idle(now) { capacity.begin(now) } else { *progress };
        capacity.after(from, bytes)
    }

    /// Returns the amount that waits at `now` or is being sent, in fractions of a byte.
    fn waiting(&self, now: LinkTime) -> u128 {
        self.earlier.waiting(now) + self.phase.waiting(now)
    }

    /// Returns the time by which all accepted bytes have been sent.
    fn free_at(&self) -> LinkTime {
        self.phase.progress.free_at
    }

    fn is_idle(&self, now: LinkTime) -> bool {
        self.free_at() < now
            || self.free_at() == now && !matches!(self.phase.capacity, Capacity::Opportunities(_))
    }

    /// Returns whether the queue has space at `now` for some bytes and segments, after which its
    /// progress is `sent`. An idle link accepts a segment of any size; otherwise a short queue would block it
    /// forever.
    fn fits(&self, now: LinkTime, (bytes, segments): (u64, u32), sent: Progress) -> bool {
        match self.limit {
            QueueLimit::Time(limit) => sent.free_at.since(now) <= limit,
            QueueLimit::Bytes(limit) => {
                self.waiting(now) + units_of(bytes) <= units_of(limit.get())
            }
            QueueLimit::Segments(limit) => {
                let waiting = self.earlier.waiting_segments(now) + self.phase.waiting_segments(now);
                waiting + u64::from(segments) <= u64::from(limit)
            }
        }
    }

    fn bytes(&self, packet: &PacketShape, segments: Range<u32>) -> u64 {
        let count = u64::from(segments.end - segments.start);
        packet.bytes_of(segments) + count * u64::from(self.overhead)
    }
}

/// Adds a segment to the last piece if it leaves at the same time, otherwise as a new piece.
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
