//! The report of a topology.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::LinkReport;
use crate::units::Bytes;

/// A site of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteReport {
    /// The host name of the site.
    pub name: String,
    /// The IPv4 address, on all of its interfaces.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address; `None` if no link of the site supports the smallest IPv6 packet.
    pub ipv6: Option<Ipv6Addr>,
    /// The most bytes that a TCP socket of the site may buffer in each direction.
    pub window_bytes: Bytes,
}

/// A link of a topology with its report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyLinkReport {
    /// The link's name.
    pub name: String,
    /// The site at the near end in `link`.
    pub near: String,
    /// The site at the far end in `link`.
    pub far: String,
    /// The report of the link.
    pub link: LinkReport,
}

/// The report of a topology so far, or until it was taken down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyReport {
    /// [`TopologyReport::SCHEMA`].
    pub schema: String,
    /// The topology's name.
    pub name: String,
    /// The seconds for which it was up.
    pub seconds: f64,
    /// The sites.
    pub sites: Vec<SiteReport>,
    /// The links.
    pub links: Vec<TopologyLinkReport>,
}

impl TopologyReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.topology/1";
}
