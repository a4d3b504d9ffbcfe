use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Prober;

/// The hops of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hops {
    /// In order, from the sender. Behind the last that answered nothing is listed.
    pub list: Vec<Hop>,
    /// Whether the last is the other end.
    pub reached: bool,
    /// How they were asked.
    pub by: Prober,
}

/// One hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// How many hops it is away.
    pub distance: u8,
    /// Who answered; several where packets take several ways, none where nobody did.
    pub addresses: Vec<IpAddr>,
    /// How often it was asked.
    pub asked: u32,
    /// How often it answered.
    pub answered: u32,
    /// The least round trip.
    pub min_ms: Option<f64>,
    /// The largest packet that the next link takes, where it said so.
    #[serde(default)]
    pub says_mtu_bytes: Option<u32>,
}

/// What keeps larger packets from passing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MtuLimit {
    /// The sender's own interface.
    Interface,
    /// A router, which said so.
    Router {
        /// Its address.
        address: IpAddr,
    },
    /// Something that drops them without a word.
    Silent,
    /// Nothing was stopped: IP has no larger packets.
    Nothing,
}

/// The path MTU of one direction, proven with packets that may not be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MtuProof {
    /// What was sent.
    pub by: Prober,
    /// The largest packet that arrived, with its IP header; `None` when none did.
    pub bytes: Option<u32>,
    /// The smallest that did not, always one more unless `limit` is the interface or nothing.
    pub stopped_bytes: Option<u32>,
    /// What stops larger ones.
    pub limit: MtuLimit,
    /// Packets sent for it.
    pub packets: u32,
}

/// What TCP made of the path in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpSegments {
    /// The payload of its largest segments.
    pub segment_bytes: u32,
    /// The path MTU as the kernel believes it.
    pub path_mtu_bytes: u32,
    /// Payload that was acknowledged; more than one segment proves that whole ones pass.
    pub acked_bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
}

impl TcpSegments {
    /// Whole segments arrived.
    pub fn proven(&self) -> bool {
        self.segment_bytes > 0 && self.acked_bytes > 2 * u64::from(self.segment_bytes)
    }
}
