//! The addresses of sites and the routes between them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use longhaul_core::plan::{PlannedRoute, Side, TopologyPlan};
use longhaul_core::units::Rate;

use super::bundle::Bundle;
use crate::site::{Host, PathNeed, SiteSpec};

/// One bundle of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    /// The index of the bundle.
    pub(super) bundle: usize,
    /// The end at which a packet enters the bundle.
    pub(super) from: Side,
}

/// A bundle that routes can use.
#[derive(Debug, Clone, Copy)]
struct Edge {
    bundle: usize,
    /// The sites at the near and the far end.
    sites: [usize; 2],
    /// The shortest round trip of the links that are up.
    rtt: Duration,
}

/// The first hop from every site toward every other site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Routes {
    /// `towards[to][from]`; `None` for the site itself and for unreachable sites.
    towards: Vec<Vec<Option<Hop>>>,
    /// The sites at the ends of each bundle.
    ends: Vec<[usize; 2]>,
}

impl Edge {
    /// Returns the hop from `site` over this bundle, and the site at its other end.
    fn leave(&self, site: usize) -> Option<(Hop, usize)> {
        let hop = |from| Hop { bundle: self.bundle, from };
        match self.sites {
            [near, far] if site == near => Some((hop(Side::Near), far)),
            [near, far] if site == far => Some((hop(Side::Far), near)),
            _ => None,
        }
    }
}

impl Routes {
    /// Computes the routes over the links that support packets of `mtu` bytes and that `is_up`
    /// accepts by index. The plan must be valid, and `bundles` must be those of the plan.
    pub(super) fn plan(
        plan: &TopologyPlan,
        bundles: &[Bundle],
        mtu: u32,
        is_up: impl Fn(usize) -> bool,
    ) -> Self {
        let edge = |(bundle, links): (usize, &Bundle)| {
            let up = links.members.iter().filter(|member| is_up(member.link));
            let rtt = up.map(|member| plan.links[member.link].plan.rtt()).min()?;
            (links.mtu(plan) >= mtu).then_some(Edge { bundle, sites: links.sites, rtt })
        };
        let edges: Vec<Edge> = bundles.iter().enumerate().filter_map(edge).collect();
        let sites = plan.sites.len();
        let direct = !plan.routing.shortest;
        let mut towards: Vec<_> =
            (0..sites).map(|to| hops_towards(to, sites, &edges, direct)).collect();
        for route in &plan.routing.routes {
            follow(plan, route, &edges, &mut towards);
        }
        Routes { towards, ends: bundles.iter().map(|bundle| bundle.sites).collect() }
    }

    /// Returns the first hop from `from` to `to`.
    pub(super) fn next(&self, from: usize, to: usize) -> Option<Hop> {
        self.towards[to][from]
    }

    /// Returns the hops of a path; `None` if there is no path or the sites are equal.
    pub(super) fn path(&self, from: usize, to: usize) -> Option<Vec<Hop>> {
        let mut hops = Vec::new();
        let mut site = from;
        while site != to {
            let hop = self.next(site, to)?;
            let [near, far] = self.ends[hop.bundle];
            site = if hop.from == Side::Near { far } else { near };
            hops.push(hop);
        }
        (!hops.is_empty()).then_some(hops)
    }

    /// Returns the requirements of TCP between two sites, whose flow uses one link of each bundle;
    /// `None` if there is no path between them.
    pub(super) fn need(
        &self,
        plan: &TopologyPlan,
        bundles: &[Bundle],
        [a, b]: [usize; 2],
    ) -> Option<PathNeed> {
        let ways = [self.path(a, b)?, self.path(b, a)?];
        let delay = |hop: &Hop| {
            let directions = bundles[hop.bundle].directions(plan, hop.from);
            directions.map(|direction| direction.propagation()).max().unwrap_or_default()
        };
        // The highest rate of the parallel links; none if one of them has none.
        let rate = |hop: &Hop| {
            let directions = bundles[hop.bundle].directions(plan, hop.from);
            let rates: Option<Vec<Rate>> = directions.map(|way| way.peak_rate()).collect();
            rates.and_then(|rates| rates.into_iter().max())
        };
        Some(PathNeed {
            rtt: ways.iter().flatten().map(delay).sum(),
            rates: ways.each_ref().map(|way| way.iter().filter_map(rate).min()),
        })
    }
}

/// Replaces the hops of the sites of `route` by those of the route, if every bundle of it is up.
///
/// Every site of the route up to its destination gets a hop, and routes of a valid plan agree, so
/// no packet loops.
fn follow(
    plan: &TopologyPlan,
    route: &PlannedRoute,
    edges: &[Edge],
    towards: &mut [Vec<Option<Hop>>],
) {
    let sites: Option<Vec<usize>> = route.sites().map(|name| plan.site(name)).collect();
    let Some(sites) = sites else { return };
    let Some(to) = sites.last().copied() else { return };
    let hop = |pair: &[usize]| {
        let mut leaves = edges.iter().filter_map(|edge| edge.leave(pair[0]));
        leaves.find(|(_, next)| *next == pair[1]).map(|(hop, _)| (pair[0], hop))
    };
    let hops: Option<Vec<(usize, Hop)>> = sites.windows(2).map(hop).collect();
    for (site, hop) in hops.into_iter().flatten() {
        towards[to][site] = Some(hop);
    }
}

