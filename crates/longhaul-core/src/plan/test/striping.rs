//! The links over which a test spreads its streams.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::PlanError;

/// A link of a test over several links: stream `n` uses link `n` modulo their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestLink {
    /// The client's address; `None` lets the routing table choose.
    pub client: Option<LinkAddress>,
    /// The server's address; `None` uses that of the control channel.
    pub server: Option<LinkAddress>,
}

impl TestLink {
    /// The maximum number of links per test, equal to the maximum number of streams.
    pub const MAX_LINKS: usize = 128;

    /// Pairs the addresses of both ends; the shorter list is repeated.
    pub fn pair(client: &[LinkAddress], server: &[LinkAddress]) -> Vec<TestLink> {
        let of = |list: &[LinkAddress], n: usize| list.get(n.checked_rem(list.len())?).cloned();
        (0..client.len().max(server.len()))
            .map(|n| TestLink { client: of(client, n), server: of(server, n) })
            .collect()
    }
}

/// An address of an end of a link; an IPv6 address may have a zone: `fe80::1%eth0`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// The interface of an IPv6 link-local address.
    pub zone: Option<String>,
}

impl From<IpAddr> for LinkAddress {
    fn from(ip: IpAddr) -> Self {
        LinkAddress { ip, zone: None }
    }
}

impl FromStr for LinkAddress {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let (ip, zone) = match text.split_once('%') {
            Some((ip, zone)) => (ip, Some(zone)),
            None => (text, None),
        };
        let ip: Option<IpAddr> = ip.parse().ok();
        // IFNAMSIZ is 16 with the terminating zero (linux/if.h); dev_valid_name() rejects '/' and
        // spaces.
        let zone_good = zone.is_none_or(|zone| {
            (1..16).contains(&zone.len())
                && zone.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b'%')
                && ip.is_some_and(|ip| ip.is_ipv6())
        });
        match ip {
            Some(ip) if zone_good => Ok(LinkAddress { ip, zone: zone.map(str::to_owned) }),
            _ => Err(bad(text)),
        }
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            None => self.ip.fmt(f),
            Some(zone) => write!(f, "{}%{zone}", self.ip),
        }
    }
}

impl From<LinkAddress> for String {
    fn from(address: LinkAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for LinkAddress {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

fn bad(text: &str) -> PlanError {
    PlanError::OutOfRange {
        field: "address list",
        value: format!("'{text}'"),
        accepted: "addresses such as 10.0.1.2,10.0.2.2 or, with a stride, 10.0.1.2+256*4; 128 \
                   at most",
    }
}

/// Parses a list of addresses. An item `FIRST+STEP*COUNT` means COUNT addresses at intervals of
/// STEP: `10.0.1.2+256*4` is 10.0.1.2, 10.0.2.2, 10.0.3.2 and 10.0.4.2.
///
/// # Errors
/// An item is not an address, the interval leaves the address space, or there are more than
/// [`TestLink::MAX_LINKS`].
pub fn parse_addresses(text: &str) -> Result<Vec<LinkAddress>, PlanError> {
    let mut found = Vec::new();
    for item in text.split(',') {
        match item.split_once('+') {
            None => found.push(item.parse().map_err(|_| bad(text))?),
            Some((first, stride)) => {
                let first: LinkAddress = first.parse().map_err(|_| bad(text))?;
                let stride = stride.split_once('*');
                let (step, count): (u32, usize) = stride
                    .and_then(|(step, count)| Some((step.parse().ok()?, count.parse().ok()?)))
                    .filter(|(_, count)| (1..=TestLink::MAX_LINKS).contains(count))
                    .ok_or_else(|| bad(text))?;
                for number in 0..count {
                    let ip = offset(first.ip, u64::from(step) * number as u64);
                    let ip = ip.ok_or_else(|| bad(text))?;
                    found.push(LinkAddress { ip, zone: first.zone.clone() });
                }
            }
        }
        if found.len() > TestLink::MAX_LINKS {
            return Err(bad(text));
        }
    }
    Ok(found)
}

fn offset(ip: IpAddr, by: u64) -> Option<IpAddr> {
    Some(match ip {
        IpAddr::V4(ip) => {
            Ipv4Addr::from_bits(ip.to_bits().checked_add(u32::try_from(by).ok()?)?).into()
        }
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().checked_add(by.into())?).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &str) -> Vec<String> {
        parse_addresses(list).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_and_strides_are_read() {
        assert_eq!(texts("10.0.1.2,10.0.2.2"), ["10.0.1.2", "10.0.2.2"]);
        assert_eq!(texts("10.0.1.2+256*3"), ["10.0.1.2", "10.0.2.2", "10.0.3.2"]);
        assert_eq!(texts("fd00::1+1*2,fe80::1%eth0"), ["fd00::1", "fd00::2", "fe80::1%eth0"]);
        let text = serde_json::to_string(&parse_addresses("fe80::1%eth0").unwrap()).unwrap();
        assert_eq!(text, r#"["fe80::1%eth0"]"#);
    }

    #[test]
    fn malformed_and_long_lists_are_refused() {
        for text in [
            "",
            "far",
            "10.0.0.1,",
            "10.0.0.1+1",
            "10.0.0.1+1*0",
            "10.0.0.1+1*129",
            "255.255.255.255+1*2",
            "10.0.0.1%eth0",
            "fe80::1%",
            "fe80::1%a b",
            "0.0.0.0+1*9999999",
        ] {
            let error = parse_addresses(text).unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
        assert!(parse_addresses(&vec!["::1"; 129].join(",")).is_err());
    }

    #[test]
    fn the_shorter_list_is_repeated() {
        let (three, one) =
            (parse_addresses("::1,::2,::3").unwrap(), parse_addresses("::9").unwrap());
        let links = TestLink::pair(&three, &one);
        assert_eq!(links.len(), 3);
        assert!(links.iter().all(|link| link.server.as_ref() == Some(&one[0])));
        assert_eq!(
            TestLink::pair(&[], &three)[2],
            TestLink { client: None, server: Some(three[2].clone()) }
        );
        assert_eq!(TestLink::pair(&[], &[]), []);
    }
}
