//! The addresses that an agent tests, whatever its hub requests.

use std::net::IpAddr;

use longhaul_engine::session::Sources;

/// The addresses that an agent tests, whatever its hub requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedPeers(Option<Sources>);

impl AllowedPeers {
    /// Parses addresses and networks separated by commas, each optionally after `!`. `None` if the
    /// list is malformed.
    pub fn parse(list: &str) -> Option<Self> {
        Sources::parse(list).map(|sources| AllowedPeers(Some(sources)))
    }

    /// Returns whether the agent may send to `address`: one of the list, or without a list every
    /// unicast address that belongs to another host and crosses a router.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        match &self.0 {
            Some(sources) => sources.contains(address),
            None => is_ordinary(address),
        }
    }
}

/// Returns false for loopback, link-local, multicast, broadcast and unspecified addresses.
fn is_ordinary(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let class = address.octets()[0];
            // 0/8 is this host, 240/4 is reserved and has the broadcast address.
            (1..240).contains(&class)
                && !address.is_loopback()
                && !address.is_link_local()
                && !address.is_multicast()
        }
        IpAddr::V6(address) => {
            // An address of the form ::a.b.c.d has no use since RFC 4291.
            let embedded = address.segments()[..6].iter().all(|part| *part == 0);
            !embedded && !address.is_unicast_link_local() && !address.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(allowed: &AllowedPeers, address: &str) -> bool {
        allowed.allows(address.parse().unwrap())
    }

    #[test]
    fn an_agent_does_not_test_its_own_host_or_its_link_by_default() {
        let any = AllowedPeers::default();
        for good in ["192.0.2.1", "10.0.0.1", "223.255.255.1", "2001:db8::1", "fd00::2"] {
            assert!(allows(&any, good), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!allows(&any, bad), "{bad}");
        }
    }

    #[test]
    fn a_list_replaces_the_default() {
        let list = AllowedPeers::parse("192.0.2.0/24,!192.0.2.9,127.0.0.1").unwrap();
        assert!(allows(&list, "192.0.2.1") && allows(&list, "127.0.0.1"));
        assert!(!allows(&list, "192.0.2.9") && !allows(&list, "198.51.100.1"));
        assert_eq!(AllowedPeers::parse("192.0.2.1/24"), None);
        assert_eq!(AllowedPeers::parse(""), None);
    }
}
