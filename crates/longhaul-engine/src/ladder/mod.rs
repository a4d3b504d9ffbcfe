//! The ladder: each part of a copy measured by itself, and the whole, in rounds.
//!
//! Source read alone, memory to memory over the path, source to far memory, memory to far disk,
//! sink write alone, the whole copy: one after the other, then all again, so that what changes
//! meanwhile changes for all. Each rung is the code of a test ([`flow`](crate::flow)) or of a copy
//! ([`copy`](crate::copy)) itself; what one end does alone its [workshop] does, here or behind a
//! session ([`serve`]).
//!
//! Files are read past the page cache or after it was told to forget them. What is written goes to
//! a directory of its own beside the target, which is removed in the end, and by the far end also
//! when the client is killed. Nothing here judges: that is `longhaul_core::diagnosis`.

mod climb;
mod hand;
mod pace;
mod plan;
mod rungs;
mod scratch;
mod serve;
mod watch;
mod workshop;
mod write;

pub use climb::{Climbed, Step, climb};
pub use plan::{LadderPlan, Openers, Way};
pub use serve::{refuse, serve};

#[cfg(test)]
mod tests;
