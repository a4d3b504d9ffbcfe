use serde::{Deserialize, Serialize};

use super::{Reason, Shares, Steady};
use crate::plan::{CpuList, FlowPlan};
use crate::result::{HostSample, LatencyResult, TcpSample, ThreadSample, UdpResult, Warning};
use crate::units::{Bytes, Rate};

/// The schema of [`FlowResult`].
pub const FLOW_SCHEMA: &str = "longhaul.test/1";

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum FlowEnd {
    /// It ran to the end of its plan.
    Completed,
    /// The user stopped it; what was measured until then is complete.
    Interrupted,
    /// It broke off.
    Cut {
        /// One sentence.
        reason: String,
    },
}

/// A whole test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowResult {
    /// [`FLOW_SCHEMA`].
    pub schema: String,
    /// The version of the client.
    pub version: String,
    /// The server, as the user named it.
    pub target: String,
    /// The server that was its client, in a test between two servers.
    #[serde(default)]
    pub third_party: Option<String>,
    /// What was run.
    pub plan: FlowPlan,
    /// How it ended.
    pub end: FlowEnd,
    /// The figures over all streams.
    pub summary: FlowSummary,
    /// The streams, in order of their number.
    pub streams: Vec<StreamResult>,
    /// The intervals, in order of time.
    pub intervals: Vec<FlowSample>,
    /// The half from the server to the client, in a test of both directions; what stands beside
    /// it is then the other half.
    #[serde(default)]
    pub reverse: Option<Box<FlowHalf>>,
    /// Round-trip times of small requests beside the test, where they were asked for.
    #[serde(default)]
    pub latency: Option<LatencyResult>,
    /// What makes the result less than it seems.
    pub warnings: Vec<Warning>,
}

/// One direction of a test of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowHalf {
    /// The figures over its streams.
    pub summary: FlowSummary,
    /// Its streams, in order of their number.
    pub streams: Vec<StreamResult>,
    /// Its intervals, in order of time.
    pub intervals: Vec<FlowSample>,
}

/// The figures over all streams, without the omitted time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Goodput: payload bytes counted at the receiver, over the receiver's time.
    pub throughput_bps: Rate,
    /// The end that gave the bytes.
    pub sender: SideSummary,
    /// The end that took them.
    pub receiver: SideSummary,
    /// Both ends counted the same bytes on every stream, omitted time included; `None` for a test
    /// that was cut.
    pub totals_agree: Option<bool>,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The links that the streams were spread over, in the order of the plan.
    #[serde(default)]
    pub links: Vec<LinkSummary>,
    /// The part after the ramp-up; `None` when the rate did not settle.
    #[serde(default)]
    pub steady: Option<Steady>,
    /// Why the rate is what it is; `None` when the ends' accounts do not cover an interval.
    #[serde(default)]
    pub reason: Option<Reason>,
}

/// One of the links that a test was spread over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Its number, from 0.
    pub link: u32,
    /// The client's address; `None` where the routing table chose it.
    pub client: Option<String>,
    /// The server's address; `None` where it is that of the control channel.
    pub server: Option<String>,
    /// How many streams used it.
    pub streams: u32,
    /// Bytes at the receiver after the omitted time.
    pub bytes: Bytes,
    /// Goodput of its streams together, at the receiver.
    pub throughput_bps: Rate,
    /// Segments its senders retransmitted.
    pub retransmits: u64,
}

/// One end over all streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// Bytes after the omitted time.
    pub bytes: Bytes,
    /// Bytes with the omitted time.
    pub total_bytes: Bytes,
    /// From the end of the omitted time to the last byte.
    pub seconds: f64,
    /// CPU time over time, in percent of one core.
    pub cpu_percent: f64,
    /// Segments this end retransmitted.
    pub retransmits: u64,
    /// Round-trip time by this end's kernel: the mean of the sender's samples; the receiver, who
    /// sends nothing, knows that of the handshake.
    pub rtt_ms: f64,
    /// The least round-trip time this end's kernel saw.
    pub rtt_min_ms: f64,
}

