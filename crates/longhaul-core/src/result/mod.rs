//! Results: what happened. Renderers read them and compute nothing.
//!
//! Names carry their units (`_bps`, `_bytes`, `_seconds`, `_ms`), and each document that outlives
//! a process says its schema, such as `"longhaul.test/1"`.

mod copy;
mod link;
mod run;

pub use copy::{
    COPY_SCHEMA, CopyFailure, CopyResult, CopySummary, EndReport, StageTimes, TransferEnd,
};
pub use link::{DirectionReport, DropCounts, Lateness, LinkReport, LinkWarning, Traffic};
pub use run::{Caches, Guarantees, Outcome, RunRecord, RunSchema, ToolOutput};
