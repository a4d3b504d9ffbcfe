//! The stages of a direction and their order.

use std::time::Duration;

use longhaul_core::plan::{LinkDirection, LinkPlan, Side};
use longhaul_core::result::Impairments;
use longhaul_core::units::Bytes;

use super::LinkTime;
use super::backlog::Backlog;
use super::batch::{Batch, Carrier};
use super::damage::{BitErrors, DamageStage};
use super::delay::Delay;
use super::loss::{Losses, ReplayedLoss};
use super::policer::TokenBucket;
use super::queue::Queue;
use super::random::{Purpose, Stream};
use super::reorder::Reordering;
use super::scheduler::{DequeuedSegment, Scheduler};
use super::slots::{Outages, SlotGate};

/// The stages of a direction except the delay. Segments pass them in this order: outage, loss,
/// policer, queue and rate, bit errors, marks and damage, (delay and jitter), slots, reordering. docs/design/emulator-time.md
/// gives the reasons.
#[derive(Debug, Clone)]
pub(super) struct Stages {
    plan: LinkDirection,
    outages: Option<Outages>,
    losses: Option<Losses>,
    replayed: Option<ReplayedLoss>,
    policer: Option<TokenBucket>,
    queue: Option<Queue>,
    scheduler: Option<Scheduler>,
    bit_errors: Option<BitErrors>,
    damage: Option<DamageStage>,
    slots: Option<SlotGate>,
    reordering: Option<Reordering>,
    /// The state of the interface when the plan ended.
    carrier: Carrier,
}

impl Stages {
    /// Creates the stages of `plan` for the direction from `from`, starting at `now` with segment
    /// `number`; behind the queue, `left` is the number of the next segment.
    pub(super) fn new(
        plan: &LinkPlan,
        from: Side,
        now: LinkTime,
        [number, left]: [u64; 2],
    ) -> Self {
        let direction = plan.from(from);
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let losses = direction.loss.as_ref().and_then(|loss| Losses::new(loss, stream, number));
        let reorder = direction.reorder.filter(|reorder| !reorder.rate.is_zero());
        Stages {
            outages: Outages::new(&direction.outages, now),
            losses,
            replayed: ReplayedLoss::new(plan, from),
            policer: TokenBucket::new(direction, now),
            queue: Queue::new(plan, from, now),
            scheduler: Scheduler::new(plan, from, now),
            bit_errors: BitErrors::new(plan, from, left),
            damage: DamageStage::new(plan, from, left),
            slots: SlotGate::new(plan, from, now),
            reordering: reorder
                .map(|reorder| Reordering::new(&reorder, stream(Purpose::Reorder), left)),
            plan: direction.clone(),
            carrier: Carrier::default(),
        }
    }

    /// Returns whether no stage changes anything.
    pub(super) fn is_empty(&self) -> bool {
        self.outages.is_none()
            && self.losses.is_none()
            && self.replayed.is_none()
            && self.policer.is_none()
            && self.queue.is_none()
            && self.scheduler.is_none()
            && self.bit_errors.is_none()
            && self.damage.is_none()
            && self.slots.is_none()
            && self.reordering.is_none()
    }

    /// Passes a packet through all stages. The stage `delay` is the last but two.
    pub(super) fn apply(&mut self, batch: &mut Batch, delay: &mut Delay) {
        self.enter(batch);
        self.wait(batch);
        self.cut_waiting(batch);
        self.leave(batch, delay);
    }

    /// Passes a packet of a class through the stages of the class, and between them through the
    /// queue of `shared`.
    pub(super) fn apply_sharing(
        &mut self,
        shared: Option<&mut Stages>,
        batch: &mut Batch,
        delay: &mut Delay,
    ) {
        self.enter(batch);
        if let Some(shared) = shared {
            shared.wait(batch);
        }
        self.cut_waiting(batch);
        self.leave(batch, delay);
    }

    /// Passes a packet through the stages before the queue.
    fn enter(&mut self, batch: &mut Batch) {
        if let Some(outages) = &mut self.outages {
            outages.apply(batch);
        }
        if let Some(losses) = self.losses.as_mut().filter(|_| !batch.carrier.is_down) {
            losses.apply(batch);
        }
        if let Some(replayed) = self.replayed.as_ref().filter(|_| !batch.carrier.is_down) {
            replayed.apply(batch);
        }
        if let Some(policer) = self.policer.as_mut().filter(|_| !batch.carrier.is_down) {
            policer.apply(batch);
        }
    }

    /// Passes a packet through the queue.
    pub(super) fn wait(&mut self, batch: &mut Batch) {
        if let Some(queue) = &mut self.queue {
            queue.apply(batch);
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.apply(batch);
        }
    }

    /// Drops the segments that wait when the link goes down.
    fn cut_waiting(&mut self, batch: &mut Batch) {
        if let Some(outages) = self.outages.as_ref().filter(|_| !batch.is_parked()) {
            outages.cut_waiting(batch);
        }
    }

