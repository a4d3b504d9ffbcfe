//! Copies files from a *source* to a *sink*, either of which may be the client.
//!
//! Disk and network are separate stages, joined by bounded queues and a pool of buffers that
//! bounds the memory of each end:
//!
//! ```text
//! source: walk -> read (threads) -> send (one thread a connection)
//! sink:   receive and verify (one thread a connection) -> write (threads) -> sync and rename
//! ```
//!
//! All files are one queue of blocks; any connection carries any block. [`push`] and [`pull`] are
//! the client's entry, [`serve`] the server's. What this does not do: open sessions, start ssh,
//! draw progress.

mod blocks;
mod cancel;
mod check;
mod check_far;
mod client;
pub(crate) mod clock;
mod digest;
mod disk;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod into_itself;
mod journal;
mod key;
mod link;
mod metadata;
mod name_list;
mod names;
mod pool;
mod progress;
mod quota;
mod retry;
mod server;
mod sink;
mod source;
mod stream;
mod streams;
mod temporary;
mod third;
pub(crate) mod tree;
mod verdict;
mod watchdog;

pub use check::check;
pub use check_far::check_far;
pub use client::{FarFiles, Landing, Lifeline, pull, push};
pub(crate) use disk::DIRECT_FROM_BYTES;
pub use into_itself::{IntoItself, check_apart};
pub use key::CopySecret;
pub(crate) use names::{DIAGNOSIS_DIGITS, DIAGNOSIS_PREFIX};
pub use progress::Progress;
pub(crate) use server::check as check_options;
pub use server::{refuse, serve};
pub use sink::{Destination, Outlet, PlaceError};
pub(crate) use sink::{WRITERS, reserve_of};
pub use source::{Feed, Pour, SourcePlan, SourceRoot, read_names};
pub(crate) use source::{forget, look, read};
#[doc(hidden)]
pub use stream::BlockSender;
pub use third::{Ends, between};
pub use tree::Tree;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_direct;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_reserved;
#[cfg(test)]
mod tests_resume;
#[cfg(test)]
mod tests_stall;
#[cfg(test)]
mod tests_tree;
