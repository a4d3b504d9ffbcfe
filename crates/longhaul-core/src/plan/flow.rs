use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::seconds;
use crate::units::{Bytes, Rate};

/// Which way the bytes of a test go, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends.
    Forward,
    /// The server sends.
    Reverse,
}

/// How much a test moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// As much as passes in this time.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
    /// This many bytes over all streams together.
    Bytes(Bytes),
}

/// A memory-to-memory test over TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPlan {
    /// Which way the bytes go.
    pub direction: Direction,
    /// When the test ends.
    pub amount: Amount,
    /// The first seconds, left out of the result (`-O`).
    #[serde(rename = "omit_seconds", with = "seconds")]
    pub omit: Duration,
    /// Time between samples (`-i`).
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// TCP connections, one thread each at both ends (`-P`); 1 to 128.
    pub streams: u32,
    /// Bytes in one write and one read (`-l`).
    pub write_bytes: Bytes,
    /// Socket buffers asked for (`-w`); `None` leaves the kernel's autotuning alone.
    pub window_bytes: Option<Bytes>,
    /// Congestion control (`-C`); `None` leaves the host's.
    pub congestion: Option<String>,
    /// Maximum segment size (`-M`).
    pub mss: Option<u32>,
    /// Pacing rate for all streams together (`-b`); `None` is unpaced.
    pub rate_bps: Option<Rate>,
}
