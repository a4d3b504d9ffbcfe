//! The addresses of sites and the routes between them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use longhaul_core::plan::{Side, TopologyPlan};

use crate::site::{Host, PathNeed, SiteSpec};

/// One link of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    /// The index of the link.
    pub(super) link: usize,
    /// The end at which a packet enters the link.
    pub(super) from: Side,
}

/// A link as its index and the indices of its ends.
#[derive(Debug, Clone, Copy)]
struct Edge {
    link: usize,
    near: usize,
    far: usize,
    rtt: Duration,
}

/// The first hop from every site towards every other site.
#[derive(Debug)]
pub(super) struct Routes {
    edges: Vec<Edge>,
    /// `towards[to][from]`; `None` for the site itself and for unreachable sites.
    towards: Vec<Vec<Option<Hop>>>,
}

impl Edge {
    /// Returns the hop from `site` over this link, and the site at its other end.
    fn leave(&self, site: usize) -> Option<(Hop, usize)> {
        let hop = |from| Hop { link: self.link, from };
        match site {
            site if site == self.near => Some((hop(Side::Near), self.far)),
            site if site == self.far => Some((hop(Side::Far), self.near)),
            _ => None,
        }
    }
}

impl Routes {
    /// Computes the routes over the links that support packets of `mtu` bytes. The plan must be
    /// valid.
    pub(super) fn plan(plan: &TopologyPlan, mtu: u32) -> Self {
        let edges: Vec<Edge> = plan
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| link.plan.mtu >= mtu)
            .filter_map(|(index, link)| {
                let (near, far) = (plan.site(&link.near)?, plan.site(&link.far)?);
                Some(Edge { link: index, near, far, rtt: link.plan.rtt() })
            })
            .collect();
        let sites = plan.sites.len();
        let towards = (0..sites).map(|to| hops_towards(to, sites, &edges)).collect();
        Routes { edges, towards }
    }

    /// Returns the first link from `from` to `to`.
    pub(super) fn next(&self, from: usize, to: usize) -> Option<Hop> {
        self.towards[to][from]
    }

    /// Returns the links of a path; `None` if there is no path or the sites are equal.
    pub(super) fn path(&self, from: usize, to: usize) -> Option<Vec<Hop>> {
        let mut hops = Vec::new();
        let mut site = from;
        while site != to {
            let hop = self.next(site, to)?;
            let edge = self.edges.iter().find(|edge| edge.link == hop.link)?;
            site = edge.leave(site)?.1;
            hops.push(hop);
        }
        (!hops.is_empty()).then_some(hops)
    }

    /// Returns the requirements of TCP between two sites; `None` if there is no path between them.
    pub(super) fn need(&self, plan: &TopologyPlan, a: usize, b: usize) -> Option<PathNeed> {
        let ways = [self.path(a, b)?, self.path(b, a)?];
        let direction = |hop: &Hop| plan.links[hop.link].plan.from(hop.from);
        Some(PathNeed {
            rtt: ways.iter().flatten().map(|hop| direction(hop).propagation()).sum(),
            rates: ways
                .each_ref()
                .map(|way| way.iter().filter_map(|hop| direction(hop).peak_rate()).min()),
        })
    }
}

/// Returns the first hop of every site towards `to`.
fn hops_towards(to: usize, sites: usize, edges: &[Edge]) -> Vec<Option<Hop>> {
    // Dijkstra's algorithm, from the destination. The neighbours of the destination use their
    // direct link, independent of its delay. A distance is a time and a number of links.
    let mut known: Vec<Option<((Duration, u32), Hop)>> = vec![None; sites];
    let mut settled = vec![false; sites];
    settled[to] = true;
    for edge in edges {
        if let Some((_, neighbour)) = edge.leave(to) {
            known[neighbour] = edge.leave(neighbour).map(|(hop, _)| ((edge.rtt, 1), hop));
        }
    }
    let direct: Vec<bool> = known.iter().map(Option::is_some).collect();
    loop {
        let open = (0..sites).filter(|site| !settled[*site]);
        let nearest =
            open.filter_map(|site| known[site].map(|(distance, _)| (distance, site))).min();
        let Some(((rtt, links), site)) = nearest else { break };
        settled[site] = true;
        for edge in edges {
            let Some((_, neighbour)) = edge.leave(site) else { continue };
            let distance = (rtt + edge.rtt, links + 1);
            let better = known[neighbour].is_none_or(|(present, _)| distance < present);
            if !settled[neighbour] && !direct[neighbour] && better {
                known[neighbour] = edge.leave(neighbour).map(|(hop, _)| (distance, hop));
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
    use longhaul_core::plan::{LinkPlan, TopologyLink};
    use longhaul_core::units::Rate;

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
            links: links.iter().map(link).collect(),
        }
    }

    fn links(routes: &Routes, from: usize, to: usize) -> Option<Vec<usize>> {
        Some(routes.path(from, to)?.iter().map(|hop| hop.link).collect())
    }

    #[test]
    fn a_direct_link_is_used_and_else_the_shortest_way() {
        let plan = plan(
            &["a", "b", "c", "d", "island"],
            &[("a", "b", 10), ("b", "c", 10), ("a", "c", 90), ("c", "d", 5), ("a", "d", 200)],
        );
        let routes = Routes::plan(&plan, 0);
        assert_eq!(links(&routes, 0, 2), Some(vec![2]), "direct, although longer");
        assert_eq!(links(&routes, 0, 3), Some(vec![4]));
        assert_eq!(links(&routes, 1, 3), Some(vec![1, 3]));
        assert_eq!(links(&routes, 3, 1), Some(vec![3, 1]));
        assert_eq!(links(&routes, 0, 4), None);
        assert_eq!(links(&routes, 0, 0), None);
        let hop = Hop { link: 3, from: Side::Far };
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
        let routes = Routes::plan(&plan, 0);
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
        let routes = Routes::plan(&plan, 0);
        let need = routes.need(&plan, 0, 2).unwrap();
        assert_eq!(need.rtt, Duration::from_millis(40));
        assert_eq!(need.rates, [Some(Rate::from_bps(3)), None]);
    }

    #[test]
    fn links_too_small_for_a_family_are_passed_by() {
        let mut plan = plan(&["a", "b", "c"], &[("a", "b", 1), ("b", "c", 1), ("a", "c", 50)]);
        plan.links[2].plan.mtu = 600;
        assert_eq!(links(&Routes::plan(&plan, 0), 0, 2), Some(vec![2]));
        assert_eq!(links(&Routes::plan(&plan, 1280), 0, 2), Some(vec![0, 1]));
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
