//! The stages of a direction and their order.

use std::ops::Range;
use std::time::Duration;

use longhaul_core::plan::{LinkDirection, LinkPlan, Side};
use longhaul_core::result::Impairments;
use longhaul_core::units::Bytes;

use super::accidents::{Accidents, join};
use super::backlog::Backlog;
use super::delay::Delay;
use super::loss::Losses;
use super::model::segments_of;
use super::outages::Outages;
use super::queue::{Offered, Queue};
use super::random::{Purpose, Stream};
use super::reorder::Reordering;
use super::{LinkTime, PacketShape, Piece, Treatment};

/// The stages that segments of a direction pass, in this order: outage, loss, queue and rate, marks
/// and damage, delay and jitter, reordering. docs/design/emulator-time.md gives the reasons.
#[derive(Debug, Clone)]
pub(super) struct Stages {
    plan: LinkDirection,
    outages: Option<Outages>,
    losses: Option<Losses>,
    queue: Option<Queue>,
    accidents: Option<Accidents>,
    delay: Delay,
    reordering: Option<Reordering>,
    /// True if an outage had begun when the plan ended.
    is_down: bool,
    /// The pieces of the packet in progress.
    pieces: Vec<Piece>,
}

impl Stages {
    /// Creates the stages of `plan` for the direction from `from`, starting at `now` with segment
    /// `number`.
    pub(super) fn new(plan: &LinkPlan, from: Side, now: LinkTime, number: u64) -> Self {
        let direction = plan.from(from);
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let losses = direction.loss.as_ref().and_then(|loss| {
            Losses::new(loss, stream(Purpose::LossGap), stream(Purpose::LossBurst), number)
        });
        let reorder = direction.reorder.filter(|reorder| !reorder.rate.is_zero());
        Stages {
            outages: Outages::new(&direction.outages, now),
            losses,
            queue: Queue::new(plan, from, now),
            accidents: Accidents::new(plan, from, number),
            delay: Delay::new(plan, from),
            reordering: reorder
                .map(|reorder| Reordering::new(&reorder, stream(Purpose::Reorder), number)),
            plan: direction.clone(),
            is_down: false,
            pieces: Vec::new(),
        }
    }

    /// Takes over from the stages of the plan that ends at `now`. Stages whose plan is unchanged
    /// keep their state.
    pub(super) fn follow(&mut self, before: Stages) {
        if self.plan.loss == before.plan.loss {
            self.losses = before.losses;
        }
        let accidents = |plan: &LinkDirection| {
            [plan.mark_ce, plan.corrupt, plan.corrupt_silent, plan.duplicate]
        };
        if accidents(&self.plan) == accidents(&before.plan) {
            self.accidents = before.accidents;
        }
        if self.plan.reorder == before.plan.reorder {
            self.reordering = before.reordering;
        }
        let same_outages = self.plan.outages == before.plan.outages && !before.is_down;
        if let (Some(queue), Some(before)) = (&mut self.queue, before.queue) {
            queue.follow(before, same_outages);
        }
    }

    /// Sends after the bytes that earlier plans have accepted.
    pub(super) fn wait_for(&mut self, earlier: Backlog, now: LinkTime) {
        if let Some(queue) = &mut self.queue {
            queue.wait_for(earlier, now);
        }
    }

    /// Ends the plan at `now`. Returns the bytes that wait, if there is a queue.
    pub(super) fn end(&mut self, now: LinkTime, counts: &mut Impairments) -> Option<Backlog> {
        self.is_down = self.is_cut(now, counts);
        let cut_at = self.outages.as_ref().and_then(Outages::next_start);
        self.queue.as_ref().map(|queue| queue.backlog(now, cut_at))
    }

    /// Returns the delay if the only stage is a delay that is the same for all segments.
    pub(super) fn only_delay(&self) -> Option<Duration> {
        let idle = self.outages.is_none()
            && self.losses.is_none()
            && self.queue.is_none()
            && self.accidents.is_none()
            && self.reordering.is_none();
        if idle { self.delay.constant() } else { None }
    }

