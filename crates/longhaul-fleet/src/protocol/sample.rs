//! Samples: the counters of interfaces, and STAMP measurements.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Consecutive samples of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSamples {
    /// The number of the batch in the agent's journal, which the hub acknowledges.
    pub id: u64,
    /// The name of the interface.
    pub interface: String,
    /// The rate of the interface in bit/s, if the kernel knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
    /// The samples. The hub stores one row per interface and time, so a repeated row is harmless.
    pub rows: Vec<InterfaceRow>,
}

/// The counted traffic of an interface in one interval. In JSON it is an array in the order of the
/// fields.
///
/// An interval in which a counter went back (a reset) has no row: a gap is a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "[i64; 10]", into = "[i64; 10]")]
pub struct InterfaceRow {
    /// The end of the interval, in ms since 1970 by the hub's clock.
    pub end_ms: i64,
    /// The length of the interval in ms.
    pub span_ms: u32,
    /// The bytes received.
    pub in_bytes: u64,
    /// The bytes sent.
    pub out_bytes: u64,
    /// The packets received.
    pub in_packets: u64,
    /// The packets sent.
    pub out_packets: u64,
    /// The packets dropped on reception.
    pub in_drops: u64,
    /// The packets dropped on transmission.
    pub out_drops: u64,
    /// The errors on reception.
    pub in_errors: u64,
    /// The errors on transmission.
    pub out_errors: u64,
}

impl From<[i64; 10]> for InterfaceRow {
    fn from(row: [i64; 10]) -> Self {
        let count = |at: usize| row[at].max(0) as u64;
        InterfaceRow {
            end_ms: row[0],
            span_ms: row[1].clamp(0, i64::from(u32::MAX)) as u32,
            in_bytes: count(2),
            out_bytes: count(3),
            in_packets: count(4),
            out_packets: count(5),
            in_drops: count(6),
            out_drops: count(7),
            in_errors: count(8),
            out_errors: count(9),
        }
    }
}

impl From<InterfaceRow> for [i64; 10] {
    fn from(row: InterfaceRow) -> Self {
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        [
            row.end_ms,
            i64::from(row.span_ms),
            count(row.in_bytes),
            count(row.out_bytes),
            count(row.in_packets),
            count(row.out_packets),
            count(row.in_drops),
            count(row.out_drops),
            count(row.in_errors),
            count(row.out_errors),
        ]
    }
}

/// A peer that the agent measures with STAMP all the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampPeer {
    /// The name of the peer's host.
    pub host: String,
    /// The address of this agent in the mesh; the kernel chooses one if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// The address of the reflector.
    pub address: IpAddr,
    /// The UDP port of the reflector.
    pub port: u16,
    /// The interval between packets in ms; 10 or more.
    pub interval_ms: u32,
}

/// The STAMP measurements of one peer in one minute.
///
/// Delays are in ms. A value is `None` if no packet arrived, or the reflector or the clocks do not
/// permit the measurement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StampSummary {
    /// The number of the summary in the agent's journal, which the hub acknowledges.
    pub id: u64,
    /// The name of the peer's host.
    pub peer: String,
    /// The start of the period, in ms since 1970 by the hub's clock.
    pub start_ms: i64,
    /// The length of the period in ms.
    pub span_ms: u32,
    /// The packets sent.
    pub sent: u64,
    /// The packets without a reply.
    pub lost: u64,
    /// The packets lost in the direction to the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_forward: Option<u64>,
    /// The packets lost in the direction from the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_reverse: Option<u64>,
    /// The lowest round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min_ms: Option<f64>,
    /// The median round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p50_ms: Option<f64>,
    /// The 99th percentile of the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p99_ms: Option<f64>,
    /// The highest round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max_ms: Option<f64>,
    /// The median delay to the peer by both clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_p50_ms: Option<f64>,
    /// The median delay from the peer by both clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_p50_ms: Option<f64>,
    /// The possible error of the one-way delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ms: Option<f64>,
    /// The duplicates in both directions.
    #[serde(default)]
    pub duplicates: u64,
    /// The reordered packets in both directions.
    #[serde(default)]
    pub reordered: u64,
}
