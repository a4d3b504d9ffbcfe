use std::time::Duration;

use longhaul_core::plan::link::Outage;

use super::LinkTime;

/// When the link is down.
#[derive(Debug, Clone)]
pub(super) struct Outages {
    plan: Vec<Outage>,
    /// The first one that ends after the last time asked for.
    next: Option<(LinkTime, LinkTime)>,
    /// When one has ended since [`Outages::take_ended`].
    ended: Option<LinkTime>,
}

impl Outages {
    /// Those of `plan`, seen from `now`; `None` if there are none.
    pub(super) fn new(plan: &[Outage], now: LinkTime) -> Option<Self> {
        let mut outages = Outages { plan: plan.to_vec(), next: None, ended: None };
        outages.next = outages.first_after(now);
        (!plan.is_empty()).then_some(outages)
    }

    /// Whether the link is down at `now`, which does not lie before the last one.
    pub(super) fn is_down(&mut self, now: LinkTime) -> bool {
        while let Some((_, end)) = self.next.filter(|(_, end)| *end <= now) {
            self.ended = Some(end);
            self.next = self.first_after(now);
        }
        self.begins_by(now)
    }

    /// Whether the link goes down by `time`, which does not lie before the last `now`.
    pub(super) fn begins_by(&self, time: LinkTime) -> bool {
        self.next_start().is_some_and(|start| start <= time)
    }

    /// When it goes down next, or has.
    pub(super) fn next_start(&self) -> Option<LinkTime> {
        self.next.map(|(start, _)| start)
    }

    /// When the last outage ended that has ended since the last call.
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
