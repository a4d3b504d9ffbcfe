//! Moves packets between devices as the link model decides.
//!
//! A [`Lane`] is one direction of a link. An [`Intake`] reads a packet from the sender's device and
//! passes it to a lane; between parallel links, [`Steering`] chooses by the packet's flow. The lane
//! queries the model, keeps the packet in its `Store` until the last piece is due, and writes the
//! pieces to the receiver's device. [`Driver`] runs any number of lanes, usually the two of a link,
//! on one thread. The thread takes requests from a mailbox: report the counters, or change a lane's
//! model. [`PacketMemory`] is the memory of all links of a topology, which a `PageToucher` touches ahead
//! of the threads. A `Timeline` records the thread's recent long steps, so that lateness can be
//! attributed to its causes.
//!
//! Invariants:
//!
//! - A departure time follows from the time at which the packet was read, never from the time at
//!   which the thread woke up, so delays do not accumulate.
//! - Pieces that are due at the same time leave in order of arrival.
//! - Every segment read, and every duplicate of one, is counted exactly once as delivered, dropped
//!   or queued.
//! - Memory stays within the pool's budget and the slots into which packets are read.
//! - The thread writes at most [`MOST_FRAMES`](crate::device::MOST_FRAMES) pieces of a lane before it
//!   turns to other lanes, and reads packets when none is due.

mod carrier;
mod lane;
mod mailbox;
mod memory;
mod page_toucher;
mod pool;
mod punctuality;
mod ready_intakes;
mod run;
mod schedule;
mod sleeper;
mod steering;
mod store;
mod timeline;

#[cfg(test)]
mod tests;

pub(crate) use carrier::Carrier;
pub(crate) use lane::Lane;
pub(crate) use memory::{PacketMemory, UNLIMITED, full_link, memory_budget, most_memory};
pub(crate) use run::Driver;
pub(crate) use sleeper::SpinBudget;
pub(crate) use steering::{Intake, Steering};
pub(crate) use store::landing_memory;
