//! The address of a hub.

use std::fmt;
use std::str::FromStr;

use longhaul_fleet::protocol::DEFAULT_HUB_PORT;

/// The address of a hub: `https://HOST[:PORT]`, with the default port 5280.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubUrl {
    host: String,
    port: u16,
}

/// An invalid address of a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address of a hub is https://HOST or https://HOST:PORT")]
pub struct InvalidUrl;

impl HubUrl {
    /// Returns the address of `path` at the hub.
    pub fn at(&self, path: &str) -> String {
        format!("{self}{path}")
    }
}

impl fmt::Display for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}:{}", self.host, self.port)
    }
}

impl FromStr for HubUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let rest = text.strip_prefix("https://").ok_or(InvalidUrl)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rfind(':') {
            // The colons of an IPv6 address are within brackets.
            Some(at) if !rest[at..].contains(']') => (&rest[..at], Some(&rest[at + 1..])),
            _ => (rest, None),
        };
        let port = port.map_or(Ok(DEFAULT_HUB_PORT), str::parse).map_err(|_| InvalidUrl)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let good = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                !host.is_empty() && host.len() <= 253 && host.bytes().all(plain)
            }
        };
        if good && port > 0 { Ok(HubUrl { host: host.to_owned(), port }) } else { Err(InvalidUrl) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let text = |url: &str| url.parse::<HubUrl>().map(|url| url.to_string());
        assert_eq!(text("https://hub").unwrap(), "https://hub:5280");
        assert_eq!(text("https://hub:1/").unwrap(), "https://hub:1");
        assert_eq!(text("https://[fd00::1]").unwrap(), "https://[fd00::1]:5280");
        assert_eq!(text("https://[fd00::1]:443").unwrap(), "https://[fd00::1]:443");
        for wrong in [
            "hub",
            "http://hub",
            "https://",
            "https://hub:x",
            "https://a/b",
            "https://fd00::1",
            "https://u@h",
            "https://hub:0",
        ] {
            assert_eq!(text(wrong), Err(InvalidUrl), "{wrong}");
        }
    }
}