/// Returns the first hop of every site toward `to`. With `direct`, the neighbors of the
/// destination use their own link, independent of its delay.
fn hops_towards(to: usize, sites: usize, edges: &[Edge], direct: bool) -> Vec<Option<Hop>> {
    // Dijkstra's algorithm, from the destination. A distance is a time and a number of links.
    let mut known: Vec<Option<((Duration, u32), Hop)>> = vec![None; sites];
    let mut settled = vec![false; sites];
    settled[to] = true;
    for edge in edges {
        if let Some((_, neighbor)) = edge.leave(to) {
            known[neighbor] = edge.leave(neighbor).map(|(hop, _)| ((edge.rtt, 1), hop));
        }
    }
    let fixed: Vec<bool> = known.iter().map(|known| direct && known.is_some()).collect();
    loop {
        let open = (0..sites).filter(|site| !settled[*site]);
        let nearest =
            open.filter_map(|site| known[site].map(|(distance, _)| (distance, site))).min();
        let Some(((rtt, links), site)) = nearest else { break };
        settled[site] = true;
        for edge in edges {
            let Some((_, neighbor)) = edge.leave(site) else { continue };
            let distance = (rtt + edge.rtt, links + 1);
            let better = known[neighbor].is_none_or(|(present, _)| distance < present);
            if !settled[neighbor] && !fixed[neighbor] && better {
                known[neighbor] = edge.leave(neighbor).map(|(hop, _)| (distance, hop));
            }
        }
    }
    known.into_iter().map(|known| known.map(|(_, hop)| hop)).collect()
}

/// Returns the hosts of a topology. The n-th site has the n-th address of two networks that are
/// reserved for benchmarks, so that no host's own network uses them: 198.18.0.0/15 (RFC 2544) and
/// 2001:2::/48 (RFC 5180).
pub(super) fn hosts(plan: &TopologyPlan) -> Vec<Host> {
    let numbered = plan.sites.iter().zip(1u16..);
    numbered
        .map(|(name, number)| {
            let [high, low] = number.to_be_bytes();
            let ipv6 = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, number);
            Host {
                name: name.clone(),
                ipv4: Ipv4Addr::new(198, 18, high, low),
                ipv6: takes_ipv6(plan, name).then_some(ipv6),
            }
        })
        .collect()
}

