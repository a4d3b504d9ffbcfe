use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::LinkReport;
use crate::units::Bytes;

/// A site of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteReport {
    /// The name by which the other sites find it.
    pub name: String,
    /// Its address, on all of its interfaces.
    pub ipv4: Ipv4Addr,
    /// As `ipv4`; `None` where no link of the site takes IPv6's smallest packet.
    pub ipv6: Option<Ipv6Addr>,
    /// The most that a TCP socket of the site may buffer in each direction.
    pub window_bytes: Bytes,
}

/// A link of a topology and what it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyLinkReport {
    /// The link's name.
    pub name: String,
    /// The site that `link` calls near.
    pub near: String,
    /// The site that `link` calls far.
    pub far: String,
    /// What passed.
    pub link: LinkReport,
}

/// What the links of a topology did so far, or until they were taken down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyReport {
    /// [`TopologyReport::SCHEMA`].
    pub schema: String,
    /// The topology's name.
    pub name: String,
    /// How long it was up.
    pub seconds: f64,
    /// Its sites.
    pub sites: Vec<SiteReport>,
    /// Its links.
    pub links: Vec<TopologyLinkReport>,
}

impl TopologyReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.topology/1";
}
