//! What one end of a flow saw: the half of a sample or result that it can vouch for.

use serde::{Deserialize, Serialize};

use super::UdpCounts;
use crate::plan::CpuList;
use crate::units::{Bytes, Rate};

/// A sending connection in one interval, by the kernel's account (`TCP_INFO`). Retransmissions
/// and the four times are those of the interval; the rest is the state at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Smoothed round-trip time.
    pub rtt_ms: f64,
    /// Its mean deviation.
    pub rtt_variation_ms: f64,
    /// Congestion window.
    pub cwnd_bytes: Bytes,
    /// The window the receiver advertised.
    pub peer_window_bytes: Bytes,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// The rate at which the receiver most recently acknowledged data.
    pub delivery_rate_bps: Rate,
    /// That rate was limited by the sending program, not by the path.
    pub app_limited: bool,
    /// Bytes in the send queue, not sent once.
    pub notsent_bytes: Bytes,
    /// Time with data in flight or to send.
    pub busy_ms: f64,
    /// The part of it in which the receiver's window held the sender back.
    pub rwnd_limited_ms: f64,
    /// The part of it in which the send buffer held the sender back.
    pub sndbuf_limited_ms: f64,
}

/// One interval at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSample {
    /// Counts intervals from 0; the same number at both ends is the same interval.
    pub index: u32,
    /// The interval lies in the omitted time.
    pub omitted: bool,
    /// From when, on this end's clock, which starts with the first byte.
    pub start_seconds: f64,
    /// Until when.
    pub end_seconds: f64,
    /// CPU time used for the test.
    pub cpu_seconds: f64,
    /// It is of the half from the server to the client, in a test of both directions.
    #[serde(default)]
    pub reverse: bool,
    /// The streams, in order of their number.
    pub streams: Vec<SideStreamSample>,
}

/// One stream in one interval at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideStreamSample {
    /// Bytes written to or read from the connection.
    pub bytes: Bytes,
    /// The sender's connection; the receiver has nothing to say here.
    pub tcp: Option<TcpSample>,
    /// The datagrams of the interval, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpCounts>,
}

/// A whole test at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// From the end of the omitted time to the last byte; at the receiver to the end of data.
    pub seconds: f64,
    /// CPU time used for the test in [`seconds`](Self::seconds).
    pub cpu_seconds: f64,
    /// Why this end broke off; `None` when its streams ran to their end.
    pub cut: Option<String>,
    /// It is of the half from the server to the client, in a test of both directions.
    #[serde(default)]
    pub reverse: bool,
    /// The streams, in order of their number.
    pub streams: Vec<SideStream>,
}

/// One stream of a whole test at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideStream {
    /// Bytes after the omitted time.
    pub bytes: Bytes,
    /// Bytes from the first to the last, omitted or not.
    pub total_bytes: Bytes,
    /// From the end of the omitted time to this stream's last byte.
    pub seconds: f64,
    /// CPU time of this stream's thread in [`seconds`](Self::seconds).
    pub cpu_seconds: f64,
    /// Segments retransmitted after the omitted time.
    pub retransmits: u64,
    /// Mean of the round-trip times sampled; at the receiver, the handshake's.
    pub rtt_ms: f64,
    /// The least round-trip time the kernel saw.
    pub rtt_min_ms: f64,
    /// Congestion control in use.
    pub congestion: String,
    /// Maximum segment size in use.
    pub mss: u32,
    /// The socket buffer of this end: the send buffer of a sender, the receive buffer of a
    /// receiver, as it was when the test began.
    pub buffer_bytes: Bytes,
    /// The datagrams after the omitted time, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpCounts>,
    /// This end's address and port.
    #[serde(default)]
    pub address: Option<String>,
    /// The CPUs that the stream's thread was bound to; `None` when it was free.
    #[serde(default)]
    pub cpus: Option<CpuList>,
    /// Whether the stream is still multipath, in a test over MPTCP: it falls back to plain TCP
    /// where the peer or the path does not have it.
    #[serde(default)]
    pub multipath: Option<bool>,
    /// Why the stream broke off; `None` when it ran to its end.
    pub failure: Option<String>,
}
