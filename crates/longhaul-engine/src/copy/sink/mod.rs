//! The receiving end of a copy: receive, verify, write, sync, name.
//!
//! A block is verified before its write counts. A file is written under a temporary name beside
//! its place, and gets its final name only when every block is in it and, unless asked otherwise,
//! it is synced. Whatever ends the copy early, temporary files are removed on the way out, but for
//! those that the journal tells the next attempt to go on with.

mod finish;
mod follow;
mod ledger;
mod partial;
mod placement;
mod receive;
mod recorder;
mod report;
mod run;
mod store;
mod write;

pub use placement::{Destination, PlaceError};
pub(super) use run::Sink;
