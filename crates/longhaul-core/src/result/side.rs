//! The samples and results of one end of a flow.

use serde::{Deserialize, Serialize};

use super::{Curve, UdpCounts};
use crate::plan::CpuList;
use crate::units::{Bytes, Rate};

/// A sending connection in one interval, from `TCP_INFO`. Counts and times cover the interval;
/// other fields are the state at its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TcpSample {
    /// The smoothed round-trip time in ms.
    pub rtt_ms: f64,
    /// The mean deviation of the round-trip time in ms.
    pub rtt_variation_ms: f64,
    /// The congestion window.
    pub cwnd_bytes: Bytes,
    /// The window that the receiver advertised.
    pub peer_window_bytes: Bytes,
    /// The number of retransmitted segments.
    pub retransmits: u64,
    /// The rate at which the receiver most recently acknowledged data.
    pub delivery_rate_bps: Rate,
    /// True if the sending program, and not the path, limited that rate.
    pub app_limited: bool,
    /// The bytes in the send queue that have not been sent.
    pub notsent_bytes: Bytes,
    /// The time with data in flight or to send, in ms.
    pub busy_ms: f64,
    /// The part of `busy_ms` in which the receiver's window limited the sender.
    pub rwnd_limited_ms: f64,
    /// The part of `busy_ms` in which the send buffer limited the sender.
    pub sndbuf_limited_ms: f64,
    /// The part of `busy_ms` in which, by the samples, the receiver's window limited the sender, in
    /// addition to the kernel's count.
    #[serde(default)]
    pub rwnd_full_ms: f64,
    /// The part of `busy_ms` in which, by the samples, a full send buffer limited the sender, in
    /// addition to the kernel's count.
    #[serde(default)]
    pub sndbuf_full_ms: f64,
    /// The part of `busy_ms` in which, by the samples, the congestion window was full.
    #[serde(default)]
    pub cwnd_limited_ms: f64,
    /// The part of `busy_ms` in which, by the samples, neither a window nor a lack of data limited
    /// the sender.
    #[serde(default)]
    pub paced_ms: f64,
    /// The mean of the smoothed round-trip time over the interval, in ms.
    #[serde(default)]
    pub rtt_mean_ms: f64,
    /// The number of segments with payload sent, including retransmissions.
    #[serde(default)]
    pub segments: u64,
    /// The number of segments acknowledged with a congestion mark (ECN).
    #[serde(default)]
    pub marked_segments: u64,
    /// The part of `retransmits` that came in bursts while no packets waited in a queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub burst_retransmits: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The thread and the socket of one stream in one interval, at either end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadSample {
    /// The share of time in which the thread ran.
    pub running_percent: f64,
    /// The share of time in which the thread was ready but waited for a core; `None` if the kernel
    /// provides no such statistic.
    pub waiting_percent: Option<f64>,
    /// The core that the thread last ran on.
    pub core: u32,
    /// The use of that core by all programs.
    pub core_busy_percent: f64,
    /// The share of that core in interrupts and the network's soft interrupts.
    pub core_interrupts_percent: f64,
    /// The share of that core that the hypervisor took.
    pub core_stolen_percent: f64,
    /// The size of the socket buffer including the kernel's overhead: `SO_SNDBUF` at the sender,
    /// `SO_RCVBUF` at the receiver.
    pub buffer_bytes: Bytes,
    /// The mean fill level of the buffer.
    pub buffer_full_percent: f64,
    /// The number of packets that the socket dropped.
    pub drops: u64,
}

/// The host of one end in one interval, including other programs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// The use of all cores together, in percent of all.
    pub cores_busy_percent: f64,
    /// The core with the most interrupts, including soft interrupts.
    pub interrupts_core: u32,
    /// The share of that core in interrupts.
    pub interrupts_percent: f64,
    /// The kernel's memory for TCP, of the whole host.
    pub tcp_memory_bytes: Bytes,
    /// The threshold from which the kernel limits buffers (`net.ipv4.tcp_mem`); 0 if unknown.
    pub tcp_memory_pressure_bytes: Bytes,
    /// The share of time in which the kernel limited buffers.
    pub tcp_memory_pressure_percent: f64,
    /// The packets that TCP dropped for lack of space, including pruned data.
    pub tcp_drops: u64,
    /// The packets that UDP sockets dropped for lack of space.
    pub udp_drops: u64,
    /// The packets dropped by the interfaces and the queues of the cores.
    pub interface_drops: u64,
}

/// The limits of one end's kernel.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostLimits {
    /// The largest autotuned buffer: the third number of `net.ipv4.tcp_wmem` at the sender, of
    /// `tcp_rmem` at the receiver.
    pub autotuned_bytes: Bytes,
    /// The largest buffer that can be requested: `net.core.wmem_max` at the sender, `rmem_max` at
    /// the receiver; 0 if unknown.
    pub asked_bytes: Bytes,
    /// The rate of the fastest interface, as its driver reports it; `None` without a hardware
    /// interface.
    pub interface_bps: Option<Rate>,
}

