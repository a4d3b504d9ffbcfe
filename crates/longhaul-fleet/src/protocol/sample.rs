//! Samples: the counters and queues of interfaces, the host as a whole, and STAMP measurements.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Consecutive samples of one interface, or of the host as a whole.
///
/// A hub without `queue` and `host` acknowledges the batch and ignores them, so an agent does not keep
/// them for such a hub.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SampleBatch {
    /// The number of the batch in the agent's journal, which the hub acknowledges.
    pub id: u64,
    /// The name of the interface; empty if the batch has samples of the host.
    pub interface: String,
    /// The rate of the interface in bit/s, if the kernel knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
    /// The counters. The hub stores one row per interface and time, so a repeated row is harmless.
    pub rows: Vec<InterfaceRow>,
    /// The queue of the interface; empty if it has no queueing discipline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueueRow>,
    /// The samples of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostRow>,
}

impl SampleBatch {
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.len() + self.queue.len() + self.host.len()
    }
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

/// The queueing discipline of an interface. In JSON it is an array in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "[Option<i64>; 5]", into = "[Option<i64>; 5]")]
pub struct QueueRow {
    /// The end of the interval, in ms since 1970 by the hub's clock.
    pub end_ms: i64,
    /// The length of the interval in ms.
    pub span_ms: u32,
    /// The bytes in the queue at the end of the interval.
    pub bytes: u64,
    /// The packets in the queue at the end of the interval.
    pub packets: u64,
    /// The packets that the queue dropped in the interval; `None` after a reset of the counter.
    pub drops: Option<u64>,
}

impl From<[Option<i64>; 5]> for QueueRow {
    fn from([end_ms, span_ms, bytes, packets, drops]: [Option<i64>; 5]) -> Self {
        QueueRow {
            end_ms: end_ms.unwrap_or_default(),
            span_ms: span_of(span_ms),
            bytes: count_of(bytes).unwrap_or_default(),
            packets: count_of(packets).unwrap_or_default(),
            drops: count_of(drops),
        }
    }
}

impl From<QueueRow> for [Option<i64>; 5] {
    fn from(row: QueueRow) -> Self {
        [
            Some(row.end_ms),
            Some(row.span_ms.into()),
            number(Some(row.bytes)),
            number(Some(row.packets)),
            number(row.drops),
        ]
    }
}

/// The TCP connections and the cores of a host in one interval. In JSON it is an array in the order of
/// the fields. A value is `None` if it was not measured, for example after a reset of a counter.
///
/// Shares of time are in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "[Option<i64>; 10]", into = "[Option<i64>; 10]")]
pub struct HostRow {
    /// The end of the interval, in ms since 1970 by the hub's clock.
    pub end_ms: i64,
    /// The length of the interval in ms.
    pub span_ms: u32,
    /// The TCP segments sent, without retransmissions.
    pub segments: Option<u64>,
    /// The TCP segments retransmitted.
    pub retransmits: Option<u64>,
    /// The established TCP connections at the end of the interval.
    pub connections: Option<u64>,
    /// The mean share of time in which the cores were busy.
    pub busy_ppm: Option<u64>,
    /// The share of the busiest core.
    pub max_busy_ppm: Option<u64>,
    /// The mean share of softirq time of the cores.
    pub softirq_ppm: Option<u64>,
    /// The largest share of softirq time of one core.
    pub max_softirq_ppm: Option<u64>,
    /// The mean share of stolen time of the cores.
    pub steal_ppm: Option<u64>,
}

impl From<[Option<i64>; 10]> for HostRow {
    fn from(row: [Option<i64>; 10]) -> Self {
        HostRow {
            end_ms: row[0].unwrap_or_default(),
            span_ms: span_of(row[1]),
            segments: count_of(row[2]),
            retransmits: count_of(row[3]),
            connections: count_of(row[4]),
            busy_ppm: count_of(row[5]),
            max_busy_ppm: count_of(row[6]),
            softirq_ppm: count_of(row[7]),
            max_softirq_ppm: count_of(row[8]),
            steal_ppm: count_of(row[9]),
        }
    }
}

impl From<HostRow> for [Option<i64>; 10] {
    fn from(row: HostRow) -> Self {
        [
            Some(row.end_ms),
            Some(row.span_ms.into()),
            number(row.segments),
            number(row.retransmits),
            number(row.connections),
            number(row.busy_ppm),
            number(row.max_busy_ppm),
            number(row.softirq_ppm),
            number(row.max_softirq_ppm),
            number(row.steal_ppm),
        ]
    }
}

fn span_of(value: Option<i64>) -> u32 {
    value.map_or(0, |ms| ms.clamp(0, i64::from(u32::MAX)) as u32)
}

fn count_of(value: Option<i64>) -> Option<u64> {
    value.map(|count| count.max(0).unsigned_abs())
}

fn number(count: Option<u64>) -> Option<i64> {
    count.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_arrays_in_which_the_unmeasured_is_null() {
        let row = HostRow {
            end_ms: 9,
            span_ms: 1000,
            retransmits: Some(3),
            steal_ppm: Some(250_000),
            ..HostRow::default()
        };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, "[9,1000,null,3,null,null,null,null,null,250000]");
        assert_eq!(serde_json::from_str::<HostRow>(&text).unwrap(), row);
        let row = QueueRow { end_ms: 9, span_ms: 1000, bytes: 3000, packets: 2, drops: None };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, "[9,1000,3000,2,null]");
        assert_eq!(serde_json::from_str::<QueueRow>(&text).unwrap(), row);
    }

    #[test]
    fn numbers_of_a_peer_are_limited() {
        let row: QueueRow = serde_json::from_str("[null,-5,-1,9223372036854775807,-9]").unwrap();
        let limited =
            QueueRow { bytes: 0, packets: i64::MAX.unsigned_abs(), drops: Some(0), ..row };
        assert_eq!((row, row.span_ms, row.end_ms), (limited, 0, 0));
        assert!(serde_json::from_str::<QueueRow>("[1,2,3,4]").is_err());
        assert!(serde_json::from_str::<HostRow>("[1,2,3,4,5,6,7,8,9,0.5]").is_err());
    }

    #[test]
    fn a_batch_of_an_earlier_version_is_read() {
        let text = r#"{"id": 7, "interface": "eth0", "rows": [[1000,1000,5,6,7,8,0,0,0,0]]}"#;
        let batch: SampleBatch = serde_json::from_str(text).unwrap();
        assert_eq!((batch.row_count(), batch.rows[0].out_packets), (1, 8));
        // The text of a batch of an interface without queue is that of earlier versions.
        let again = serde_json::to_string(&batch).unwrap();
        assert_eq!(again, text.replace(": ", ":").replace(", ", ","));
    }
}
