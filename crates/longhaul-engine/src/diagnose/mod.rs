//! The steps of `longhaul diagnose`: each part of a copy measured separately, then the whole copy.
//!
//! The steps are: read the source, memory to memory over the path, source to the memory of the
//! sink's host, memory to the sink's disk, write at the sink, and the whole copy. They run in
//! rounds, so that a change of the host or path affects all of them. Each step runs the code of a
//! test ([`test`](crate::test)) or of a copy ([`copy`](crate::copy)). An end works in this process
//! or behind a session ([`serve`]).
//!
//! Files are read past the page cache, or after they were dropped from it. The steps write to a
//! temporary directory beside the target. It is removed at the end, and by the server also when its
//! client is killed. `longhaul_core::diagnosis` judges the results.

mod end;
mod local_end;
mod pace;
mod plan;
mod run;
mod scratch;
mod serve;
mod steps;
mod write;

pub use plan::{CopyDirection, DiagnosePlan, Openers};
pub use run::{DiagnoseOutcome, DiagnoseProgress, run};
pub use serve::{refuse, serve};

#[cfg(test)]
mod tests;
