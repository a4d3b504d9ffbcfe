//! The facts about a topology that a site needs: its host, interfaces and routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use longhaul_core::plan::{Attachment, TopologyPlan};

use super::windows::Windows;
use crate::device::Medium;

/// A site as other sites see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) ipv4: Ipv4Addr,
    /// The IPv6 address; `None` if no link of the site can carry the smallest IPv6 packet.
    pub(crate) ipv6: Option<Ipv6Addr>,
}

/// The site's end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceSpec {
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
}

/// The interface that leads to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteSpec {
    pub(crate) to: IpAddr,
    /// The index into [`SiteSpec::interfaces`].
    pub(crate) interface: usize,
}

/// The specification of a site.
#[derive(Debug, Clone)]
pub(crate) struct SiteSpec {
    pub(crate) own: Host,
    /// The existing network in which the site is; `None` for a new one.
    pub(crate) attachment: Option<Attachment>,
    /// True if the site is a virtual machine.
    pub(crate) guest: bool,
    /// All sites of the topology, including this one.
    pub(crate) hosts: Vec<Host>,
    pub(crate) interfaces: Vec<InterfaceSpec>,
    pub(crate) routes: Vec<RouteSpec>,
    pub(crate) windows: Windows,
    /// The kind of the interfaces.
    pub(crate) medium: Medium,
}

impl Host {
    /// Returns the address of this host in the family of `other`.
    pub(crate) fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        match other {
            IpAddr::V4(_) => Some(self.ipv4.into()),
            IpAddr::V6(_) => self.ipv6.map(IpAddr::V6),
        }
    }

    /// Returns the addresses of the host.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        [Some(IpAddr::V4(self.ipv4)), self.ipv6.map(IpAddr::V6)].into_iter().flatten()
    }
}

impl SiteSpec {
    /// The smallest MTU of an IPv6 link (RFC 8200, section 5).
    pub(crate) const MIN_MTU_V6: u32 = 1280;

    /// Returns whether the site is to forward packets. An existing network decides itself.
    pub(crate) fn forwards(&self) -> bool {
        self.interfaces.len() > 1 && self.attachment.is_none()
    }

    /// Returns the environment variables with the addresses of this and the other sites.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let mut variables = vec![("LONGHAUL_SITE".to_owned(), self.own.name.clone())];
        for host in &self.hosts {
            variables.push((TopologyPlan::variable(&host.name), host.ipv4.to_string()));
            if let Some(ipv6) = host.ipv6 {
                variables.push((TopologyPlan::variable_v6(&host.name), ipv6.to_string()));
            }
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_every_site() {
        let host = |name: &str, last| Host {
            name: name.to_owned(),
            ipv4: Ipv4Addr::new(198, 18, 0, last),
            ipv6: (last == 1).then_some(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1)),
        };
        let spec = SiteSpec {
            own: host("near", 1),
            attachment: None,
            guest: false,
            hosts: vec![host("near", 1), host("star-light", 2)],
            interfaces: Vec::new(),
            routes: Vec::new(),
            windows: Windows::default(),
            medium: Medium::Tun,
        };
        let variables = spec.environment();
        let lines: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            lines,
            [
                "LONGHAUL_SITE=near",
                "LONGHAUL_NEAR=198.18.0.1",
                "LONGHAUL_NEAR_IPV6=2001:2::1",
                "LONGHAUL_STAR_LIGHT=198.18.0.2",
            ]
        );
    }
}