    /// Passes segments that have been sent through the stages behind the queue.
    pub(super) fn leave(&mut self, batch: &mut Batch, delay: &mut Delay) {
        if batch.pieces.is_empty() || batch.is_parked() {
            return;
        }
        if let Some(bit_errors) = &mut self.bit_errors {
            bit_errors.apply(batch);
        }
        if let Some(damage) = &mut self.damage {
            damage.apply(batch);
        }
        delay.apply(batch);
        if let Some(slots) = &mut self.slots {
            slots.apply(batch);
        }
        if let Some(reordering) = &mut self.reordering {
            reordering.apply(batch);
        }
        batch.join();
    }

    /// Ends the plan at `now`. Returns the bytes that wait, if there is a queue.
    pub(super) fn end(&mut self, now: LinkTime, counts: &mut Impairments) -> Option<Backlog> {
        if let Some(outages) = &mut self.outages {
            self.carrier = outages.carrier(now);
        }
        if let Some(scheduler) = &mut self.scheduler {
            let cut_at = self.outages.as_ref().and_then(Outages::next_start);
            return Some(scheduler.end(now, cut_at));
        }
        let queue = self.queue.as_mut()?;
        queue.advance(now, self.carrier, counts);
        Some(queue.backlog(now, self.carrier.down_at))
    }

    /// Takes over the state of unchanged stages from stages that have ended.
    pub(super) fn follow(&mut self, before: Stages) {
        if self.plan.loss == before.plan.loss {
            self.losses = before.losses;
        }
        let same_layer = self.plan.overhead_bytes == before.plan.overhead_bytes;
        if self.plan.police == before.plan.police && same_layer {
            self.policer = before.policer;
        }
        if self.plan.bit_errors == before.plan.bit_errors && same_layer {
            self.bit_errors = before.bit_errors;
        }
        match (&mut self.slots, before.slots) {
            (Some(slots), Some(old)) if self.plan.slots == before.plan.slots => *slots = old,
            (Some(slots), Some(old)) => slots.continue_from(&old),
            _ => {}
        }
        let damage = |plan: &LinkDirection| {
            [plan.mark_ce, plan.corrupt, plan.corrupt_silent, plan.duplicate]
        };
        if damage(&self.plan) == damage(&before.plan) {
            self.damage = before.damage;
        }
        if self.plan.reorder == before.plan.reorder {
            self.reordering = before.reordering;
        }
        if Scheduler::is_same(&self.plan, &before.plan) {
            self.scheduler = before.scheduler;
        }
        let same_outages = self.plan.outages == before.plan.outages && !before.carrier.is_down;
        if let (Some(queue), Some(before)) = (&mut self.queue, before.queue) {
            queue.follow(before, same_outages);
        }
    }

    /// Returns the start of the last slot that was used or passed; the origin without slots.
    pub(super) fn last_slot(&self) -> LinkTime {
        self.slots.as_ref().map_or(LinkTime::default(), SlotGate::opens_at)
    }

    /// Makes the queue send after the bytes that earlier plans have accepted.
    pub(super) fn wait_for(&mut self, earlier: Backlog, now: LinkTime) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.wait_for(earlier, now);
        } else if let Some(queue) = &mut self.queue {
            queue.wait_for(earlier, now);
        }
    }

    /// Returns the bytes that wait for the rate at `now`, and the time until the last of them
    /// leaves the queue; `None` without a rate.
    pub(super) fn depth(&self, now: LinkTime) -> Option<(Bytes, Duration)> {
        let down_at = self.outages.as_ref().and_then(Outages::next_start);
        if let Some(scheduler) = &self.scheduler {
            return Some(scheduler.depth(now, down_at));
        }
        self.queue.as_ref().map(|queue| queue.depth(now, down_at))
    }

    /// Returns whether the queue can change the order of segments.
    pub(super) fn is_scheduled(&self) -> bool {
        self.scheduler.is_some()
    }

    /// Returns whether segments that wait under `plan` too keep their places.
    pub(super) fn keeps_waiting(&self, plan: &LinkDirection) -> bool {
        Scheduler::is_same(&self.plan, plan)
    }

    /// Takes the waiting segments that are due at `now`.
    pub(super) fn advance(&mut self, now: LinkTime) {
        let down_at = self.outages.as_ref().and_then(Outages::next_start);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.advance(now, down_at);
        }
    }

    /// Returns and removes the segments that wait no more.
    pub(super) fn take_gone(&mut self) -> Vec<DequeuedSegment> {
        self.scheduler.as_mut().map_or_else(Vec::new, Scheduler::take_gone)
    }

    /// Returns the time at which the queue takes the next segment, if one waits.
    pub(super) fn next_turn(&self) -> Option<LinkTime> {
        let down_at = self.outages.as_ref().and_then(Outages::next_start);
        self.scheduler.as_ref().and_then(|scheduler| scheduler.next(down_at))
    }
}
