//! The receiving end of a copy: receive, verify, write, sync, rename.
//!
//! A block is verified before its write counts. A file is written under a temporary name in its
//! directory. It gets its final name after every block is written and, by default, the file is
//! synced. If the copy ends early, temporary files are removed, except those with which the
//! next attempt can resume by the journal.

mod buffered;
mod delete;
mod digests;
mod entry;
mod entry_file;
mod extras;
mod fault;
mod finish;
mod follow;
mod ledger;
mod manifest;
mod memory;
mod nodes;
mod open_dir;
mod outlet;
mod partial;
mod placement;
mod read_back;
mod receive;
mod recorder;
mod report;
mod reread;
mod run;
mod shared;
mod space;
mod store;
mod sweep;
mod write;

pub use outlet::Outlet;
pub use placement::{Destination, PlaceError};
pub(super) use run::Sink;
pub(crate) use run::WRITERS;
pub(crate) use space::reserve_of;

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use fault::set::fail_at;
#[cfg(test)]
pub(super) use fault::set::{slow_at, spoil_at};
