//! The limits on clients and connections of a server, and the part of an address that they apply to.

use super::startups::StartupLimits;
use crate::share::SessionPool;
use std::net::{IpAddr, Ipv6Addr};

/// The limits on the clients of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// True to end the server after one client.
    pub one_off: bool,
    /// The maximum number of sessions at once; 1 measures each client separately.
    pub at_once: usize,
    /// The maximum number of these sessions without an authorized key.
    pub anonymous: usize,
    /// The maximum number of waiting clients with an authorized key, and of those without; 0
    /// refuses clients if all sessions are in use.
    pub waiting: usize,
    /// The maximum number of sessions and waiting clients of one address (of one /64 for IPv6).
    pub each_address: usize,
    /// The maximum for one address without an authorized key.
    pub anonymous_each_address: usize,
    /// The limits on unauthenticated connections.
    pub startups: StartupLimits,
    /// True to refuse addresses whose connections keep failing for some time.
    pub penalties: bool,
    /// The resources that all sessions without an authorized key share, as in the limits of their
    /// tests.
    pub pool: SessionPool,
}

impl Default for ClientLimits {
    /// Returns the defaults. 64 sessions at once suit the cores and memory of a large host; a
    /// quarter of them may be without a key. 512 clients of each kind may wait. Clients with a key
    /// have no limit per address; 32 clients without a key are enough for a class or a small site
    /// behind one address.
    fn default() -> Self {
        ClientLimits {
            one_off: false,
            at_once: 64,
            anonymous: 16,
            waiting: 512,
            each_address: usize::MAX,
            anonymous_each_address: 32,
            startups: StartupLimits::default(),
            penalties: true,
            pool: SessionPool::default(),
        }
    }
}

impl ClientLimits {
    /// Returns the maximum number of anonymous sessions of one address: half of the anonymous
    /// sessions, so that other addresses get some.
    pub(super) fn anonymous_running_each_address(&self) -> usize {
        self.anonymous.div_ceil(2)
    }
}

/// Returns the part of an address that belongs to one client: an IPv4 address, or the /64 of an
/// IPv6 address (RFC 6177). Loopback addresses remain unchanged.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        ip if ip.is_loopback() => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_counts_by_64_bits_and_mapped_ipv4_is_ipv4() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:198.51.100.1"), of("198.51.100.1"));
        assert_ne!(of("198.51.100.1"), of("198.51.100.2"));
        assert!(["127.0.0.1", "::1", "::ffff:127.0.0.2"].map(of).iter().all(IpAddr::is_loopback));
    }
}