    /// Does [`super::LinkModel::offer`] for a packet whose first segment has number `first`.
    pub(super) fn offer(
        &mut self,
        now: LinkTime,
        packet: &PacketShape,
        first: u64,
        last: &mut LinkTime,
        pieces: &mut Vec<Piece>,
        counts: &mut Impairments,
    ) {
        if self.is_cut(now, counts) {
            counts.outage += segments_of(packet, 0..packet.segments());
            return;
        }
        self.pieces.clear();
        self.send_survivors(now, packet, first, counts);
        self.cut_waiting(packet, counts);
        if let Some(accidents) = &mut self.accidents {
            accidents.apply(packet, first, &mut self.pieces, counts);
        }
        self.delay.apply(packet, first, last, &mut self.pieces, counts);
        if let Some(reordering) = &mut self.reordering {
            reordering.apply(packet, first, &mut self.pieces, counts);
        }
        if self.pieces.len() > 1 {
            join(&mut self.pieces);
        }
        pieces.append(&mut self.pieces);
    }

    /// Returns the bytes that wait for the rate at `now`, and the time until the last of them
    /// leaves the queue; `None` without a rate.
    pub(super) fn depth(&self, now: LinkTime) -> Option<(Bytes, Duration)> {
        let cut_at = self.outages.as_ref().and_then(Outages::next_start);
        self.queue.as_ref().map(|queue| queue.depth(now, cut_at))
    }

    /// Returns whether the link is down at `now`, and advances the queue to that time.
    fn is_cut(&mut self, now: LinkTime, counts: &mut Impairments) -> bool {
        if let Some(outages) = &mut self.outages {
            let down = outages.is_down(now);
            if let (Some(end), Some(queue)) = (outages.take_ended(), &mut self.queue) {
                queue.flush(end);
            }
            if down {
                return true;
            }
        }
        if let Some(queue) = &mut self.queue {
            queue.catch_up(now, counts);
        }
        false
    }

    /// Passes the segments that are not lost to the queue, in runs of adjacent segments.
    fn send_survivors(
        &mut self,
        now: LinkTime,
        packet: &PacketShape,
        first: u64,
        counts: &mut Impairments,
    ) {
        let numbers = first..first + u64::from(packet.segments());
        let mut from = numbers.start;
        while from < numbers.end {
            let rest = from..numbers.end;
            let lost = self.losses.as_mut().and_then(|losses| losses.first_in(&rest));
            let lost = lost.unwrap_or(numbers.end..numbers.end);
            let segments = |run: Range<u64>| (run.start - first) as u32..(run.end - first) as u32;
            if from < lost.start {
                self.send(now, packet, segments(from..lost.start), first, counts);
            }
            counts.lost += segments_of(packet, segments(lost.clone()));
            from = lost.end;
        }
    }

    fn send(
        &mut self,
        now: LinkTime,
        packet: &PacketShape,
        segments: Range<u32>,
        first: u64,
        counts: &mut Impairments,
    ) {
        let cut_at = self.outages.as_ref().and_then(Outages::next_start);
        match &mut self.queue {
            Some(queue) => {
                let offered = Offered { now, packet, first, cut_at };
                queue.offer(&offered, segments, &mut self.pieces, counts);
            }
            None => {
                let treatment = Treatment::default();
                self.pieces.push(Piece { segments, at: now, treatment });
            }
        }
    }

    /// Drops the segments that would be sent after the link has gone down; they are still queued
    /// then.
    fn cut_waiting(&mut self, packet: &PacketShape, counts: &mut Impairments) {
        let Some(outages) = &self.outages else { return };
        self.pieces.retain(|piece| {
            let cut = outages.begins_by(piece.at);
            if cut {
                counts.outage += segments_of(packet, piece.segments.clone());
            }
            !cut
        });
    }
}
