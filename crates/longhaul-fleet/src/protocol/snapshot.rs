//! The state of a host at one time: its fastest TCP connections, and the cores with the most softirq time.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The maximum number of connections of a snapshot.
pub const MAX_FLOWS: usize = 20;
/// The maximum number of cores of a snapshot.
pub const MAX_CORES: usize = 8;
/// The maximum number of bytes of the name of a congestion control (`TCP_CA_NAME_MAX`), and of a program
/// (`TASK_COMM_LEN`).
pub const MAX_SHORT_NAME_BYTES: usize = 16;

/// The latest state of a host. The hub keeps one per host, and no earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostSnapshot {
    /// The time in ms since 1970 by the hub's clock.
    pub at_ms: i64,
    /// The TCP connections with the highest rates, the fastest first, at most [`MAX_FLOWS`]; `None` if
    /// the kernel cannot list them or the agent does not report them.
    #[serde(default)]
    pub flows: Option<Vec<Flow>>,
    /// The cores with the largest shares of softirq time, the largest first, at most [`MAX_CORES`].
    pub cores: Vec<CoreLoad>,
}

/// A TCP connection. Rates and retransmissions are those since the previous listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Flow {
    /// The local address and port.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub local: SocketAddr,
    /// The address and port of the peer.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub peer: SocketAddr,
    /// The name of the program, if the agent may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The user that owns the connection.
    pub user_id: u32,
    /// The congestion control.
    pub congestion: String,
    /// The rate of the received payload.
    pub in_bps: u64,
    /// The rate of the payload that the peer acknowledged.
    pub out_bps: u64,
    /// The rate at which the peer most recently acknowledged data.
    pub delivery_bps: u64,
    /// The smoothed round-trip time.
    pub rtt_ns: u64,
    /// The lowest round-trip time in the kernel's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// The congestion window in bytes of payload.
    pub congestion_window_bytes: u64,
    /// The retransmitted segments.
    pub retransmits: u64,
    /// The payload bytes to send, or sent and not acknowledged.
    pub queued_bytes: u64,
}

/// The load of one core, in millionths of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CoreLoad {
    /// The number of the core.
    pub core: u32,
    /// The share of time in which the core was busy.
    pub busy_ppm: u64,
    /// The share of softirq time.
    pub softirq_ppm: u64,
}

impl HostSnapshot {
    /// Returns whether the numbers and lengths are within their limits.
    pub fn is_valid(&self) -> bool {
        let flows = self.flows.as_deref().unwrap_or_default();
        let short = |text: &str| text.len() <= MAX_SHORT_NAME_BYTES;
        flows.len() <= MAX_FLOWS
            && self.cores.len() <= MAX_CORES
            && flows
                .iter()
                .all(|flow| short(&flow.congestion) && flow.program.as_deref().is_none_or(short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(flows: usize, name: &str) -> HostSnapshot {
        let flow = Flow {
            local: "[2001:db8::1]:5280".parse().unwrap(),
            peer: "192.0.2.1:40000".parse().unwrap(),
            program: Some(name.to_owned()),
            user_id: 0,
            congestion: "cubic".to_owned(),
            in_bps: 1,
            out_bps: 2,
            delivery_bps: 3,
            rtt_ns: 4,
            min_rtt_ns: None,
            congestion_window_bytes: 5,
            retransmits: 6,
            queued_bytes: 7,
        };
        HostSnapshot { at_ms: 1, flows: Some(vec![flow; flows]), cores: Vec::new() }
    }

    #[test]
    fn a_snapshot_is_bounded() {
        assert!(snapshot(MAX_FLOWS, "a program").is_valid());
        assert!(!snapshot(MAX_FLOWS + 1, "a program").is_valid());
        assert!(!snapshot(1, "a name of 17 byte").is_valid());
        let core = CoreLoad { core: 0, busy_ppm: 0, softirq_ppm: 0 };
        let cores = |count| HostSnapshot { cores: vec![core; count], ..snapshot(0, "") };
        assert!(cores(MAX_CORES).is_valid() && !cores(MAX_CORES + 1).is_valid());
    }

    #[test]
    fn a_snapshot_returns_from_json() {
        let one = snapshot(2, "cp");
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<HostSnapshot>(&text).unwrap(), one);
        let wrong = text.replace("192.0.2.1:40000", "<script>");
        assert!(serde_json::from_str::<HostSnapshot>(&wrong).is_err());
    }
}
