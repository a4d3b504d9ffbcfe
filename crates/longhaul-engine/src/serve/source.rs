//! The source of a connection, for limits per address.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the part of an address that belongs to one client: an IPv4 address, or the /64 of an
/// IPv6 address (RFC 6177). Loopback addresses remain unchanged.
pub(super) fn network(address: IpAddr) -> IpAddr {
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
