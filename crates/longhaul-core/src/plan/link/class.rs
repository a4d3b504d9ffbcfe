//! Classes of traffic: packets that a link treats differently, by fields of their headers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The header fields by which packets are classified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// The differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// The bits of Explicit Congestion Notification (RFC 3168), 0 to 3.
    pub ecn: u8,
    /// The number of the transport protocol.
    pub protocol: u8,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The source and destination port; `None` for fragments and protocols without ports.
    pub ports: Option<(u16, u16)>,
}

/// A condition on packets: all of its terms must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClassMatch {
    text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Dscp(u8),
    Protocol(u8),
    Port(Ends, RangeInclusive<u16>),
    Address(Ends, Network),
}

/// The ends of a packet to which a term applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Either,
    Source,
    Destination,
}

impl Ends {
    fn any<T>(self, source: T, destination: T, holds: impl Fn(T) -> bool) -> bool {
        match self {
            Ends::Either => holds(source) || holds(destination),
            Ends::Source => holds(source),
            Ends::Destination => holds(destination),
        }
    }
}

/// An address with a number of leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl ClassMatch {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "a class is one or more of 'dscp N' (0 to 63, or a name such as ef, af41 or cs1), tcp, \
                            udp, icmp, 'protocol N', 'port N[-N]', 'sport', 'dport', 'address NET', 'from NET' and \
                            'to NET'; in a file ': OPTION VALUE; ...' follows";

    /// Returns whether the class contains a packet with these headers.
    pub fn contains(&self, headers: &Headers) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Dscp(dscp) => headers.dscp == *dscp,
            Term::Protocol(protocol) => headers.protocol == *protocol,
            Term::Port(ends, range) => headers.ports.is_some_and(|(source, destination)| {
                ends.any(source, destination, |port| range.contains(&port))
            }),
            Term::Address(ends, network) => {
                ends.any(headers.source, headers.destination, |address| network.contains(address))
            }
        })
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                u32::from(self.bits) <= differ.leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                u32::from(self.bits) <= differ.leading_zeros()
            }
            _ => false,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Network { address, bits })
    }
}

impl FromStr for ClassMatch {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let mut words = text.split_whitespace();
        let mut terms = Vec::new();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(Self::FORM);
            let term = match word {
                "tcp" => Some(Term::Protocol(6)),
                "udp" => Some(Term::Protocol(17)),
                "icmp" => Some(Term::Protocol(1)),
                "icmpv6" => Some(Term::Protocol(58)),
                "dscp" => dscp(value()?).map(Term::Dscp),
                "protocol" => value()?.parse().ok().map(Term::Protocol),
                "port" => ports(value()?).map(|range| Term::Port(Ends::Either, range)),
                "sport" => ports(value()?).map(|range| Term::Port(Ends::Source, range)),
                "dport" => ports(value()?).map(|range| Term::Port(Ends::Destination, range)),
                "address" => Network::parse(value()?).map(|net| Term::Address(Ends::Either, net)),
                "from" => Network::parse(value()?).map(|net| Term::Address(Ends::Source, net)),
                "to" => Network::parse(value()?).map(|net| Term::Address(Ends::Destination, net)),
                _ => None,
            };
            terms.push(term.ok_or(Self::FORM)?);
        }
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if terms.is_empty() { Err(Self::FORM) } else { Ok(ClassMatch { text, terms }) }
    }
}

/// Reads a code point: a number, or a name of RFC 2474, 2597, 3246 or 8622.
fn dscp(word: &str) -> Option<u8> {
    let digit = |at: usize| word.as_bytes().get(at).map(|byte| byte.wrapping_sub(b'0'));
    match (word.get(..2), word.len()) {
        (Some("ef"), 2) => Some(46),
        (Some("le"), 2) => Some(1),
        (Some("be"), 2) => Some(0),
        (Some("cs"), 3) => digit(2).filter(|class| *class < 8).map(|class| class * 8),
        (Some("af"), 4) => {
            let class = digit(2).filter(|class| (1..5).contains(class))?;
            let drop = digit(3).filter(|drop| (1..4).contains(drop))?;
            Some(class * 8 + drop * 2)
        }
        _ => word.parse().ok().filter(|number| *number < 64),
    }
}

