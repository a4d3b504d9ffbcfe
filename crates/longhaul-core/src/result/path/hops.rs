//! The hops and the MTU of a path.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The kind of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prober {
    /// Datagrams that `longhaul serve` answers.
    Udp,
    /// Datagrams to a closed port, which the host answers with an ICMP error.
    ClosedPort,
    /// ICMP echo.
    Icmp,
    /// TCP connections, opened or refused.
    Tcp,
}

impl fmt::Display for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Prober::Udp => "UDP",
            Prober::ClosedPort => "UDP to a closed port",
            Prober::Icmp => "ICMP",
            Prober::Tcp => "TCP",
        })
    }
}

/// The hops of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hops {
    /// The hops in order from the sender, up to the last that answered.
    pub list: Vec<Hop>,
    /// True if the last hop is the other end.
    pub reached: bool,
    /// The kind of the probes.
    pub by: Prober,
}

/// One hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "HopDocument")]
pub struct Hop {
    /// The distance in hops.
    pub distance: u8,
    /// The addresses that answered. There are several if packets take different paths, and none if
    /// no router answered.
    pub addresses: Vec<IpAddr>,
    /// The number of requests.
    pub asked: u32,
    /// The number of answers.
    pub answered: u32,
    /// The lowest round-trip time in ms.
    pub min_ms: Option<f64>,
    /// The MTU of the next link, if the router reported it.
    pub says_mtu_bytes: Option<u32>,
}

/// A hop in the form of documents. The first version has `min_us` and `says_mtu`.
#[derive(Deserialize)]
struct HopDocument {
    distance: u8,
    addresses: Vec<IpAddr>,
    asked: u32,
    answered: u32,
    min_ms: Option<f64>,
    min_us: Option<f64>,
    #[serde(alias = "says_mtu")]
    says_mtu_bytes: Option<u32>,
}

impl From<HopDocument> for Hop {
    fn from(document: HopDocument) -> Self {
        let HopDocument { distance, addresses, asked, answered, .. } = document;
        Hop {
            distance,
            addresses,
            asked,
            answered,
            min_ms: document.min_ms.or(document.min_us.map(|us| us / 1e3)),
            says_mtu_bytes: document.says_mtu_bytes,
        }
    }
}

/// The reason why larger packets do not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MtuLimit {
    /// The MTU of the sender's interface.
    Interface,
    /// A router that reported its MTU.
    Router {
        /// The address of the router.
        address: IpAddr,
    },
    /// A device that drops larger packets silently.
    Silent,
    /// Larger packets were not stopped: the largest IP packet passes.
    Nothing,
}

/// The path MTU of one direction, measured with packets that may not be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MtuProof {
    /// The kind of the probes.
    pub by: Prober,
    /// The largest packet that arrived, in bytes with its IP header; `None` if no packet arrived.
    pub bytes: Option<u32>,
    /// The smallest size that did not arrive. It is `bytes` + 1 unless `limit` is the interface or
    /// nothing.
    pub stopped_bytes: Option<u32>,
    /// The reason why larger packets do not pass.
    pub limit: MtuLimit,
    /// The number of packets sent.
    pub packets: u32,
}

/// The segment size that TCP chose in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpSegments {
    /// The payload of the largest segments in bytes.
    pub segment_bytes: u32,
    /// The path MTU that the kernel assumes, in bytes.
    pub path_mtu_bytes: u32,
    /// The acknowledged payload in bytes; more than one segment proves that full segments pass.
    pub acked_bytes: u64,
    /// The number of retransmitted segments.
    pub retransmits: u64,
}

impl TcpSegments {
    /// Returns whether full segments arrived.
    pub fn proven(&self) -> bool {
        self.segment_bytes > 0 && self.acked_bytes > 2 * u64::from(self.segment_bytes)
    }
}
