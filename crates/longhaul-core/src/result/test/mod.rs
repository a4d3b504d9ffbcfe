//! `longhaul.test/1`: the result of a memory-to-memory test, combined from its two ends.
//!
//! The samples of both ends are [joined](TestSample::join) per interval, and their results
//! [folded](TestResult::fold) into one document. The [steady part](Steady) is separated from the
//! ramp-up, and the [reason](Reason) for the rate is derived from the [facts](TestFacts).

mod facts;
mod fold;
mod gather;
mod reason;
mod report;
mod shares;
mod spoiled;
mod steady;

use serde::{Deserialize, Serialize};

use crate::plan::{CpuList, TestPlan};
use crate::result::{
    End, HostSample, Invocation, LatencyResult, TcpSample, ThreadSample, UdpResult, Warning,
};
use crate::units::{Bytes, Rate};

pub use facts::{EndFacts, TestFacts};
pub use fold::MeasuredHalf;
pub use reason::{Reason, TestLimit};
pub use report::{SideReport, SideStreamReport};
pub use shares::{Holder, Shares};
pub use steady::{Curve, Steady};

/// The schema of [`TestResult`].
pub const TEST_SCHEMA: &str = "longhaul.test/1";

/// The reason for the end of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum TestEnd {
    /// The test completed its plan.
    Completed,
    /// The user stopped the test; the results until then are complete.
    Interrupted,
    /// The test was cut off.
    Cut {
        /// The reason, as one sentence.
        reason: String,
    },
}

/// The result of a whole test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// [`TEST_SCHEMA`].
    pub schema: String,
    /// The version of the client.
    pub version: String,
    /// The server as the user named it.
    pub target: String,
    /// The server that acted as the client, in a test between two servers.
    #[serde(default)]
    pub third_party: Option<String>,
    /// The server's program in a test against another program; `None` if it is longhaul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<TestPeer>,
    /// The command of the client; `None` in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<Invocation>,
    /// The plan of the test.
    pub plan: TestPlan,
    /// The reason for the end of the test.
    pub end: TestEnd,
    /// The totals over all streams.
    pub summary: TestSummary,
    /// The streams, in order of their number.
    pub streams: Vec<StreamResult>,
    /// The intervals, in order of time.
    pub intervals: Vec<TestSample>,
    /// The direction from server to client of a bidirectional test; the other fields describe the
    /// direction from client to server.
    #[serde(default)]
    pub reverse: Option<Box<TestHalf>>,
    /// The round-trip times of small requests during the test, if requested.
    #[serde(default)]
    pub latency: Option<LatencyResult>,
    /// The reasons why the result may be misleading.
    pub warnings: Vec<Warning>,
}

/// The server's program in a test against another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestPeer {
    /// The name of the program, as in the scheme of its address.
    pub program: String,
    /// The version that the peer stated; `None` if its protocol has no version.
    #[serde(default)]
    pub version: Option<String>,
}

/// One direction of a bidirectional test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestHalf {
    /// The totals over the streams of this direction.
    pub summary: TestSummary,
    /// The streams of this direction, by number.
    pub streams: Vec<StreamResult>,
    /// The intervals of this direction, by time.
    pub intervals: Vec<TestSample>,
}

/// The totals over all streams, without the omitted time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestSummary {
    /// The goodput: payload bytes counted at the receiver, divided by the receiver's time.
    pub throughput_bps: Rate,
    /// The sending end.
    pub sender: SideSummary,
    /// The receiving end.
    pub receiver: SideSummary,
    /// True if both ends counted the same bytes on every stream, including omitted time; `None` for
    /// a test that was cut off.
    pub totals_agree: Option<bool>,
    /// The datagram counters of a UDP test.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The links of the streams, in the order of the plan.
    #[serde(default)]
    pub links: Vec<LinkSummary>,
    /// The part after the ramp-up; `None` if the rate did not become steady.
    #[serde(default)]
    pub steady: Option<Steady>,
    /// The reason for the rate; `None` if both reports do not share an interval.
    #[serde(default)]
    pub reason: Option<Reason>,
}

/// One of the links of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// The number of the link, from 0.
    pub link: u32,
    /// The client's address; `None` if the routing table chose it.
    pub client: Option<String>,
    /// The server's address; `None` if it is that of the control channel.
    pub server: Option<String>,
    /// The number of streams on the link.
    pub streams: u32,
    /// The bytes received after the omitted time.
    pub bytes: Bytes,
    /// The goodput of the link's streams together, at the receiver.
    pub throughput_bps: Rate,
    /// The segments that the link's senders retransmitted.
    pub retransmits: Option<u64>,
}

