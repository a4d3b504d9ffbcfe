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
mod plan;
mod receive;
mod report;
mod send;
mod tally;
mod witness;

#[cfg(test)]
pub(super) use datagram::{Header, seal};
pub use plan::{ProbePlan, ReceivePlan, SendPlan, WatchPlan};
pub use receive::receive;
pub use report::{DelayReport, ProbeReport, Sent};
pub use send::send;
#[cfg(test)]
pub(super) use tally::Tally;
pub use witness::Witness;
