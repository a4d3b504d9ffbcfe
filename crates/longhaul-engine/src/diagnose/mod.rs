//! The diagnosis: each part of a copy measured by itself, and the whole, in rounds.
//!
//! Source read alone, memory to memory over the path, source to far memory, memory to far disk,
//! sink write alone, the whole copy: one after the other, then all again, so that what changes
//! meanwhile changes for all. Each step is the code of a test ([`test`](crate::test)) or of a copy
//! ([`copy`](crate::copy)) itself; what one end does alone its [local end] does, here or behind a
//! session ([`serve`]).
//!
//! Files are read past the page cache or after it was told to forget them. What is written goes to
//! a directory of its own beside the target, which is removed in the end, and by the far end also
//! when the client is killed. Nothing here judges: that is `longhaul_core::diagnosis`.

mod end;
mod local_end;
mod pace;
mod plan;
mod run;
mod scratch;
mod serve;
mod steps;
mod watch;
mod write;

pub use plan::{CopyDirection, DiagnosePlan, Openers};
pub use run::{DiagnoseOutcome, DiagnoseProgress, run};
pub use serve::{refuse, serve};

#[cfg(test)]
mod tests;
