//! The outage stage: the times at which the link is down.

use std::time::Duration;

use longhaul_core::plan::link::Outage;

use super::batch::{Batch, Carrier};
use super::{DropReason, LinkTime};

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
