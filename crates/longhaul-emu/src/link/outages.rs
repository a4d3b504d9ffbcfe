//! Outages: the times at which the link is down.

use std::time::Duration;

use longhaul_core::plan::link::Outage;

use super::LinkTime;

/// The times at which the link is down.
#[derive(Debug, Clone)]
pub(super) struct Outages {
    plan: Vec<Outage>,
    /// The first outage that ends after the last time queried.
    next: Option<(LinkTime, LinkTime)>,
    /// The end of an outage that has ended since [`Outages::take_ended`].
    ended: Option<LinkTime>,
}

impl Outages {
    /// Creates the outages of `plan`, seen from `now`; `None` if there are none.
    pub(super) fn new(plan: &[Outage], now: LinkTime) -> Option<Self> {
        let mut outages = Outages { plan: plan.to_vec(), next: None, ended: None };
        outages.next = outages.first_after(now);
        (!plan.is_empty()).then_some(outages)
    }

    /// Returns whether the link is down at `now`. Successive times must not decrease.
    pub(super) fn is_down(&mut self, now: LinkTime) -> bool {
        while let Some((_, end)) = self.next.filter(|(_, end)| *end <= now) {
            self.ended = Some(end);
            self.next = self.first_after(now);
        }
        self.begins_by(now)
    }

    /// Returns whether the link goes down by `time`, which must not precede the last `now`.
    pub(super) fn begins_by(&self, time: LinkTime) -> bool {
        self.next_start().is_some_and(|start| start <= time)
    }

    /// Returns the start of the current or next outage.
    pub(super) fn next_start(&self) -> Option<LinkTime> {
        self.next.map(|(start, _)| start)
    }

    /// Returns the end of the latest outage that has ended since the last call.
    pub(super) fn take_ended(&mut self) -> Option<LinkTime> {
        self.ended.take()
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
