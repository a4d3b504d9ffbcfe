//! Bundles: the links that join the same two sites, and share an interface at each.

use longhaul_core::plan::{LinkDirection, Side, TopologyPlan};

/// The links that join the same two sites, usually a single one. They share the interfaces of the
/// sites and the thread that moves packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bundle {
    /// The sites at the near and the far end, which are those of the first link.
    pub(super) sites: [usize; 2],
    pub(super) members: Vec<Member>,
}

/// A link of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    /// The index of the link.
    pub(super) link: usize,
    /// True if the near end of the link is at the far end of the bundle.
    pub(super) reversed: bool,
}

impl Bundle {
    /// Returns the bundles of a valid plan, in the order of their first links.
    pub(super) fn all(plan: &TopologyPlan) -> Vec<Bundle> {
        let mut bundles: Vec<Bundle> = Vec::new();
        for link in 0..plan.links.len() {
            let [Some(near), Some(far)] = plan.ends(link) else { continue };
            let same =
                |bundle: &&mut Bundle| bundle.sites == [near, far] || bundle.sites == [far, near];
            match bundles.iter_mut().find(same) {
                Some(bundle) => {
                    let reversed = bundle.sites != [near, far];
                    bundle.members.push(Member { link, reversed });
                }
                None => bundles.push(Bundle {
                    sites: [near, far],
                    members: vec![Member { link, reversed: false }],
                }),
            }
        }
        bundles
    }

    /// Returns the side of a site (by index), if the bundle ends there.
    pub(super) fn side_of(&self, site: usize) -> Option<Side> {
        let [near, far] = self.sites;
        match site {
            site if site == near => Some(Side::Near),
            site if site == far => Some(Side::Far),
            _ => None,
        }
    }

    /// Returns the directions of the links from `side` of the bundle.
    pub(super) fn directions<'p>(
        &self,
        plan: &'p TopologyPlan,
        side: Side,
    ) -> impl Iterator<Item = &'p LinkDirection> {
        self.members.iter().map(move |member| plan.links[member.link].plan.from(member.side(side)))
    }

    /// Returns the MTU, which is the same for all links of a valid plan.
    pub(super) fn mtu(&self, plan: &TopologyPlan) -> u32 {
        self.members.first().map_or(0, |member| plan.links[member.link].plan.mtu)
    }
}

impl Member {
    /// Returns the end of the link that is at `side` of the bundle.
    pub(super) fn side(&self, side: Side) -> Side {
        match (self.reversed, side) {
            (false, side) => side,
            (true, Side::Near) => Side::Far,
            (true, Side::Far) => Side::Near,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::{LinkPlan, TopologyLink};

    use super::*;

    #[test]
    fn parallel_links_form_a_bundle_in_either_order_of_their_sites() {
        let mut plan = TopologyPlan::pair(LinkPlan::symmetric(Duration::ZERO));
        let mut back = plan.links[0].clone();
        (back.near, back.far, back.name) = ("far".into(), "near".into(), "back".into());
        back.plan.up.delay = Duration::from_millis(3);
        plan.sites.push("third".into());
        let third = TopologyLink { far: "third".into(), name: "third".into(), ..back.clone() };
        plan.links.extend([third, back]);
        let bundles = Bundle::all(&plan);
        let member = |link, reversed| Member { link, reversed };
        assert_eq!(bundles.len(), 2);
        assert_eq!(bundles[0].members, [member(0, false), member(2, true)]);
        assert_eq!(bundles[1].members, [member(1, false)]);
        assert_eq!(bundles[0].side_of(1), Some(Side::Far));
        assert_eq!(bundles[0].side_of(2), None);
        let delays: Vec<u128> = bundles[0]
            .directions(&plan, Side::Far)
            .map(|direction| direction.delay.as_millis())
            .collect();
        assert_eq!(delays, [0, 3], "up of the reversed link leaves from the far end");
    }
}
