//! The sender: a state machine, its inputs and outputs, and its driver.

mod drive;
mod histograms;
mod ledger;
mod losses;
mod machine;
mod period;
mod result;
mod traits;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::result::{StampFigures, StampHistograms, StampOrigin};
use longhaul_sys::probe::Report;

use super::stamping::PacketTime;

pub use drive::{Advance, Measured, MeasuredPeriod, Sender, StampEnds, measure};
pub use machine::SenderMachine;
pub use result::{clocks, is_this_host, origins};
pub use traits::ReflectorTraits;

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
    /// The time.
    pub time: PacketTime,
    /// The hop limit, if it is known.
    pub hop_limit: Option<u8>,
    /// The traffic class.
    pub class: u8,
}

/// The next action.
#[derive(Debug, Clone, PartialEq)]
pub enum SenderAction {
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
    /// Packets that are not replies to this measurement.
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
    /// The origin of the times of departure.
    pub departures: StampOrigin,
    /// The origin of the times of arrival.
    pub arrivals: StampOrigin,
    /// The median time between the arrival of a request and the reply, in ms.
    pub reply_p50_ms: Option<f64>,
    /// The figures.
    pub figures: StampFigures,
    /// The distributions.
    pub histograms: StampHistograms,
}

/// The reason why a measurement failed. The program makes the sentences.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    /// The packet size is too small for the requested information.
    #[error("a packet of {bytes} bytes is smaller than {least} bytes")]
    PacketSize {
        /// The size in the plan.
        bytes: u32,
        /// The smallest size.
        least: usize,
    },
    /// The socket cannot be opened, or there is no route.
    #[error("no UDP socket for {address}")]
    Socket {
        /// The reflector.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// No program listens on the port.
    #[error("the port {address} is closed")]
    PortClosed {
        /// The reflector.
        address: SocketAddr,
    },
    /// The first packets got no valid reply.
    #[error("no valid reply from {address}")]
    Silent {
        /// The reflector.
        address: SocketAddr,
        /// The packets that arrived instead.
        silence: NoReply,
    },
}
