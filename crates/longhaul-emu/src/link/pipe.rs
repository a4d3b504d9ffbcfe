//! The stages of one class of traffic, with the numbers of its segments.

use std::time::Duration;

use longhaul_core::plan::{LinkDirection, LinkPlan, Side};
use longhaul_core::result::Impairments;
use longhaul_core::units::Bytes;

use super::backlog::Backlog;
use super::batch::Batch;
use super::delay::Delay;
use super::scheduler::DequeuedSegment;
use super::stages::Stages;
use super::{LinkTime, Piece, Treatment};

/// The stages that the packets of a class pass.
#[derive(Debug, Clone)]
pub(super) struct Pipe {
    delay: Delay,
    /// `None` if the pipe only delays, with the same delay for all segments.
    stages: Option<Box<Stages>>,
    /// The number of the next segment, from 0. Every random decision depends on a segment number,
    /// so it is independent of the division into packets.
    number: u64,
    /// The number of the next segment behind the queue, which can change the order.
    left: u64,
    /// The bytes that earlier plans have accepted, if the present plan has no rate.
    backlog: Backlog,
}

impl Pipe {
    /// Creates a pipe; [`Pipe::set`] adds the stages.
    pub(super) fn new(plan: &LinkPlan, from: Side) -> Self {
        Pipe {
            delay: Delay::new(plan, from, LinkTime::default()),
            stages: None,
            number: 0,
            left: 0,
            backlog: Backlog::default(),
        }
    }

    /// Ends the present plan at `now`, before [`Pipe::set`] applies `plan`: the waiting segments
    /// are sent, except if they continue to wait under `plan`.
    pub(super) fn end(&mut self, now: LinkTime, plan: &LinkDirection, counts: &mut Impairments) {
        if let Some(old) = self.stages.as_mut().filter(|old| !old.keeps_waiting(plan))
            && let Some(waiting) = old.end(now, counts)
        {
            self.backlog = waiting;
        }
        self.backlog.forget(now);
    }

    /// Applies `plan` to packets offered from `now` on.
    pub(super) fn set(&mut self, now: LinkTime, plan: &LinkPlan, from: Side) {
        let before = self.stages.take();
        let last = before.as_ref().map_or(LinkTime::default(), |old| old.last_slot());
        self.delay = Delay::new(plan, from, self.delay.last().max(last));
        let mut stages = Stages::new(plan, from, now, [self.number, self.left]);
        if stages.is_empty() && self.delay.is_constant() {
            return;
        }
        stages.wait_for(self.backlog.clone(), now);
        if let Some(before) = before {
            stages.follow(*before);
        }
        self.stages = Some(Box::new(stages));
    }

    /// Returns the departure of `count` segments that enter at `now`, if the pipe only delays.
    pub(super) fn delay_only(&mut self, now: LinkTime, count: u32) -> Option<LinkTime> {
        if self.stages.is_some() {
            return None;
        }
        self.count(count.into());
        Some(self.delay.depart(now))
    }

    /// Numbers `count` segments, and returns their first number.
    fn count(&mut self, count: u64) -> u64 {
        let first = self.number;
        self.number += count;
        first
    }

    /// Passes a packet through the pipe. The numbers of the batch count from 0.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        self.pass(None, batch);
    }

    /// Passes a packet through the pipe, with the queue of `shared`.
    pub(super) fn apply_sharing(&mut self, shared: &mut Pipe, batch: &mut Batch) {
        self.pass(Some(shared), batch);
    }

    fn pass(&mut self, shared: Option<&mut Pipe>, batch: &mut Batch) {
        let count = batch.numbers.end;
        let first = self.count(count);
        batch.numbers = first..first + count;
        batch.enter();
        let queue = shared.as_deref().unwrap_or(self).stages.as_deref();
        let is_scheduled = queue.is_some_and(Stages::is_scheduled);
        let own = self.stages.as_deref_mut();
        match (own, shared) {
            (Some(stages), None) => stages.apply(batch, &mut self.delay),
            (None, None) => self.delay.apply(batch),
            (own, Some(shared)) => {
                let shared = shared.stages.as_deref_mut();
                match own {
                    Some(stages) => stages.apply_sharing(shared, batch, &mut self.delay),
                    None => {
                        if let Some(shared) = shared {
                            shared.wait(batch);
                        }
                        if !batch.is_parked() {
                            self.delay.apply(batch);
                        }
                    }
                }
            }
        }
        // A queue that changes the order numbers its segments again.
        if !is_scheduled {
            self.left = self.number;
        }
    }

    /// Passes the only segment of a packet, sent at `at`, through the stages behind the queue.
    pub(super) fn leave(&mut self, batch: &mut Batch, at: LinkTime, mark: bool) {
        batch.numbers = self.left..self.left + 1;
        self.left += 1;
        if mark {
            batch.counts.marked_ce += batch.packet.count_of(0..1);
        }
        let treatment = Treatment { mark_ce: mark, ..Treatment::default() };
        batch.pieces.push(Piece { segments: 0..1, at, treatment });
        match &mut self.stages {
            Some(stages) => stages.leave(batch, &mut self.delay),
            None => self.delay.apply(batch),
        }
    }

    /// Takes the waiting segments that are due at `now`.
    pub(super) fn advance(&mut self, now: LinkTime) {
        if let Some(stages) = &mut self.stages {
            stages.advance(now);
        }
    }

    /// Returns and removes the segments that wait no more.
    pub(super) fn take_gone(&mut self) -> Vec<DequeuedSegment> {
        self.stages.as_mut().map_or_else(Vec::new, |stages| stages.take_gone())
    }

    /// Returns the time at which the queue takes the next segment, if one waits.
    pub(super) fn next_turn(&self) -> Option<LinkTime> {
        self.stages.as_ref().and_then(|stages| stages.next_turn())
    }

    /// Returns the bytes that wait at `now`, and the time until the last of them leaves the queue.
    pub(super) fn depth(&self, now: LinkTime) -> (Bytes, Duration) {
        let stages = self.stages.as_ref().and_then(|stages| stages.depth(now));
        stages.unwrap_or_else(|| self.backlog.depth(now))
    }
}
