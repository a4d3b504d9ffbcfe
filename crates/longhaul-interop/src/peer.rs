//! Addresses of servers of other programs, such as `iperf3://HOST:5201`.

use std::fmt;

/// A program whose server a test can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// iperf3, port 5201.
    Iperf3,
    /// nuttcp, control port 5000.
    Nuttcp,
}

impl Program {
    /// All programs.
    const ALL: [Self; 2] = [Self::Iperf3, Self::Nuttcp];

    /// Returns the name of the program, which is also the scheme of its addresses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Nuttcp => "nuttcp",
        }
    }

    /// Returns the TCP port on which the program's server listens by default.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Iperf3 => 5201,
            Self::Nuttcp => 5000,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The address of a server of another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// The program.
    pub program: Program,
    /// The name or IP address of the host, without brackets.
    pub host: String,
    /// The TCP port of the control connection.
    pub port: u16,
}

/// The fault of an address that names a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerAddressError {
    /// The scheme names no known program.
    #[error("unknown scheme {0:?}")]
    Scheme(String),
    /// The host is missing, or an IPv6 address lacks its brackets.
    #[error("invalid host in {0:?}")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("invalid port {0:?}")]
    Port(String),
}

impl PeerAddress {
    /// Parses `PROGRAM://HOST[:PORT]`; returns `None` if `text` has no scheme.
    ///
    /// # Errors
    /// The scheme, the host or the port is invalid.
    pub fn parse(text: &str) -> Option<Result<Self, PeerAddressError>> {
        let (scheme, rest) = text.split_once("://")?;
        Some(Self::parse_parts(scheme, rest))
    }

    fn parse_parts(scheme: &str, rest: &str) -> Result<Self, PeerAddressError> {
        let program = Program::ALL
            .into_iter()
            .find(|program| program.name() == scheme)
            .ok_or_else(|| PeerAddressError::Scheme(scheme.to_owned()))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let invalid = || PeerAddressError::Host(rest.to_owned());
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(invalid)?;
                let port = match after.strip_prefix(':') {
                    None if after.is_empty() => None,
                    None => return Err(invalid()),
                    port => port,
                };
                (host, port)
            }
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || (!rest.starts_with('[') && host.contains([':', '/', '@'])) {
            return Err(invalid());
        }
        let port = match port {
            None => program.default_port(),
            Some(text) => match text.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(PeerAddressError::Port(text.to_owned())),
            },
        };
        Ok(Self { program, host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<PeerAddress, PeerAddressError> {
        PeerAddress::parse(text).expect("an address with a scheme")
    }

    #[test]
    fn an_address_has_the_default_port_of_its_program() {
        assert_eq!(address("iperf3://a").unwrap().port, 5201);
        assert_eq!(address("nuttcp://[fe80::1%eth0]").unwrap().port, 5000);
        let full = address("nuttcp://[2001:db8::1]:6000/").unwrap();
        assert_eq!((full.host.as_str(), full.port), ("2001:db8::1", 6000));
    }

    #[test]
    fn an_invalid_address_is_refused_with_the_invalid_part() {
        assert_eq!(PeerAddress::parse("host:5201"), None);
        assert_eq!(address("iperf://a"), Err(PeerAddressError::Scheme("iperf".to_owned())));
        assert_eq!(address("iperf3://"), Err(PeerAddressError::Host(String::new())));
        assert_eq!(address("iperf3://[::1"), Err(PeerAddressError::Host("[::1".to_owned())));
        assert_eq!(address("iperf3://a:0"), Err(PeerAddressError::Port("0".to_owned())));
        assert_eq!(address("iperf3://a:70000"), Err(PeerAddressError::Port("70000".to_owned())));
        assert_eq!(
            address("iperf3://2001:db8::1"),
            Err(PeerAddressError::Port("db8::1".to_owned()))
        );
    }
}
