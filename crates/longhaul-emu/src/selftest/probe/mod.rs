//! An independent probe: a sender and a receiver of numbered UDP datagrams, each a process at one
//! end of a link.
//!
//! The probe shares no code with the emulator. Every datagram carries its number, its sending time
//! and a checksum. From these, the kernel's time stamps and the kernel's counters the receiver
//! determines which datagrams were lost, duplicated, changed, marked, reordered and delayed.
//! Datagrams are sent as super-packets (`UDP_SEGMENT`) and may arrive merged (`UDP_GRO`), so that
//! millions can be counted in seconds; each is examined individually.
//!
//! A [`Witness`] measures the machine during a check: the wake-up delay of a thread that only
//! sleeps.
//!
//! Both ends read `CLOCK_REALTIME`, because the kernel's time stamps use it. The report's
//! `clock_step_ms` shows whether the clock was set while a probe ran.

mod datagram;
mod receive;
mod report;
mod send;
mod tally;
mod witness;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(super) use datagram::{Header, seal};
pub use receive::receive;
pub use report::{DelayReport, ProbeReport, Sent};
pub use send::send;
#[cfg(test)]
pub(super) use tally::Tally;
pub use witness::Witness;

/// The task of one end of a probe; the argument of the program's hidden command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbePlan {
    /// Send, then print [`Sent`].
    Send(SendPlan),
    /// Receive until standard input has a [`Sent`], then print a [`ProbeReport`].
    Receive(ReceivePlan),
    /// Measure the machine without a link, then print a
    /// [`MachineTiming`](longhaul_core::result::MachineTiming).
    Watch(WatchPlan),
}

impl ProbePlan {
    /// Returns the plan as the argument of the hidden command.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The datagrams to send.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendPlan {
    /// The receiver: a host name or an address.
    pub to: String,
    /// The receiver's UDP port.
    pub port: u16,
    /// True to use IPv6 if `to` is a name with addresses of both families.
    #[serde(default)]
    pub ipv6: bool,
    /// The number of datagrams.
    pub datagrams: u64,
    /// The UDP payload of each datagram in bytes; at least [`SendPlan::LEAST_PAYLOAD`].
    pub payload_bytes: u16,
    /// The number of datagrams per super-packet.
    pub together: u16,
    /// The interval between super-packets in seconds. A late sender catches up at once.
    #[serde(with = "duration_seconds")]
    pub interval_seconds: Duration,
    /// True to mark the datagrams ECN-capable (ECT(0), RFC 3168).
    #[serde(default)]
    pub ecn_capable: bool,
    /// True to give each datagram a number and a checksum over all its bytes. Otherwise the
    /// receiver only counts bytes and times, which needs far less CPU time.
    pub verify: bool,
    /// The number of sending threads, each with a separate socket. A value above 1 requires that
    /// `verify` is false, because the threads repeat numbers.
    #[serde(default = "one")]
    pub threads: u16,
}

fn one() -> u16 {
    1
}

impl SendPlan {
    /// The size of number, time and checksum in bytes.
    pub const LEAST_PAYLOAD: u16 = 24;
}

/// The parameters of a receiver.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivePlan {
    /// The address and port to receive at.
    pub bind: SocketAddr,
    /// The time in seconds without an arrival after which the receiver ends, once the sender has
    /// ended. It must exceed every pause of the link, but not the time that a queue needs to empty.
    #[serde(with = "duration_seconds")]
    pub drain_seconds: Duration,
    /// The value of the sender's `verify`.
    pub verify: bool,
}

/// The parameters of a measurement of the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchPlan {
    /// The duration in seconds.
    #[serde(with = "duration_seconds")]
    pub seconds: Duration,
}

mod duration_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
