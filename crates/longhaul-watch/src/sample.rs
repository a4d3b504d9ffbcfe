//! A sample of a host: interfaces, TCP, cores and flows.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::units::Rate;
use longhaul_sys::host::{CoreTimes, TcpCounters};
use longhaul_sys::traffic::{LinkCounters, LinkQueue};

use crate::series::TrafficInterval;

/// One sample of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The time of the sample in Unix milliseconds.
    pub time_ms: i64,
    /// The time since the previous sample, by a clock that is never set; `None` in the first sample and
    /// after a gap.
    pub span: Option<Duration>,
    /// The interfaces in the order of their indexes.
    pub interfaces: Vec<InterfaceSample>,
    /// All TCP connections of the network namespace.
    pub tcp: TcpTotals,
    /// The online cores of the host.
    pub cores: Vec<CoreSample>,
    /// The TCP connections with the highest rates, the fastest first; `None` if the kernel cannot list
    /// them or the sampler does not sample them.
    pub flows: Option<Vec<FlowSample>>,
}

/// One interface.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceSample {
    /// The index in the network namespace.
    pub index: u32,
    /// The name. It may contain control characters.
    pub name: String,
    /// True if the interface is enabled and its link is up.
    pub running: bool,
    /// True for the loopback interface.
    pub loopback: bool,
    /// The rate of the link; `None` if the driver does not know it.
    pub speed: Option<Rate>,
    /// The counters since the creation of the interface or their last reset.
    pub totals: LinkCounters,
    /// The increase of the counters since the previous sample; `None` in a gap: in the first sample of the
    /// interface, after a late sample, and if a counter went back.
    pub change: Option<LinkCounters>,
    /// The queue of the interface; `None` without queueing discipline.
    pub queue: Option<LinkQueue>,
    /// The packets that the queueing discipline dropped since the previous sample; `None` as for
    /// `change`, and without queueing discipline.
    pub queue_drops: Option<u32>,
}

/// All TCP connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpTotals {
    /// The counters since the creation of the network namespace.
    pub totals: TcpCounters,
    /// The segments sent since the previous sample, without retransmissions; `None` in a gap.
    pub sent: Option<u64>,
    /// The segments retransmitted since the previous sample; `None` in a gap.
    pub retransmits: Option<u64>,
}

/// One core. Shares are parts of the time since the previous sample (0 to 1), and `None` in a gap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreSample {
    /// The number of the core.
    pub core: u32,
    /// The times since boot.
    pub totals: CoreTimes,
    /// The share of time in which the core was busy.
    pub busy: Option<f64>,
    /// The share of softirq time: soft interrupts process received packets.
    pub softirq: Option<f64>,
    /// The share of stolen time.
    pub stolen: Option<f64>,
}

/// One TCP connection.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSample {
    /// The local address.
    pub local: SocketAddr,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The user that owns the socket.
    pub user: u32,
    /// The name of the program that has the socket open; `None` if this process may not see it, has not
    /// searched it yet, or the sampler does not search programs.
    pub program: Option<String>,
    /// The congestion control.
    pub congestion: String,
    /// The received payload since the previous listing, as a rate.
    pub in_rate: Rate,
    /// The payload that the peer acknowledged since the previous listing, as a rate.
    pub out_rate: Rate,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The lowest round-trip time in the kernel's window.
    pub min_rtt: Option<Duration>,
    /// The congestion window in segments.
    pub window_segments: u32,
    /// The congestion window in bytes of payload.
    pub window_bytes: u64,
    /// The rate at which the peer most recently acknowledged data.
    pub delivery_rate: Rate,
    /// True if the application, and not the path, limited the delivery rate.
    pub delivery_app_limited: bool,
    /// The segments retransmitted since the previous listing.
    pub retransmits: u64,
    /// The payload bytes to send, or sent and not acknowledged.
    pub queued_bytes: u32,
    /// The payload bytes received and not yet read.
    pub unread_bytes: u32,
}

impl Sample {
    /// Returns the traffic of `interface` since the previous sample; `None` in a gap.
    pub fn interval(&self, interface: &InterfaceSample) -> Option<TrafficInterval> {
        let (span_ms, counts) = (self.span_ms()?, interface.change?);
        Some(TrafficInterval { end_ms: self.time_ms, span_ms, counts })
    }

    /// Returns the time since the previous sample in ms; `None` in a gap.
    pub fn span_ms(&self) -> Option<u32> {
        Some(u32::try_from(self.span?.as_millis()).ok()?.max(1))
    }
}