fn ports(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

impl fmt::Display for ClassMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for ClassMatch {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        text.parse()
    }
}

impl From<ClassMatch> for String {
    fn from(class: ClassMatch) -> String {
        class.text
    }
}

/// The condition of a class, and its options by name.
type ClassText = (ClassMatch, BTreeMap<String, String>);

/// Parses classes as text: `MATCH: OPTION VALUE; OPTION VALUE | MATCH: ...`.
pub(super) fn parse_classes(text: &str) -> Result<Vec<ClassText>, &'static str> {
    let class = |text: &str| -> Result<ClassText, &'static str> {
        let text = text.trim();
        let (matches, options) = text.split_once(": ").unwrap_or((text, ""));
        let option = |text: &str| {
            let (name, value) = text.trim().split_once(char::is_whitespace)?;
            Some((name.to_owned(), value.trim().to_owned()))
        };
        let options = options.split(';').filter(|option| !option.trim().is_empty());
        let options = options.map(option).collect::<Option<_>>().ok_or(ClassMatch::FORM)?;
        Ok((matches.trim_end_matches(':').parse()?, options))
    };
    let classes: Vec<ClassText> =
        text.split('|').map(class).collect::<Result<_, &'static str>>()?;
    if classes.len() > MOST_CLASSES { Err(TOO_MANY) } else { Ok(classes) }
}

/// The maximum number of classes of a direction.
const MOST_CLASSES: usize = 64;
const TOO_MANY: &str = "a link has at most 64 classes";

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> Headers {
        Headers {
            dscp: 46,
            ecn: 0,
            protocol: 17,
            source: "198.18.0.1".parse().unwrap(),
            destination: "198.18.0.2".parse().unwrap(),
            ports: Some((40_000, 5001)),
        }
    }

    #[test]
    fn a_class_contains_the_packets_for_which_all_terms_hold() {
        for (text, holds) in [
            ("dscp 46", true),
            ("dscp ef", true),
            ("dscp af41", false),
            ("dscp cs5", false),
            ("udp dport 5000-5010", true),
            ("tcp dport 5000-5010", false),
            ("sport 5001", false),
            ("port 5001", true),
            ("protocol 17", true),
            ("from 198.18.0.0/31", true),
            ("from 198.18.0.2", false),
            ("to 198.18.0.2 dscp ef udp", true),
            ("address 0.0.0.0/0", true),
            ("address ::/0", false),
        ] {
            let class: ClassMatch = text.parse().unwrap();
            assert_eq!(class.contains(&headers()), holds, "{text}");
        }
        let fragment = Headers { ports: None, ..headers() };
        assert!(!"port 5001".parse::<ClassMatch>().unwrap().contains(&fragment));
    }

    #[test]
    fn a_malformed_class_is_refused() {
        for text in [
            "",
            "dscp",
            "dscp 64",
            "dscp af51",
            "port 9-3",
            "port x",
            "from 1.2.3.4/33",
            "vlan 3",
            "dscp csx",
            "dscp ß1",
            "udp port",
        ] {
            assert!(text.parse::<ClassMatch>().is_err(), "{text}");
        }
        assert!(parse_classes("dscp 46: delay").is_err());
        assert!(parse_classes(&["tcp"; 65].join("|")).is_err());
    }

    #[test]
    fn classes_have_options() {
        let classes =
            parse_classes("dscp 46: delay 5ms; loss 0.1 | to 2001:db8::/32: rate 1M").unwrap();
        assert_eq!(classes[0].1["loss"], "0.1");
        assert_eq!((classes.len(), classes[1].1.len()), (2, 1));
        assert_eq!(classes[1].0.to_string(), "to 2001:db8::/32");
        let text = serde_json::to_string(&classes[0].0).unwrap();
        assert_eq!(serde_json::from_str::<ClassMatch>(&text).unwrap(), classes[0].0);
    }
}