/// One interval at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SideSample {
    /// The number of the interval, from 0; equal numbers at both ends mean the same interval.
    pub index: u32,
    /// True if the interval is in the omitted time.
    pub omitted: bool,
    /// The start in seconds on this end's clock, which starts with the first byte.
    pub start_seconds: f64,
    /// The end in seconds.
    pub end_seconds: f64,
    /// The CPU seconds used for the test.
    pub cpu_seconds: f64,
    /// True for the direction from server to client of a bidirectional test.
    #[serde(default)]
    pub reverse: bool,
    /// The streams, by number.
    pub streams: Vec<SideStreamSample>,
    /// The host.
    #[serde(default)]
    pub host: Option<HostSample>,
}

/// One stream in one interval at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SideStreamSample {
    /// The bytes written to or read from the connection.
    pub bytes: Bytes,
    /// The state of the sender's connection; `None` at the receiver.
    pub tcp: Option<TcpSample>,
    /// The datagram counters of the interval, in a UDP test.
    #[serde(default)]
    pub udp: Option<UdpCounts>,
    /// The thread and the socket.
    #[serde(default)]
    pub thread: Option<ThreadSample>,
}

/// A whole test at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SideResult {
    /// The seconds from the end of the omitted time to the last byte; at the receiver to the end of
    /// the stream.
    pub seconds: f64,
    /// The CPU seconds used for the test in [`seconds`](Self::seconds).
    pub cpu_seconds: f64,
    /// The reason why this end was cut off; `None` if its streams completed.
    pub cut: Option<String>,
    /// True for the direction from server to client of a bidirectional test.
    #[serde(default)]
    pub reverse: bool,
    /// The streams, by number.
    pub streams: Vec<SideStream>,
    /// The bytes over time, at a receiver only.
    #[serde(default)]
    pub curve: Option<Curve>,
    /// The limits of the kernel.
    #[serde(default)]
    pub limits: Option<HostLimits>,
}

impl SideResult {
    /// Adds an interval to the totals of an end that reports no result.
    pub fn add(&mut self, sample: &SideSample) {
        let seconds = if sample.omitted { 0.0 } else { sample.end_seconds - sample.start_seconds };
        let counted = u64::from(!sample.omitted);
        self.reverse = sample.reverse;
        self.seconds += seconds;
        self.cpu_seconds += sample.cpu_seconds * counted as f64;
        let streams = self.streams.len().max(sample.streams.len());
        self.streams.resize(streams, SideStream::default());
        for (stream, sample) in self.streams.iter_mut().zip(&sample.streams) {
            let bytes = sample.bytes.get();
            stream.total_bytes = Bytes::new(stream.total_bytes.get().saturating_add(bytes));
            stream.bytes = Bytes::new(stream.bytes.get().saturating_add(bytes * counted));
            stream.seconds += seconds;
            if let Some(tcp) = &sample.tcp {
                stream.retransmits = stream.retransmits.saturating_add(tcp.retransmits * counted);
                stream.rtt_ms = tcp.rtt_ms;
                stream.rtt_min_ms = match stream.rtt_min_ms {
                    0.0 => tcp.rtt_ms,
                    lowest => lowest.min(tcp.rtt_ms),
                };
            }
        }
    }
}

/// One stream of a whole test at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SideStream {
    /// The bytes after the omitted time.
    pub bytes: Bytes,
    /// The bytes including the omitted time.
    pub total_bytes: Bytes,
    /// Seconds from the end of the omitted time to this stream's last byte.
    pub seconds: f64,
    /// The CPU seconds of this stream's thread in [`seconds`](Self::seconds).
    pub cpu_seconds: f64,
    /// The segments retransmitted after the omitted time.
    pub retransmits: u64,
    /// The mean of the sampled round-trip times in ms; at the receiver that of the handshake.
    pub rtt_ms: f64,
    /// The lowest round-trip time in ms that the kernel measured.
    pub rtt_min_ms: f64,
    /// The congestion control in use.
    pub congestion: String,
    /// The maximum segment size in use.
    pub mss: u32,
    /// The socket buffer of this end at the start of the test: the send buffer of a sender, the
    /// receive buffer of a receiver.
    pub buffer_bytes: Bytes,
    /// The datagram counters after the omitted time, in a UDP test.
    #[serde(default)]
    pub udp: Option<UdpCounts>,
    /// This end's address and port.
    #[serde(default)]
    pub address: Option<String>,
    /// The CPUs to which the stream's thread was bound; `None` if it was not bound.
    #[serde(default)]
    pub cpus: Option<CpuList>,
    /// True if the connection is still multipath, in an MPTCP test. It falls back to plain TCP if
    /// the peer or the path does not support MPTCP.
    #[serde(default)]
    pub multipath: Option<bool>,
    /// The reason why the stream was cut off; `None` if it completed.
    pub failure: Option<String>,
}
