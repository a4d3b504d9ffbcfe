//! The journal: a database on disk with the leases that the agent has accepted, their fencing
//! numbers, and everything that the hub has not acknowledged.

mod outbox;
mod reserve;
mod runs;
mod store;

pub(crate) use outbox::BatchLimits;
pub(crate) use runs::Acceptance;
pub(crate) use store::Journal;
