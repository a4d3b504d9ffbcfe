//! The stages of times in which the link delivers nothing: outages, and the gaps between slots.

use std::time::Duration;

use longhaul_core::plan::link::{Outage, Slots};
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::units::Bytes;

use super::batch::{Batch, Carrier};
use super::random::{Purpose, Stream};
use super::{DropReason, LinkTime, Piece};

/// The times at which the link is down.
#[derive(Debug, Clone)]
pub(super) struct Outages {
    plan: Vec<Outage>,
    /// The first outage that ends after the last time queried.
    next: Option<(LinkTime, LinkTime)>,
    /// The end of an outage that ended since the previous call of [`Outages::carrier`].
    ended: Option<LinkTime>,
}

impl Outages {
    /// Creates the outages of `plan` from `now` on; `None` if the plan has none.
    pub(super) fn new(plan: &[Outage], now: LinkTime) -> Option<Self> {
        let mut outages = Outages { plan: plan.to_vec(), next: None, ended: None };
        outages.next = outages.first_after(now);
        (!plan.is_empty()).then_some(outages)
    }

    /// Drops the whole packet if the link is down, and records the changes of the link's state.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        batch.carrier = self.carrier(batch.now);
        if batch.carrier.is_down {
            batch.pieces.clear();
            batch.lose(DropReason::Outage, 0..batch.segment(batch.numbers.end));
        }
    }

    /// Drops the segments that would be sent after the link has gone down: they are still queued
    /// then.
    pub(super) fn cut_waiting(&self, batch: &mut Batch) {
        // The pieces leave in order.
        while let Some(piece) = batch.pieces.pop_if(|piece| self.begins_by(piece.at)) {
            batch.lose(DropReason::Outage, piece.segments);
        }
    }

    /// Returns the state of the interface at `now`, and the changes since the previous call.
    pub(super) fn carrier(&mut self, now: LinkTime) -> Carrier {
        let is_down = self.is_down(now);
        Carrier { is_down, up_at: self.ended.take(), down_at: self.next_start() }
    }

    /// Returns whether the link is down at `now`. Successive times must not decrease.
    fn is_down(&mut self, now: LinkTime) -> bool {
        while let Some((_, end)) = self.next.filter(|(_, end)| *end <= now) {
            self.ended = Some(end);
            self.next = self.first_after(now);
        }
        self.begins_by(now)
    }

    /// Returns whether the link goes down by `time`, which must not precede the last `now`.
    fn begins_by(&self, time: LinkTime) -> bool {
        self.next_start().is_some_and(|start| start <= time)
    }

    /// Returns the start of the current or next outage.
    pub(super) fn next_start(&self) -> Option<LinkTime> {
        self.next.map(|(start, _)| start)
    }

    fn first_after(&self, now: LinkTime) -> Option<(LinkTime, LinkTime)> {
        let since_start = now.since(LinkTime::default());
        let at = |span: Duration| LinkTime::default() + span;
        self.plan
            .iter()
            .filter_map(|outage| outage.next_after(since_start))
            .min()
            .map(|(start, end)| (at(start), at(end)))
    }
}

/// The slots of a direction. Segments use them in the order of arrival.
#[derive(Debug, Clone)]
pub(super) struct SlotGate {
    plan: Slots,
    stream: Stream,
    /// The number of the current slot, which selects the random time until the next one.
    number: u64,
    opens_at: LinkTime,
    /// The segments and bytes in the current slot.
    segments: u32,
    bytes: u64,
}

/// The number of slots of the longest interval after which an idle gate skips slots instead of
/// drawing each.
const SKIP_BEYOND: u32 = 100;

impl SlotGate {
    /// Creates the slots of `plan` in the direction from `from`, the first of which opens at `now`.
    pub(super) fn new(plan: &LinkPlan, from: Side, now: LinkTime) -> Option<Self> {
        let slots = plan.from(from).slots?;
        let stream = Stream::new(plan.seed.unwrap_or(0), from, Purpose::Slot);
        Some(SlotGate { plan: slots, stream, number: 0, opens_at: now, segments: 0, bytes: 0 })
    }

    /// Continues the slot numbers of `before`, which had another plan, so that no random number is
    /// used twice and no segment leaves before an earlier one.
    pub(super) fn continue_from(&mut self, before: &SlotGate) {
        self.number = before.number + 1;
        self.opens_at = self.opens_at.max(before.opens_at);
    }

    /// Returns the start of the current slot, before which no later segment leaves.
    pub(super) fn opens_at(&self) -> LinkTime {
        self.opens_at
    }

    /// Moves the departure of every segment to a slot.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        batch.replace_pieces(|batch, piece| {
            for segment in piece.segments.clone() {
                let one = segment..segment + 1;
                let at = self.place(piece.at, batch.packet.bytes_of(one.clone()));
                batch.pieces.push(Piece { segments: one, at, ..piece.clone() });
            }
        });
    }

    /// Returns the slot of a segment of `bytes` that is due at `due`.
    fn place(&mut self, due: LinkTime, bytes: u64) -> LinkTime {
        if due.since(self.opens_at) > self.plan.most * SKIP_BEYOND {
            self.skip_to(due);
        }
        while self.opens_at < due || !self.has_space(bytes) {
            self.open_next();
        }
        self.segments += 1;
        self.bytes += bytes;
        self.opens_at
    }

    fn has_space(&self, bytes: u64) -> bool {
        let is_empty = self.segments == 0;
        let segments = self.plan.segments.is_none_or(|most| self.segments < most);
        let fits = |most: Bytes| self.bytes + bytes <= most.get();
        segments && (is_empty || self.plan.bytes.is_none_or(fits))
    }

    fn open_next(&mut self) {
        self.number += 1;
        let range = self.plan.most - self.plan.least;
        let more =
            if range.is_zero() { range } else { range.mul_f64(self.stream.unit(self.number)) };
        self.opens_at = self.opens_at + self.plan.least + more;
        (self.segments, self.bytes) = (0, 0);
    }

    /// Skips the unused slots before `due`. Slots at a fixed interval keep their phase.
    fn skip_to(&mut self, due: LinkTime) {
        let interval = self.plan.most.as_nanos() as u64;
        let passed = due.since(self.opens_at).as_nanos() as u64 / interval;
        self.opens_at = LinkTime::from_nanos(self.opens_at.as_nanos() + passed * interval);
        (self.segments, self.bytes) = (0, 0);
    }
}
