//! The version of IP and the local address of a client's connections.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;

use longhaul_core::plan::{LinkAddress, PlanError};
use socket2::Socket;

use crate::error::{EngineError, Result};

/// The versions of IP that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// Both, in the resolver's order.
    #[default]
    Any,
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
}

impl Family {
    /// Returns whether `address` has this version.
    pub fn takes(self, address: &SocketAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
}

/// An address of this host, to which connections, UDP flows and probes bind. An IPv6 link-local
/// address has a zone: `fe80::1%eth0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAddress(LinkAddress);

impl LocalAddress {
    /// Returns the address without its zone.
    pub fn ip(&self) -> IpAddr {
        self.0.ip
    }

    /// Returns the version of IP.
    pub fn family(&self) -> Family {
        if self.0.ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the address with a port that the kernel chooses.
    ///
    /// # Errors
    /// There is no interface with the name of the zone.
    pub fn socket_address(&self) -> io::Result<SocketAddr> {
        scoped(&self.0, 0)
    }

    /// Binds `socket` to the address.
    ///
    /// # Errors
    /// This host does not have the address.
    pub fn bind(&self, socket: &Socket) -> io::Result<()> {
        socket.bind(&self.socket_address()?.into())
    }

    /// Checks that this host has the address.
    ///
    /// # Errors
    /// This host does not have the address.
    pub fn check(&self) -> Result<()> {
        let bound = self.socket_address().and_then(UdpSocket::bind);
        let failed = |source| EngineError::LocalAddress { address: self.to_string(), source };
        bound.map(drop).map_err(failed)
    }

    /// Returns those of the addresses of `host` that have the same version of IP.
    ///
    /// # Errors
    /// There is none.
    pub fn matching(&self, host: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>> {
        let found: Vec<_> =
            addresses.into_iter().filter(|address| self.family().takes(address)).collect();
        if found.is_empty() {
            let (host, local) = (host.to_owned(), self.to_string());
            return Err(EngineError::OtherFamily { host, local, ipv6: self.0.ip.is_ipv6() });
        }
        Ok(found)
    }

    /// Returns the address as that of a link.
    pub(crate) fn link(&self) -> &LinkAddress {
        &self.0
    }
}

impl From<LinkAddress> for LocalAddress {
    fn from(address: LinkAddress) -> Self {
        LocalAddress(address)
    }
}

impl From<IpAddr> for LocalAddress {
    fn from(ip: IpAddr) -> Self {
        LocalAddress(ip.into())
    }
}

impl FromStr for LocalAddress {
    type Err = PlanError;

    fn from_str(text: &str) -> std::result::Result<Self, PlanError> {
        let unusable =
            |address: &LinkAddress| address.ip.is_unspecified() || is_multicast(address.ip);
        match text.parse::<LinkAddress>() {
            Ok(address) if !unusable(&address) => Ok(LocalAddress(address)),
            _ => Err(PlanError::OutOfRange {
                field: "the local address",
                value: format!("'{text}'"),
                accepted: "an IP address of this host, such as 192.0.2.1 or fe80::1%eth0",
            }),
        }
    }
}

fn is_multicast(ip: IpAddr) -> bool {
    // A socket can be bound to such an address, and cannot send from it.
    ip.is_multicast() || ip == IpAddr::V4(std::net::Ipv4Addr::BROADCAST)
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Binds `socket` to `local`, if there is one.
///
/// # Errors
/// This host does not have the address.
pub(crate) fn bind_to(socket: &Socket, local: Option<&LocalAddress>) -> io::Result<()> {
    local.map_or(Ok(()), |local| local.bind(socket))
}

/// Returns `address` with its zone resolved.
pub(crate) fn scoped(address: &LinkAddress, port: u16) -> io::Result<SocketAddr> {
    let mut socket = SocketAddr::new(address.ip, port);
    if let (SocketAddr::V6(v6), Some(zone)) = (&mut socket, &address.zone) {
        v6.set_scope_id(longhaul_sys::interface::index(zone)?);
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> LocalAddress {
        text.parse().unwrap()
    }

    #[test]
    fn a_local_address_is_one_ip_address() {
        for text in ["127.0.0.2", "fd00::1", "fe80::1%eth0"] {
            assert_eq!(local(text).to_string(), text);
        }
        for text in ["", "host", "10.0.0.1,10.0.0.2", "10.0.0.1/8", "0.0.0.0", "::", "224.0.0.1"] {
            let message = text.parse::<LocalAddress>().unwrap_err().to_string();
            assert!(message.contains(&format!("'{text}'")), "{message}");
        }
    }

    #[test]
    fn an_address_of_another_host_is_an_error() {
        local("127.0.0.2").check().unwrap();
        // TEST-NET-1 (RFC 5737).
        let error = local("192.0.2.77").check().unwrap_err();
        assert!(
            matches!(&error, EngineError::LocalAddress { address, .. } if address == "192.0.2.77")
        );
        let error = local("fe80::1%nosuchif0").check().unwrap_err();
        assert!(matches!(error, EngineError::LocalAddress { .. }));
    }

    #[test]
    fn only_addresses_of_the_same_version_match() {
        let both: Vec<SocketAddr> =
            ["10.0.0.9:1", "[fd00::9]:1"].map(|text| text.parse().unwrap()).into();
        assert_eq!(local("10.0.0.1").matching("far", both.clone()).unwrap(), both[..1]);
        assert_eq!(local("fd00::1").matching("far", both.clone()).unwrap(), both[1..]);
        let error = local("fd00::1").matching("far", both[..1].to_vec()).unwrap_err();
        assert!(matches!(error, EngineError::OtherFamily { ipv6: true, .. }), "{error}");
    }
}
