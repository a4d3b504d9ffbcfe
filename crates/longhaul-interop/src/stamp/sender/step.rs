//! The inputs and outputs of the state machine of a sender.

use std::time::Duration;

use longhaul_core::result::{StampFigures, StampHistograms};
use longhaul_sys::probe::Report;

/// A time on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time since the start, on a clock that never steps.
    pub at: Duration,
    /// The time in nanoseconds since 1970.
    pub unix_ns: u64,
}

/// The circumstances of a reply's arrival.
#[derive(Debug, Clone, Copy)]
pub struct ReplyArrival {
    /// The time in nanoseconds since 1970.
    pub at_nanos: u64,
    /// The hop limit, if it is known.
    pub hop_limit: Option<u8>,
    /// The traffic class.
    pub class: u8,
}

/// The next action.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Send the packet of the machine.
    Send,
    /// Wait for replies until this time.
    Wait(Duration),
    /// A period of a measurement without an end is complete.
    Record(Box<PeriodReport>),
    /// The measurement is complete.
    Done,
    /// No valid reply has arrived to the first packets.
    Silent(NoReply),
}

/// The facts about a measurement that got no valid reply: its packets, its wait and other arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoReply {
    /// The packets sent.
    pub sent: u64,
    /// The time waited.
    pub waited: Duration,
    /// The length of the last packet that is too short for a reply.
    pub short: Option<usize>,
    /// Packets with an invalid HMAC.
    pub unauthentic: u64,
    /// Packets that are no replies to this measurement.
    pub foreign: u64,
    /// The last ICMP error.
    pub icmp: Option<Report>,
}

/// The figures of a period.
#[derive(Debug, Clone, PartialEq)]
pub struct PeriodReport {
    /// The time at which the period began, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Its length.
    pub length: Duration,
    /// True if the kernel stamped all departures; `None` if it stamped some.
    pub by_kernel: Option<bool>,
    /// The median time between the arrival of a request and the reply, in ms.
    pub reply_p50_ms: Option<f64>,
    /// The figures.
    pub figures: StampFigures,
    /// The distributions.
    pub histograms: StampHistograms,
}
