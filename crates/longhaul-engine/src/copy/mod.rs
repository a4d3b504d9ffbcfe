//! Copies files from a *source* to a *sink*, either of which may be the client.
//!
//! Disk and network are separate stages, joined by bounded queues and a pool of buffers that
//! bounds the memory of each end:
//!
//! ```text
//! source: walk -> read (threads) -> send (one thread per connection)
//! sink:   receive and verify (one thread per connection) -> write (threads) -> sync and rename
//! ```
//!
//! All files form one queue of blocks, and any connection can carry any block. [`push`] and
//! [`pull`] are the client's entry points, [`serve`] is the server's. This module does not open
//! sessions, start ssh, or draw progress.
//!
//! Files import downwards: only `run.rs` of a sink or source imports its stages, and no two files
//! import each other.

mod blocks;
mod cancel;
mod check;
mod client;
pub(crate) mod clock;
mod data_connection;
mod digest;
mod disk;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod large_files;
mod metadata;
mod name_list;
mod names;
mod past_rates;
mod pool;
mod progress;
mod quota;
mod rate_gate;
mod reports;
mod requested;
mod server;
mod sink;
mod source;
mod stored_bytes;
mod streams;
mod temporary;
pub(crate) mod tree;
mod verdict;
mod watchdog;

pub use check::{check, check_far};
pub use client::{
    CopySecret, FetchTarget, Reconnect, RemoteFiles, SelfCopy, ThirdPartyEnds, between,
    check_apart, pull, push,
};
#[doc(hidden)]
pub use data_connection::BlockSender;
pub(crate) use disk::DIRECT_FROM_BYTES;
pub use large_files::FileProgress;
pub(crate) use names::{DIAGNOSIS_DIGITS, DIAGNOSIS_PREFIX};
pub use past_rates::PastRates;
pub use progress::{CopyProgress, CopyRun};
pub(crate) use server::check as check_options;
pub use server::{refuse, serve};
pub use sink::{Destination, Outlet, PlaceError};
pub(crate) use sink::{WRITERS, reserve_of};
pub use source::{Feed, SourcePlan, SourceRoot, StreamReader, read_names};
pub(crate) use source::{forget, read, subset_of_source};
pub use tree::Tree;

#[cfg(test)]
mod tests;