/// The totals of one end over all streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// The bytes after the omitted time.
    pub bytes: Bytes,
    /// The bytes including the omitted time.
    ///
    /// This field and the optional ones below are `None` if the end is a program whose protocol
    /// does not carry them.
    pub total_bytes: Option<Bytes>,
    /// Seconds from the end of the omitted time to the last byte.
    pub seconds: f64,
    /// The CPU time in percent of one core.
    pub cpu_percent: Option<f64>,
    /// The segments that this end retransmitted.
    pub retransmits: Option<u64>,
    /// The round-trip time in ms that this end's kernel measured: the mean of the sender's samples.
    /// The receiver sends no data, so its value is that of the handshake.
    pub rtt_ms: Option<f64>,
    /// The lowest round-trip time in ms that this end's kernel measured.
    pub rtt_min_ms: Option<f64>,
}

/// One stream of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamResult {
    /// The number of the stream, from 0.
    pub stream: u32,
    /// The goodput of this stream at the receiver.
    pub throughput_bps: Rate,
    /// The bytes received after the omitted time.
    pub bytes: Bytes,
    /// The receiver's time in seconds.
    pub seconds: f64,
    /// The segments that the sender retransmitted. This field and the optional ones below are
    /// `None` if they belong to a program whose protocol does not carry them.
    pub retransmits: Option<u64>,
    /// The mean of the sender's round-trip times in ms.
    pub rtt_ms: Option<f64>,
    /// The lowest round-trip time in ms that the sender's kernel measured.
    pub rtt_min_ms: Option<f64>,
    /// The CPU time of the sender's thread in percent of one core.
    pub sender_cpu_percent: Option<f64>,
    /// The CPU time of the receiver's thread in percent of one core.
    pub receiver_cpu_percent: Option<f64>,
    /// The sender's congestion control; empty if it is unknown.
    pub congestion: String,
    /// The sender's segment size in bytes.
    pub mss: Option<u32>,
    /// The sender's send buffer at the start of the test.
    pub send_buffer_bytes: Option<Bytes>,
    /// The receiver's receive buffer at the start of the test.
    pub receive_buffer_bytes: Option<Bytes>,
    /// The datagram counters of a UDP test.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The link of the stream, in a test over several links.
    #[serde(default)]
    pub link: Option<u32>,
    /// The sender's address and port.
    #[serde(default)]
    pub sender_address: Option<String>,
    /// The receiver's address and port.
    #[serde(default)]
    pub receiver_address: Option<String>,
    /// The CPUs to which the sender's thread was bound.
    #[serde(default)]
    pub sender_cpus: Option<CpuList>,
    /// The CPUs to which the receiver's thread was bound.
    #[serde(default)]
    pub receiver_cpus: Option<CpuList>,
    /// True if the connection was multipath until its end, in an MPTCP test.
    #[serde(default)]
    pub multipath: Option<bool>,
    /// The reason why the stream was cut off; `None` if it completed.
    pub failure: Option<String>,
}

/// One interval of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestSample {
    /// The number of the interval, from 0.
    pub index: u32,
    /// True if the interval is in the omitted time.
    pub omitted: bool,
    /// True for the direction from server to client of a bidirectional test.
    #[serde(default)]
    pub reverse: bool,
    /// The start in seconds on the receiver's clock, which starts with the first byte.
    pub start_seconds: f64,
    /// The end in seconds.
    pub end_seconds: f64,
    /// The end whose bytes and clock these are, if it is not the receiver: against another program
    /// the sender's bytes are all that is known during the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_by: Option<End>,
    /// The bytes received.
    pub bytes: Bytes,
    /// The goodput at the receiver.
    pub throughput_bps: Rate,
    /// The rate at which the sender sent datagrams, on its clock; `None` over TCP, if the sender is
    /// another program, and in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bps: Option<Rate>,
    /// The number of retransmitted segments; `None` if the sender's report of the interval is
    /// missing, which happens only for the last interval.
    pub retransmits: Option<u64>,
    /// The mean over the streams of the sender's smoothed round-trip times in ms.
    pub rtt_ms: Option<f64>,
    /// The time shares of the sending connections; `None` over UDP, where only the sender limits
    /// the rate.
    #[serde(default)]
    pub shares: Option<Shares>,
    /// The sender's CPU time in percent of one core.
    pub sender_cpu_percent: Option<f64>,
    /// The receiver's CPU time in percent of one core; `None` if the receiver is another program.
    pub receiver_cpu_percent: Option<f64>,
    /// The datagram counters of a UDP test.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The streams, by number.
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
    /// The number of the stream, from 0.
    pub stream: u32,
    /// The bytes received.
    pub bytes: Bytes,
    /// The goodput at the receiver.
    pub throughput_bps: Rate,
    /// The state of the sender's connection.
    pub sender: Option<TcpSample>,
    /// The datagram counters of a UDP test.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The sender's thread and socket.
    #[serde(default)]
    pub sender_thread: Option<ThreadSample>,
    /// The receiver's thread and socket.
    #[serde(default)]
    pub receiver_thread: Option<ThreadSample>,
}
