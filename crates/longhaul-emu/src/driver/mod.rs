//! Moves packets between devices by the link model.
//!
//! A [`Lane`] is one direction: it reads a packet from its sender's device, asks the model, keeps
//! the packet in its `Store` until the last piece of it is due, and writes the pieces to the
//! receiver's device. [`Driver`] runs any number of lanes, as a link's two, on one thread, which
//! takes requests from its mailbox: to tell what has passed, or to change a lane's model; a
//! `Warmer` touches memory before it does. Its
//! `Timeline` knows what it did of late, which is how a lateness is laid to its causes.
//!
//! Invariants: a departure follows from the time at which the packet was read, never from the time
//! the thread woke up, so that delays do not add up; pieces due at the same time leave in the order
//! in which they came; every segment read, and every duplicate made of one, is counted once more
//! as delivered, dropped or queued; and memory stays within the pool's budget.

mod budget;
mod lane;
mod mailbox;
mod pool;
mod run;
mod schedule;
mod sleeper;
mod store;
mod strain;
mod timeline;
mod warmer;

#[cfg(test)]
mod tests;

pub(crate) use budget::{UNLIMITED, memory_budget};
pub(crate) use lane::Lane;
pub(crate) use run::{Driver, Snapshot};
