//! An independent witness: a sender and a receiver of numbered UDP datagrams, each a process at
//! one end of whatever lies between.
//!
//! It knows nothing of the emulator. Every datagram carries its number, the time at which it was
//! sent and a checksum of its own; the receiver tells from these, from the kernel's time stamps
//! and from the kernel's counters what was lost, doubled, changed, marked, reordered and delayed.
//! Datagrams go out as super-packets (`UDP_SEGMENT`) and may arrive merged (`UDP_GRO`), so that
//! millions are counted in seconds; each is looked at by itself.
//!
//! A [`Witness`] watches the machine itself meanwhile: how late a thread is woken that does nothing
//! else.
//!
//! Both ends read the same clock, `CLOCK_REALTIME`, because that is the one of the kernel's time
//! stamps; a step of it while a probe runs is told by the report's `clock_step_ms`.

mod datagram;
mod plan;
mod receive;
mod report;
mod send;
mod tally;
mod witness;

pub use plan::{ProbePlan, ReceivePlan, SendPlan, WatchPlan};
pub use receive::receive;
pub use report::{DelayReport, ProbeReport, Sent};
pub use send::send;
pub use witness::Witness;