/// One stream of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamResult {
    /// Its number, from 0.
    pub stream: u32,
    /// Goodput of this stream at the receiver.
    pub throughput_bps: Rate,
    /// Bytes at the receiver after the omitted time.
    pub bytes: Bytes,
    /// The receiver's time.
    pub seconds: f64,
    /// Segments the sender retransmitted.
    pub retransmits: u64,
    /// Mean of the sender's round-trip times.
    pub rtt_ms: f64,
    /// The least of them that the kernel saw.
    pub rtt_min_ms: f64,
    /// CPU time of the sender's thread, in percent of one core.
    pub sender_cpu_percent: f64,
    /// CPU time of the receiver's thread, in percent of one core.
    pub receiver_cpu_percent: f64,
    /// The sender's congestion control.
    pub congestion: String,
    /// The sender's segment size.
    pub mss: u32,
    /// The sender's send buffer when the test began.
    pub send_buffer_bytes: Bytes,
    /// The receiver's receive buffer when the test began.
    pub receive_buffer_bytes: Bytes,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The link that it used, in a test over several.
    #[serde(default)]
    pub link: Option<u32>,
    /// The sender's address and port.
    #[serde(default)]
    pub sender_address: Option<String>,
    /// The receiver's address and port.
    #[serde(default)]
    pub receiver_address: Option<String>,
    /// The CPUs that the sender's thread was bound to.
    #[serde(default)]
    pub sender_cpus: Option<CpuList>,
    /// The CPUs that the receiver's thread was bound to.
    #[serde(default)]
    pub receiver_cpus: Option<CpuList>,
    /// Whether it was multipath to its end, in a test over MPTCP.
    #[serde(default)]
    pub multipath: Option<bool>,
    /// Why the stream broke off; `None` when it ran to its end.
    pub failure: Option<String>,
}

/// One interval of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// Counts intervals from 0.
    pub index: u32,
    /// The interval lies in the omitted time.
    pub omitted: bool,
    /// It is of the half from the server to the client, in a test of both directions.
    #[serde(default)]
    pub reverse: bool,
    /// From when, on the receiver's clock, which starts with the first byte.
    pub start_seconds: f64,
    /// Until when.
    pub end_seconds: f64,
    /// Bytes at the receiver.
    pub bytes: Bytes,
    /// Goodput at the receiver.
    pub throughput_bps: Rate,
    /// Segments retransmitted; `None` without the sender's account of this interval, which
    /// happens to the last one only.
    pub retransmits: Option<u64>,
    /// Mean over the streams of the sender's smoothed round-trip times.
    pub rtt_ms: Option<f64>,
    /// Where the time of the sending connections went; `None` over UDP, which nothing but its
    /// sender holds back.
    #[serde(default)]
    pub shares: Option<Shares>,
    /// The sender's CPU time, in percent of one core.
    pub sender_cpu_percent: Option<f64>,
    /// The receiver's CPU time, in percent of one core.
    pub receiver_cpu_percent: f64,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The streams, in order of their number.
    pub streams: Vec<StreamSample>,
    /// The sender's host.
    #[serde(default)]
    pub sender_host: Option<HostSample>,
    /// The receiver's host.
    #[serde(default)]
    pub receiver_host: Option<HostSample>,
}

/// One stream in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Its number, from 0.
    pub stream: u32,
    /// Bytes at the receiver.
    pub bytes: Bytes,
    /// Goodput at the receiver.
    pub throughput_bps: Rate,
    /// The sender's connection.
    pub sender: Option<TcpSample>,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The thread and the socket of the sender.
    #[serde(default)]
    pub sender_thread: Option<ThreadSample>,
    /// The thread and the socket of the receiver.
    #[serde(default)]
    pub receiver_thread: Option<ThreadSample>,
}
