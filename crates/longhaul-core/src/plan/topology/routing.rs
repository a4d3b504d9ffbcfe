//! The routes of packets between the sites of a topology.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// True if packets between neighbours may use a path over other sites that has a shorter round
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
}
