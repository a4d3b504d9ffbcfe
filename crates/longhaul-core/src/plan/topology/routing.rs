//! The sites and routes of a topology: how a site is attached, and how packets find their way.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::seconds;

/// The choice of routes and of parallel links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routing {
    /// The fields of a packet that choose one of several parallel links.
    #[serde(default)]
    pub hash: FlowHash,
    /// The time after which routers notice that a link goes down or comes up.
    #[serde(rename = "failover_seconds", with = "seconds", default = "Routing::default_failover")]
    pub failover: Duration,
    /// True if packets between neighbors may use a path over other sites that has a shorter round
    /// trip than their own link.
    #[serde(default)]
    pub shortest: bool,
    /// The routes that the file states, which precede computed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PlannedRoute>,
}

/// A route in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRoute {
    /// The first site.
    pub from: String,
    /// The last site.
    pub to: String,
    /// The sites between them, in the order of the path; empty for the direct link.
    pub via: Vec<String>,
}

/// The fields of a packet that choose one of several parallel links, as the transmit hash policies
/// of bonding and LACP do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowHash {
    /// Addresses and ports.
    #[default]
    #[serde(rename = "layer3+4")]
    Ports,
    /// Addresses.
    #[serde(rename = "layer3")]
    Addresses,
}

impl Routing {
    /// The default of [`Routing::failover`]: a port notices the loss of light within milliseconds,
    /// and routers wait some tens of milliseconds before they act.
    const FAILOVER: Duration = Duration::from_millis(50);
    /// The longest [`Routing::failover`].
    pub const MAX_FAILOVER: Duration = Duration::from_secs(3600);

    fn default_failover() -> Duration {
        Self::FAILOVER
    }
}

impl Default for Routing {
    fn default() -> Self {
        Routing {
            hash: FlowHash::default(),
            failover: Self::FAILOVER,
            shortest: false,
            routes: Vec::new(),
        }
    }
}

impl PlannedRoute {
    /// Returns the sites of the path in order, including both ends.
    pub fn sites(&self) -> impl Iterator<Item = &str> {
        [&self.from].into_iter().chain(&self.via).chain([&self.to]).map(String::as_str)
    }
}

impl FlowHash {
    /// The names of the policies, for error messages.
    pub const FORM: &str = "\"layer3+4\" (addresses and ports) or \"layer3\" (addresses)";
}

impl FromStr for FlowHash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "layer3+4" => Ok(FlowHash::Ports),
            "layer3" => Ok(FlowHash::Addresses),
            _ => Err(Self::FORM),
        }
    }
}

/// The existing network in which a site is, instead of a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// The network namespace with this name, as `ip netns` creates it.
    Namespace(String),
    /// The network namespace of the process with this id.
    Process(u32),
    /// A host behind an Ethernet interface of this host.
    Interface(String),
    /// A virtual machine behind a TAP device of this host, which is created if it does not exist.
    Tap(String),
}

impl Attachment {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "\"netns:NAME\", \"netns:PID\", \"interface:NAME\" or \"tap:NAME\"";

    /// Returns the name of the interface behind which the site is, if it is behind one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Attachment::Interface(name) | Attachment::Tap(name) => Some(name),
            Attachment::Namespace(_) | Attachment::Process(_) => None,
        }
    }
}

impl FromStr for Attachment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        // The limits of dev_valid_name in net/core/dev.c.
        let is_interface = |name: &str| {
            let fits = (1..16).contains(&name.len()) && name != "." && name != "..";
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
            fits && name.bytes().all(plain)
        };
        for (prefix, kind) in
            [("interface:", Attachment::Interface as fn(String) -> Self), ("tap:", Attachment::Tap)]
        {
            if let Some(name) = text.strip_prefix(prefix) {
                let valid = is_interface(name).then(|| kind(name.to_owned()));
                return valid.ok_or(Self::FORM);
            }
        }
        let name = text.strip_prefix("netns:").ok_or(Self::FORM)?;
        if let Ok(process) = name.parse::<u32>() {
            return if process > 0 { Ok(Attachment::Process(process)) } else { Err(Self::FORM) };
        }
        // The name becomes a part of a path.
        let is_plain = !name.is_empty() && name.len() <= 255 && !name.starts_with('.');
        if is_plain && !name.contains(['/', '\0']) {
            return Ok(Attachment::Namespace(name.to_owned()));
        }
        Err(Self::FORM)
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Namespace(name) => write!(f, "netns:{name}"),
            Attachment::Process(process) => write!(f, "netns:{process}"),
            Attachment::Interface(name) => write!(f, "interface:{name}"),
            Attachment::Tap(name) => write!(f, "tap:{name}"),
        }
    }
}

impl Serialize for Attachment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Attachment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_policies_are_those_of_documents() {
        for policy in [FlowHash::Ports, FlowHash::Addresses] {
            let name = serde_json::to_value(policy).unwrap();
            assert_eq!(name.as_str().unwrap().parse(), Ok(policy));
        }
        assert!("layer2".parse::<FlowHash>().is_err());
    }

    #[test]
    fn a_route_names_its_sites_in_order() {
        let route = PlannedRoute { from: "a".into(), to: "c".into(), via: vec!["b".into()] };
        assert_eq!(route.sites().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn attachments_are_read_and_printed() {
        for text in ["netns:blue", "netns:4711", "interface:enp1s0.7", "tap:vm1"] {
            let attachment: Attachment = text.parse().unwrap();
            assert_eq!(attachment.to_string(), text);
            let json = serde_json::to_string(&attachment).unwrap();
            assert_eq!(serde_json::from_str::<Attachment>(&json).unwrap(), attachment);
        }
        assert_eq!("netns:7".parse(), Ok(Attachment::Process(7)));
        for text in [
            "blue",
            "netns:",
            "netns:0",
            "netns:../x",
            "netns:.x",
            "netns:a/b",
            "pid:7",
            "tap:a/b",
            "tap:",
        ] {
            assert!(text.parse::<Attachment>().is_err(), "{text}");
        }
    }
}
