//! The results of STAMP measurements; `docs/design/results.md` describes every field.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{DelayVariation, LatencyQuantiles, PathEnd, Proportion};
use crate::plan::StampPlan;

/// The schema of [`StampResult`].
pub const STAMP_SCHEMA: &str = "longhaul.stamp/1";
/// The schema of [`StampRecord`].
pub const STAMP_RECORD_SCHEMA: &str = "longhaul.stamp-record/1";

/// The result of a STAMP measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StampResult {
    /// [`STAMP_SCHEMA`].
    pub schema: String,
    /// The version of longhaul.
    pub version: String,
    /// The host as the user named it.
    pub target: String,
    /// The address and port of the reflector.
    pub address: SocketAddr,
    /// The local address.
    pub local: Option<IpAddr>,
    /// The plan of the measurement.
    pub plan: StampPlan,
    /// The reason for the end of the measurement.
    pub end: PathEnd,
    /// The duration in seconds.
    pub seconds: f64,
    /// The properties of the reflector.
    pub reflector: StampReflector,
    /// The origin of this host's timestamps.
    pub stamps: StampOrigins,
    /// The clocks of both ends.
    pub clocks: StampClocks,
    /// The measurements.
    #[serde(flatten)]
    pub figures: StampFigures,
}

/// The measurements of one period of a measurement without an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StampRecord {
    /// [`STAMP_RECORD_SCHEMA`].
    pub schema: String,
    /// The time at which the period began, in UTC (RFC 3339).
    pub time: String,
    /// The length of the period in seconds.
    pub seconds: f64,
    /// The host as the user named it.
    pub target: String,
    /// The address and port of the reflector.
    pub address: SocketAddr,
    /// The manner in which the reflector numbers its replies.
    pub numbering: StampNumbering,
    /// The clocks of both ends.
    pub clocks: StampClocks,
    /// The origin of this host's timestamps; `None` in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamps: Option<StampOrigins>,
    /// The measurements of the packets that were sent in the period.
    #[serde(flatten)]
    pub figures: StampFigures,
    /// The distribution of the delays.
    pub histograms: StampHistograms,
}

/// The distributions of the delays of a period. An entry has the upper end of an interval in ms and
/// the number of packets; the intervals are about 1 % wide, and at least 1 us.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StampHistograms {
    /// The round-trip time.
    pub rtt: Vec<(f64, u64)>,
    /// The delay to the reflector minus the lowest one of the period.
    pub forward_variation: Vec<(f64, u64)>,
    /// The delay from the reflector minus the lowest one of the period.
    pub reverse_variation: Vec<(f64, u64)>,
}

/// The manner in which a reflector numbers its replies (RFC 8762, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampNumbering {
    /// It counts its replies, so that loss is known per direction.
    Stateful,
    /// It repeats the number of the request.
    Stateless,
    /// Too few replies arrived.
    #[default]
    Unknown,
}

/// The origin of a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampOrigin {
    /// The network interface.
    Hardware,
    /// The kernel.
    Kernel,
    /// The program.
    Program,
    /// The kernel or a program; STAMP does not distinguish them.
    Software,
    /// The network interface for some packets, software for others.
    Mixed,
    /// The control plane of a router.
    ControlPlane,
    /// The reflector does not state it.
    #[default]
    Unknown,
}

/// The origins of this host's timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StampOrigins {
    /// The origin of the time at which a packet is sent.
    pub sent: StampOrigin,
    /// The origin of the time at which a reply arrives.
    pub arrived: StampOrigin,
    /// The reason why the timestamps of the network interface are not used; `None` if they are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_hardware: Option<NoHardware>,
}

/// The reason why the hardware timestamps of an interface are not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoHardware {
    /// The interface has none.
    Unsupported,
    /// The interface stamps only packets of the Precision Time Protocol.
    OnlyPtp,
    /// They are switched off.
    Disabled,
    /// This process cannot read the clock of the interface.
    ClockUnreadable,
}

/// The properties of a reflector.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StampReflector {
    /// The manner in which it numbers its replies.
    pub numbering: StampNumbering,
    /// True if it answers the extensions of RFC 8972.
    pub extensions: bool,
    /// True if it uses timestamps of PTP instead of NTP.
    pub ptp: bool,
    /// The origin of the time at which a request arrives.
    pub received: StampOrigin,
    /// The origin of the time at which a reply is sent.
    pub replied: StampOrigin,
    /// True if the time of a reply's departure follows in a later reply.
    pub follow_up: bool,
    /// The median time in ms between the arrival of a request and the reply.
    pub reply_p50_ms: Option<f64>,
}

/// The clock of one end.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StampClock {
    /// True if the end states that its clock is synchronized.
    pub synchronised: bool,
    /// The error in ms that it states; `None` if it states none.
    pub error_ms: Option<f64>,
}

/// The clocks of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StampClocks {
    /// This host.
    pub local: StampClock,
    /// The reflector.
    pub reflector: StampClock,
    /// True if both ends use one clock.
    pub same: bool,
    /// The possible error of a one-way delay in ms; `None` if a clock is not synchronized.
    pub error_ms: Option<f64>,
}

/// The measurements of a number of packets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StampFigures {
    /// The packets sent.
    pub sent: u64,
    /// The packets with at least one reply.
    pub answered: u64,
    /// The share of packets without a reply.
    pub lost: Proportion,
    /// The lost packets whose direction is unknown.
    pub undetermined: u64,
    /// The packets that this host did not send because the kernel refused them.
    pub unsent: u64,
    /// The replies that arrived after their packet counted as lost.
    pub late: u64,
    /// The packets that arrived and are not replies to this measurement.
    pub invalid: u64,
    /// The replies whose delays are not used: a clock stepped, or the times contradict each other.
    pub untimed: u64,
    /// The number of steps of this host's clock.
    pub clock_steps: u64,
    /// The number of times at which the reflector began to count again.
    pub restarts: u64,
    /// The round-trip times without the reflector's time.
    pub rtt: Option<LatencyQuantiles>,
    /// From this host to the reflector.
    pub forward: StampDirection,
    /// From the reflector to this host.
    pub reverse: StampDirection,
}

/// The measurements of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StampDirection {
    /// The share of lost packets; `None` if the reflector does not count its replies.
    pub lost: Option<Proportion>,
    /// The share of duplicates.
    pub duplicated: Proportion,
    /// The share of packets that arrived after a later one (RFC 4737).
    pub reordered: Proportion,
    /// The largest reordering extent in packets.
    pub reordering_extent: u64,
    /// The delay by the clocks of both ends; `None` without packets.
    pub delay: Option<StampDelay>,
    /// The variation of the delay.
    pub variation: Option<DelayVariation>,
    /// The traffic classes with which packets arrived, the most frequent first.
    pub classes: Vec<StampClass>,
    /// The lowest and the highest hop limit with which packets arrived.
    pub hop_limits: Option<[u8; 2]>,
}

/// A one-way delay by two clocks. It is negative if the receiver's clock is behind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StampDelay {
    /// The lowest in ms.
    pub min_ms: f64,
    /// The median in ms.
    pub p50_ms: f64,
    /// The 99th percentile in ms.
    pub p99_ms: f64,
    /// The highest in ms.
    pub max_ms: f64,
}

/// The traffic class of received packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampClass {
    /// The differentiated services code point.
    pub dscp: u8,
    /// The ECN bits: 0 not capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced.
    pub ecn: u8,
    /// The number of packets.
    pub packets: u64,
}
