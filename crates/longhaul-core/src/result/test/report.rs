//! One end of a direction of a test, as far as it is known.

use super::Curve;
use crate::plan::CpuList;
use crate::result::{DatagramReport, HostLimits, SideResult, SideStream};
use crate::stats::percent;
use crate::units::Bytes;

/// One end of a direction of a test, as far as it is known: completely if longhaul measured it, and
/// otherwise the figures that the protocol of another program carries.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SideReport {
    /// The seconds from the end of the omitted time to the last byte.
    pub seconds: f64,
    /// The CPU time in percent of one core.
    pub cpu_percent: Option<f64>,
    /// The streams, by number.
    pub streams: Vec<SideStreamReport>,
    /// The bytes over time, at a receiver only.
    pub curve: Option<Curve>,
    /// The limits of the kernel.
    pub limits: Option<HostLimits>,
}

/// One stream of an [`SideReport`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SideStreamReport {
    /// The bytes after the omitted time.
    pub bytes: Bytes,
    /// The bytes including the omitted time.
    pub total_bytes: Option<Bytes>,
    /// The seconds from the end of the omitted time to the last byte.
    pub seconds: f64,
    /// The CPU time of the stream's thread in percent of one core.
    pub cpu_percent: Option<f64>,
    /// The segments retransmitted after the omitted time.
    pub retransmits: Option<u64>,
    /// The mean round-trip time in ms.
    pub rtt_ms: Option<f64>,
    /// The lowest round-trip time in ms.
    pub rtt_min_ms: Option<f64>,
    /// The congestion control; empty if unknown.
    pub congestion: String,
    /// The maximum segment size.
    pub mss: Option<u32>,
    /// The socket buffer of this end at the start of the test.
    pub buffer_bytes: Option<Bytes>,
    /// The datagrams, in a UDP test.
    pub udp: Option<DatagramReport>,
    /// The address and port.
    pub address: Option<String>,
    /// The CPUs to which the stream's thread was bound.
    pub cpus: Option<CpuList>,
    /// True if the connection is multipath at its end, in an MPTCP test.
    pub multipath: Option<bool>,
    /// The reason why the stream was cut off; `None` if it completed.
    pub failure: Option<String>,
}

impl From<&SideResult> for SideReport {
    fn from(side: &SideResult) -> Self {
        SideReport {
            seconds: side.seconds,
            cpu_percent: Some(percent(side.cpu_seconds, side.seconds)),
            streams: side.streams.iter().map(SideStreamReport::from).collect(),
            curve: side.curve.clone(),
            limits: side.limits.clone(),
        }
    }
}

impl From<&SideStream> for SideStreamReport {
    fn from(stream: &SideStream) -> Self {
        SideStreamReport {
            bytes: stream.bytes,
            total_bytes: Some(stream.total_bytes),
            seconds: stream.seconds,
            cpu_percent: Some(percent(stream.cpu_seconds, stream.seconds)),
            retransmits: Some(stream.retransmits),
            rtt_ms: Some(stream.rtt_ms),
            rtt_min_ms: Some(stream.rtt_min_ms),
            congestion: stream.congestion.clone(),
            mss: Some(stream.mss),
            buffer_bytes: Some(stream.buffer_bytes),
            udp: stream.udp.map(DatagramReport::from),
            address: stream.address.clone(),
            cpus: stream.cpus.clone(),
            multipath: stream.multipath,
            failure: stream.failure.clone(),
        }
    }
}
