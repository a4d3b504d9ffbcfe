//! The addresses of the sites.

use std::net::{Ipv4Addr, Ipv6Addr};

use longhaul_core::plan::TopologyPlan;

use crate::site::{Host, SiteSpec};

/// Returns the hosts of a topology. Their networks are reserved for benchmarks and not used by any
/// host's own network: 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180). The n-th site has the
/// n-th address of each.
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
    use std::time::Duration;

    use longhaul_core::plan::LinkPlan;

    use super::*;

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
