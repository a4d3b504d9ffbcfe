//! What one end of a flow saw: the half of a sample or result that it can vouch for.

use serde::{Deserialize, Serialize};

use super::{Curve, UdpCounts};
use crate::plan::CpuList;
use crate::units::{Bytes, Rate};

/// A sending connection in one interval, by the kernel's account (`TCP_INFO`). Counts and times
/// spent are those of the interval; the rest is the state at its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// The part of it in which the receiver's window held the sender back beyond what the kernel
    /// counts as such, by looks at the connection.
    #[serde(default)]
    pub rwnd_full_ms: f64,
    /// The part of it in which a full send buffer held the sender back beyond what the kernel
    /// counts as such, by looks at the connection.
    #[serde(default)]
    pub sndbuf_full_ms: f64,
    /// The part of it in which the congestion window was full, by looks at the connection.
    #[serde(default)]
    pub cwnd_limited_ms: f64,
    /// The part of it in which neither a window nor a lack of data held the sender back, by looks
    /// at the connection.
    #[serde(default)]
    pub paced_ms: f64,
    /// Mean of the smoothed round-trip time over the interval.
    #[serde(default)]
    pub rtt_mean_ms: f64,
    /// Segments with payload sent, retransmissions included.
    #[serde(default)]
    pub segments: u64,
    /// Segments whose acknowledgement told of congestion (ECN).
    #[serde(default)]
    pub marked_segments: u64,
}

/// The thread and the socket of one stream in one interval, at either end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadSample {
    /// The thread ran.
    pub running_percent: f64,
    /// The thread could have run and waited for a core; `None` when the kernel keeps no account.
    pub waiting_percent: Option<f64>,
    /// The core that it last ran on.
    pub core: u32,
    /// What that core did for anyone.
    pub core_busy_percent: f64,
    /// Of that core, interrupts and the network's soft interrupts.
    pub core_interrupts_percent: f64,
    /// Of that core, what the hypervisor took.
    pub core_stolen_percent: f64,
    /// The socket's buffer, in the kernel's own bytes: `SO_SNDBUF` at the sender, `SO_RCVBUF` at
    /// the receiver.
    pub buffer_bytes: Bytes,
    /// Mean of how full it was.
    pub buffer_full_percent: f64,
    /// Packets that the socket threw away.
    pub drops: u64,
}

/// The host of one end in one interval, beside the test's own threads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// All cores together, in percent of them all.
    pub cores_busy_percent: f64,
    /// The core with most interrupts, soft ones included.
    pub interrupts_core: u32,
    /// Its interrupts, in percent of that core.
    pub interrupts_percent: f64,
    /// The kernel's memory for TCP, of the whole host.
    pub tcp_memory_bytes: Bytes,
    /// Where pressure begins (`net.ipv4.tcp_mem`); 0 when it is not told.
    pub tcp_memory_pressure_bytes: Bytes,
    /// Time under pressure.
    pub tcp_memory_pressure_percent: f64,
    /// Packets that TCP threw away for want of room, and data it pruned.
    pub tcp_drops: u64,
    /// Packets that UDP's sockets threw away for want of room.
    pub udp_drops: u64,
    /// Packets lost at the interfaces and at the queues of the cores.
    pub interface_drops: u64,
}

/// What one end's kernel allows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostLimits {
    /// The largest buffer by autotuning: the third number of `net.ipv4.tcp_wmem` at the sender,
    /// of `tcp_rmem` at the receiver.
    pub autotuned_bytes: Bytes,
    /// The largest buffer to ask for: `net.core.wmem_max` at the sender, `rmem_max` at the
    /// receiver; 0 when it is not told.
    pub asked_bytes: Bytes,
    /// The fastest interface, by its driver; `None` without hardware.
    pub interface_bps: Option<Rate>,
}

/// One interval at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// The host.
    #[serde(default)]
    pub host: Option<HostSample>,
}

/// One stream in one interval at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SideStreamSample {
    /// Bytes written to or read from the connection.
    pub bytes: Bytes,
    /// The sender's connection; the receiver has nothing to say here.
    pub tcp: Option<TcpSample>,
    /// The datagrams of the interval, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpCounts>,
    /// The thread and the socket.
    #[serde(default)]
    pub thread: Option<ThreadSample>,
}

/// A whole test at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// Bytes over time; a receiver's alone.
    #[serde(default)]
    pub curve: Option<Curve>,
    /// What the kernel allows.
    #[serde(default)]
    pub limits: Option<HostLimits>,
}

/// One stream of a whole test at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
