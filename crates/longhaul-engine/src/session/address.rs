//! Addresses of servers.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use crate::error::{EngineError, Result};

/// The default port of `longhaul serve`.
pub const DEFAULT_PORT: u16 = 5210;

/// Returns the IPv4 address of an IPv4 peer of an IPv6 socket.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The host name or address of a server, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The name or address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl HostPort {
    /// Creates the address of `host` at `port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        HostPort { host: host.into(), port }
    }

    /// Returns the addresses of the host in the resolver's order.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let failed = |source| EngineError::Resolve { host: self.host.clone(), source };
        let found: Vec<_> =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)?.collect();
        if found.is_empty() {
            return Err(failed(std::io::ErrorKind::NotFound.into()));
        }
        Ok(found)
    }
}

impl FromStr for HostPort {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || EngineError::Address(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(bad)?;
                let port = match after {
                    "" => None,
                    _ => Some(after.strip_prefix(':').ok_or_else(bad)?),
                };
                (host, port)
            }
            None => match text.split_once(':') {
                // More than one colon without brackets is a bare IPv6 address.
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?,
            None => DEFAULT_PORT,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(bad());
        }
        Ok(HostPort::new(host, port))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_peer_has_an_ipv4_address() {
        let mapped = "[::ffff:192.0.2.7]:5210".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "192.0.2.7:5210");
    }

    #[test]
    fn reads_every_way_an_address_is_written() {
        for (text, host, port) in [
            ("far", "far", DEFAULT_PORT),
            ("far:80", "far", 80),
            ("10.0.0.1:5", "10.0.0.1", 5),
            ("[fd00::1]:7", "fd00::1", 7),
            ("[fd00::1]", "fd00::1", DEFAULT_PORT),
            ("fd00::1", "fd00::1", DEFAULT_PORT),
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap(), HostPort::new(host, port), "{text}");
        }
        for text in ["", ":80", "far:0", "far:x", "[fd00::1", "far:70000", "a b"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }
}
