//! The facts from which the reason for a rate is derived.

use serde::{Deserialize, Serialize};

use super::Shares;
use crate::result::{End, HostLimits, UdpResult};
use crate::units::{Bytes, Rate};

/// The facts behind the sentence that gives the reason for a rate.
///
/// They cover the steady part of the test if it contains whole intervals, otherwise all valid time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TestFacts {
    /// The start of the covered time in seconds, on the receiver's clock.
    pub from_seconds: f64,
    /// The length of the covered time in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// The mean goodput.
    pub throughput_bps: Rate,
    /// The median goodput of the steady part.
    #[serde(default)]
    pub steady_bps: Option<Rate>,
    /// The time shares of the connections; all zero over UDP.
    pub shares: Shares,
    /// The datagram counters of a UDP test.
    pub udp: Option<UdpResult>,
    /// The number of connections.
    pub streams: u32,
    /// The payload bytes of a full segment; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_no_segment")]
    pub segment_bytes: u32,
    /// The sender's congestion control.
    pub congestion: String,
    /// The requested pacing rate over all streams.
    pub requested_bps: Option<Rate>,
    /// True if socket buffers were requested (`-w`).
    pub window_asked: bool,
    /// The mean of the smoothed round-trip times in ms.
    pub rtt_ms: f64,
    /// The lowest round-trip time in ms.
    pub rtt_min_ms: f64,
    /// The congestion window: mean over time, sum over the streams.
    pub cwnd_bytes: Bytes,
    /// The window advertised by the receiver: mean over time, sum over the streams.
    pub receiver_window_bytes: Bytes,
    /// The segments retransmitted in the whole test, in percent of those sent.
    pub loss_percent: f64,
    /// The number of retransmitted segments.
    pub retransmits: u64,
    /// The retransmitted segments that came in bursts while no packets waited in a queue, in percent
    /// of all retransmitted ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub burst_percent: f64,
    /// The acknowledgements with congestion marks (ECN), in percent of the segments sent.
    pub marked_percent: f64,
    /// True if the test has a steady part.
    pub settled: bool,
    /// The interquartile range of the steady part, in percent of its rate.
    pub spread_percent: Option<f64>,
    /// The rate with which windows are compared: `requested_bps`, or else the rate of the slower
    /// one of the two ends' fastest interfaces, or else 10 Gb/s (100 Gb/s if the test reaches
    /// almost 10).
    pub reference_bps: Rate,
    /// The bandwidth-delay product of that rate: `reference_bps` x `rtt_min_ms`.
    pub bandwidth_delay_bytes: Bytes,
    /// The sending end; absent if it is another program.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub sender: EndFacts,
    /// The receiving end; absent if it is another program.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub receiver: EndFacts,
}

fn is_no_segment(bytes: &u32) -> bool {
    *bytes == 0
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_unknown(end: &EndFacts) -> bool {
    !end.is_known()
}

/// The facts of one end. Facts about threads are means over the streams.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndFacts {
    /// The share of time in which the stream's thread ran.
    pub running_percent: f64,
    /// The share of time in which the thread was ready but waited for a core.
    pub waiting_percent: f64,
    /// The core of the busiest stream's thread.
    pub core: u32,
    /// The use of that core by all programs.
    pub core_busy_percent: f64,
    /// The share of that core in interrupts.
    pub core_interrupts_percent: f64,
    /// The share of that core that the hypervisor took.
    pub core_stolen_percent: f64,
    /// The share of that core used neither by this test's threads nor by the hypervisor.
    pub core_others_percent: f64,
    /// The use of all cores of the host together.
    pub cores_busy_percent: f64,
    /// The core with the most interrupts.
    pub interrupts_core: u32,
    /// The share of that core in interrupts.
    pub interrupts_percent: f64,
    /// The largest socket buffer of a stream, in the kernel's bytes.
    pub buffer_bytes: Bytes,
    /// The fill level of the buffers.
    pub buffer_full_percent: f64,
    /// The limits of the kernel.
    pub limits: HostLimits,
    /// The peak of the kernel's memory for TCP.
    pub tcp_memory_bytes: Bytes,
    /// The memory from which the kernel limits buffers; 0 if unknown.
    pub tcp_memory_pressure_bytes: Bytes,
    /// The share of time in which the kernel limited buffers.
    pub tcp_memory_pressure_percent: f64,
    /// The packets that sockets of the test, TCP or the interfaces dropped.
    pub drops: u64,
}

impl EndFacts {
    /// Returns whether this end was measured; another program at this end reports no facts.
    pub fn is_known(&self) -> bool {
        *self != EndFacts::default()
    }

    /// Returns the share of time in which the thread ran or waited for a core. Near 100 the CPU is
    /// its limit.
    pub fn load_percent(&self) -> f64 {
        self.running_percent + self.waiting_percent
    }
}

/// The minimum time in seconds: shorter times have too few samples (50 per second) and too few
/// ticks of the processor clock (100 per second).
pub(super) const LEAST_SECONDS: f64 = 0.1;

/// The minimum number of segments in a queue that a link at its rate fills.
const QUEUE_SEGMENTS: f64 = 4.0;

impl TestFacts {
    /// Returns whether the covered time is too short to derive a reason.
    pub fn is_too_short(&self) -> bool {
        self.seconds < LEAST_SECONDS
    }

    /// Returns the facts of one end.
    pub fn end(&self, end: End) -> &EndFacts {
        match end {
            End::Sender => &self.sender,
            End::Receiver => &self.receiver,
        }
    }

    /// Returns whether packets that are delayed by `delay_ms` fill a queue of a few segments. If a window
    /// has few segments, the receiver delays its acknowledgements, and no queue delays the packets.
    pub fn fills_a_queue(&self, delay_ms: f64) -> bool {
        let bytes = self.throughput_bps.bps() as f64 / 8.0 * delay_ms / 1e3;
        bytes >= QUEUE_SEGMENTS * f64::from(self.segment_bytes)
    }

    /// Returns the queueing delay in ms: the mean round-trip time minus the lowest one.
    pub fn queue_ms(&self) -> f64 {
        (self.rtt_ms - self.rtt_min_ms).max(0.0)
    }
}
