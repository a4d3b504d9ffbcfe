//! The journal: a database on disk with the leases that the agent has accepted, their fencing
//! numbers, and everything that the hub has not acknowledged.

mod outbox;
mod reserve;
mod runs;
mod store;

pub(crate) use outbox::{Batch, BatchLimits};
pub(crate) use runs::{Acceptance, StoredRun};
pub(crate) use store::Journal;
