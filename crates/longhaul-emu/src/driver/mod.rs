//! Moves packets between devices as the link model decides.
//!
//! A [`Lane`] is one direction. It reads a packet from the sender's device, queries the model,
//! keeps the packet in its `Store` until the last piece is due, and writes the pieces to the
//! receiver's device. [`Driver`] runs any number of lanes, usually the two of a link, on one
//! thread. The thread takes requests from a mailbox: report the counters, or change a lane's model.
//! A `Warmer` touches memory ahead of the thread. A `Timeline` records the thread's recent long
//! steps, so that lateness can be attributed to its causes.
//!
//! Invariants:
//!
//! - A departure time follows from the time at which the packet was read, never from the time at
//!   which the thread woke up, so delays do not accumulate.
//! - Pieces that are due at the same time leave in order of arrival.
//! - Every segment read, and every duplicate of one, is counted exactly once as delivered, dropped
//!   or queued.
//! - Memory stays within the pool's budget.

mod budget;
mod lane;
mod mailbox;
mod parking;
mod pool;
mod run;
mod schedule;
mod sleeper;
mod store;
mod timeline;
mod warmer;

#[cfg(test)]
mod tests;

pub(crate) use budget::{UNLIMITED, memory_budget};
pub(crate) use lane::Lane;
pub(crate) use run::{Driver, Snapshot};
