//! Moves packets between two TUN devices by the link model.
//!
//! A [`Lane`] is one direction: it reads a packet from its sender's device, asks the model, keeps
//! the packet in its [`Pool`] until it is due, and writes it to the receiver's device. [`Driver`]
//! runs both lanes of a link on one thread.
//!
//! Invariants: a packet's departure follows from the time it was read, never from the time the
//! thread woke up, so that delays do not add up; packets due at the same time leave in the order
//! in which they came; every packet read is counted once more as delivered, dropped or queued;
//! and memory stays within the pool's budget.

mod budget;
mod lane;
mod pool;
mod run;
mod schedule;
mod sleeper;

pub(crate) use budget::{UNLIMITED, memory_budget};
pub(crate) use lane::Lane;
pub(crate) use run::Driver;
