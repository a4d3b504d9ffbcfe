//! The state of a link as routers see it: they notice a change after a hold time.

use std::time::Duration;

use longhaul_core::plan::LinkPlan;
use longhaul_core::plan::link::Outage;

use crate::link::LinkTime;

/// The state of a link as routers see it.
///
/// A link is down during the outages of either direction and while it is taken down by request.
/// Routers notice that a link goes down or comes up after the *hold time*. They do not notice an
/// outage that is shorter than the hold time.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    outages: Vec<Outage>,
    hold: Duration,
    /// The periods for which the link was taken down by request, without those that no longer
    /// affect routers. The last one may be open.
    forced: Vec<(LinkTime, Option<LinkTime>)>,
}

impl Carrier {
    /// Creates the state of a link with `plan`, whose changes routers notice after `hold`.
    pub(crate) fn new(plan: &LinkPlan, hold: Duration) -> Self {
        Carrier { outages: outages(plan), hold, forced: Vec::new() }
    }

    /// Applies another plan. Its outages replace those of the earlier plan.
    pub(crate) fn set_plan(&mut self, plan: &LinkPlan) {
        self.outages = outages(plan);
    }

    /// Takes the link down or up at `now`.
    pub(crate) fn force(&mut self, now: LinkTime, down: bool) {
        let known = now.before(self.hold);
        self.forced.retain(|(_, end)| end.is_none_or(|end| end > known));
        match (self.forced.last_mut(), down) {
            (Some((_, None)), true) => {}
            (Some((_, end @ None)), false) => *end = Some(now),
            (_, true) => self.forced.push((now, None)),
            (_, false) => {}
        }
    }

    /// Returns whether routers treat the link as down at `now`, and the time of the next change of
    /// that, if one is known. A returned time may turn out to change nothing.
    pub(crate) fn state(&self, now: LinkTime) -> (bool, Option<LinkTime>) {
        let forced = self.forced.iter().copied();
        let planned = self.outages.iter().filter_map(|outage| self.outage(outage, now));
        let mut down = false;
        let mut next: Option<LinkTime> = None;
        for (start, end) in forced.chain(planned) {
            let long = end.is_none_or(|end| end.since(start) >= self.hold);
            let (noticed, forgotten) = (start + self.hold, end.map(|end| end + self.hold));
            let over = forgotten.is_some_and(|at| at <= now);
            if !long || over {
                continue;
            }
            down |= noticed <= now;
            let change = if noticed <= now { forgotten } else { Some(noticed) };
            next = [next, change].into_iter().flatten().min();
        }
        (down, next)
    }

    /// Returns the first period of `outage` that still affects routers at `now`.
    fn outage(&self, outage: &Outage, now: LinkTime) -> Option<(LinkTime, Option<LinkTime>)> {
        let known = now.before(self.hold).since(LinkTime::default());
        let at = |span: Duration| LinkTime::default() + span;
        outage.next_after(known).map(|(start, end)| (at(start), Some(at(end))))
    }
}

fn outages(plan: &LinkPlan) -> Vec<Outage> {
    plan.up.outages.iter().chain(&plan.down.outages).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> LinkTime {
        LinkTime::from_nanos(ms * 1_000_000)
    }

    fn carrier(outages: &[(u32, u32, Option<u32>)]) -> Carrier {
        let mut plan = LinkPlan::symmetric(Duration::ZERO);
        plan.down.outages = outages
            .iter()
            .map(|(start, length, every)| Outage {
                start: MS * *start,
                length: MS * *length,
                every: every.map(|every| MS * every),
            })
            .collect();
        Carrier::new(&plan, 50 * MS)
    }

    #[test]
    fn routers_notice_an_outage_after_the_hold_time() {
        let carrier = carrier(&[(1000, 200, Some(1000))]);
        assert_eq!(carrier.state(at(0)), (false, Some(at(1050))));
        assert_eq!(carrier.state(at(1049)), (false, Some(at(1050))));
        assert_eq!(carrier.state(at(1050)), (true, Some(at(1250))));
        assert_eq!(carrier.state(at(1249)), (true, Some(at(1250))));
        assert_eq!(carrier.state(at(1250)), (false, Some(at(2050))));
        assert!(carrier.state(at(7051)).0);
    }

    #[test]
    fn a_short_outage_is_not_noticed() {
        let carrier = carrier(&[(1000, 49, None)]);
        assert!((0..2000).all(|ms| !carrier.state(at(ms)).0));
        assert_eq!(carrier.state(at(2000)), (false, None));
    }

    #[test]
    fn a_link_taken_down_by_request_is_noticed_too() {
        let mut carrier = carrier(&[]);
        carrier.force(at(100), false);
        assert_eq!(carrier.state(at(100)), (false, None));
        carrier.force(at(100), true);
        carrier.force(at(120), true);
        assert_eq!(carrier.state(at(100)), (false, Some(at(150))));
        assert_eq!(carrier.state(at(150)), (true, None));
        carrier.force(at(400), false);
        assert_eq!(carrier.state(at(400)), (true, Some(at(450))));
        assert_eq!(carrier.state(at(450)), (false, None));
        carrier.force(at(500), true);
        carrier.force(at(510), false);
        assert!((500..700).all(|ms| !carrier.state(at(ms)).0), "shorter than the hold time");
    }
}