fn takes_ipv6(plan: &TopologyPlan, site: &str) -> bool {
    let is_end = |end: &str| end.eq_ignore_ascii_case(site);
    let mut own = plan.links.iter().filter(|link| is_end(&link.near) || is_end(&link.far));
    own.any(|link| link.plan.mtu >= SiteSpec::MIN_MTU_V6)
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::{LinkPlan, Routing, TopologyLink};

    use super::*;

    fn plan(sites: &[&str], links: &[(&str, &str, u64)]) -> TopologyPlan {
        let link = |(near, far, ms): &(&str, &str, u64)| TopologyLink {
            name: format!("{near}-{far}"),
            near: (*near).to_owned(),
            far: (*far).to_owned(),
            plan: LinkPlan::symmetric(Duration::from_millis(*ms)),
        };
        TopologyPlan {
            name: "test".into(),
            sites: sites.iter().map(|site| (*site).to_owned()).collect(),
            attachments: Default::default(),
            guests: Default::default(),
            links: links.iter().map(link).collect(),
            routing: Routing::default(),
        }
    }

    fn routes(plan: &TopologyPlan, mtu: u32) -> Routes {
        Routes::plan(plan, &Bundle::all(plan), mtu, |_| true)
    }

    fn links(routes: &Routes, from: usize, to: usize) -> Option<Vec<usize>> {
        Some(routes.path(from, to)?.iter().map(|hop| hop.bundle).collect())
    }

    #[test]
    fn a_direct_link_is_used_and_else_the_shortest_way() {
        let plan = plan(
            &["a", "b", "c", "d", "island"],
            &[("a", "b", 10), ("b", "c", 10), ("a", "c", 90), ("c", "d", 5), ("a", "d", 200)],
        );
        let routes = routes(&plan, 0);
        assert_eq!(links(&routes, 0, 2), Some(vec![2]), "direct, although longer");
        assert_eq!(links(&routes, 0, 3), Some(vec![4]));
        assert_eq!(links(&routes, 1, 3), Some(vec![1, 3]));
        assert_eq!(links(&routes, 3, 1), Some(vec![3, 1]));
        assert_eq!(links(&routes, 0, 4), None);
        assert_eq!(links(&routes, 0, 0), None);
        let hop = Hop { bundle: 3, from: Side::Far };
        assert_eq!(routes.next(3, 1), Some(hop), "a link is passed from either end");
    }

    #[test]
    fn no_way_leads_in_a_circle_even_without_delay() {
        let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut edges = Vec::new();
        for n in 0..11 {
            edges.push((names[n], names[n + 1], 0));
            if n % 3 == 0 && n + 5 < 12 {
                edges.push((names[n], names[n + 5], 7));
            }
        }
        let plan = plan(&names, &edges);
        let routes = routes(&plan, 0);
        for from in 0..12 {
            for to in (0..12).filter(|to| *to != from) {
                assert!(links(&routes, from, to).unwrap().len() < 12, "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_path_needs_its_whole_round_trip_at_its_least_rate() {
        let mut plan = plan(&["a", "b", "c"], &[("a", "b", 10), ("c", "b", 30)]);
        plan.links[0].plan.up.rate_bps = Some(Rate::from_bps(5));
        plan.links[1].plan.down.rate_bps = Some(Rate::from_bps(3));
        let routes = routes(&plan, 0);
        let need = routes.need(&plan, &Bundle::all(&plan), [0, 2]).unwrap();
        assert_eq!(need.rtt, Duration::from_millis(40));
        assert_eq!(need.rates, [Some(Rate::from_bps(3)), None]);
    }

    #[test]
    fn links_too_small_for_a_family_are_passed_by() {
        let mut plan = plan(&["a", "b", "c"], &[("a", "b", 1), ("b", "c", 1), ("a", "c", 50)]);
        plan.links[2].plan.mtu = 600;
        assert_eq!(links(&routes(&plan, 0), 0, 2), Some(vec![2]));
        assert_eq!(links(&routes(&plan, 1280), 0, 2), Some(vec![0, 1]));
    }

    #[test]
    fn the_fewest_milliseconds_decide_if_requested() {
        let mut plan = plan(&["a", "b", "c"], &[("a", "b", 10), ("b", "c", 10), ("a", "c", 90)]);
        assert_eq!(links(&routes(&plan, 0), 0, 2), Some(vec![2]));
        plan.routing.shortest = true;
        assert_eq!(links(&routes(&plan, 0), 0, 2), Some(vec![0, 1]));
        assert_eq!(links(&routes(&plan, 0), 2, 0), Some(vec![1, 0]));
    }

    #[test]
    fn a_stated_route_holds_for_its_direction_while_its_links_are_up() {
        let edges = [("a", "b", 10), ("b", "c", 10), ("a", "c", 1), ("c", "d", 1)];
        let mut plan = plan(&["a", "b", "c", "d"], &edges);
        let via = vec!["b".to_owned(), "c".to_owned()];
        plan.routing.routes = vec![PlannedRoute { from: "a".into(), to: "d".into(), via }];
        let stated = routes(&plan, 0);
        assert_eq!(links(&stated, 0, 3), Some(vec![0, 1, 3]));
        assert_eq!(links(&stated, 3, 0), Some(vec![3, 2]), "the way back is computed");
        assert_eq!(links(&stated, 0, 2), Some(vec![2]), "other destinations too");
        let down = Routes::plan(&plan, &Bundle::all(&plan), 0, |link| link != 1);
        assert_eq!(links(&down, 0, 3), Some(vec![2, 3]));
        assert_eq!(links(&down, 1, 3), Some(vec![0, 2, 3]));
    }

    #[test]
    fn a_bundle_is_used_while_one_of_its_links_is_up() {
        let mut plan = plan(&["a", "b", "c"], &[("a", "b", 10), ("b", "c", 1), ("a", "c", 1)]);
        let mut second = plan.links[0].clone();
        (second.near, second.far, second.name) = ("b".into(), "a".into(), "second".into());
        second.plan = LinkPlan::symmetric(Duration::from_millis(30));
        second.plan.up.rate_bps = Some(Rate::from_bps(7));
        plan.links.push(second);
        let bundles = Bundle::all(&plan);
        let up = |up: &'static [usize]| Routes::plan(&plan, &bundles, 0, |link| up.contains(&link));
        assert_eq!(links(&up(&[0, 1, 2, 3]), 0, 1), Some(vec![0]));
        assert_eq!(links(&up(&[1, 2, 3]), 0, 1), Some(vec![0]));
        assert_eq!(links(&up(&[1, 2]), 0, 1), Some(vec![2, 1]));
        let need = up(&[0, 1, 2, 3]).need(&plan, &bundles, [0, 1]).unwrap();
        assert_eq!((need.rtt, need.rates), (Duration::from_millis(30), [None, None]));
    }

    #[test]
    fn near_and_far_are_the_first_two() {
        let mut link = LinkPlan::symmetric(Duration::ZERO);
        let both = hosts(&TopologyPlan::pair(link.clone()));
        let addresses: Vec<String> =
            both.iter().flat_map(Host::addresses).map(|address| address.to_string()).collect();
        assert_eq!(addresses, ["198.18.0.1", "2001:2::1", "198.18.0.2", "2001:2::2"]);
        link.mtu = 1279;
        assert!(hosts(&TopologyPlan::pair(link)).iter().all(|host| host.ipv6.is_none()));
    }
}
