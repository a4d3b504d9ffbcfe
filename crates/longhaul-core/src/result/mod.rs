//! Results: what happened. Renderers read them and compute nothing.
//!
//! Names carry their units (`_bps`, `_bytes`, `_seconds`, `_ms`), and each document that outlives
//! a process says its schema, such as `"longhaul.test/1"`. `docs/design/results.md` describes
//! them all.

mod check;
mod copy;
mod flow;
mod link;
mod manifest;
mod run;
mod side;
mod warning;

pub use check::{CHECK_SCHEMA, CheckResult};
pub use copy::{
    Action, ActionKind, COPY_SCHEMA, CopyFailure, CopyResult, CopySummary, DigestOf, EndReport,
    Kept, Limit, NotKept, PathReport, StageTimes, TransferEnd,
};
pub use flow::{
    FLOW_SCHEMA, FlowEnd, FlowResult, FlowSample, FlowSummary, SideSummary, StreamResult,
    StreamSample,
};
pub use link::{DirectionReport, DropCounts, Lateness, LinkReport, LinkWarning, Traffic};
pub use manifest::{Manifest, ManifestError, ManifestFile, digest_from_hex, hex};
pub use run::{Caches, Guarantees, Outcome, RunRecord, RunSchema, ToolOutput};
pub use side::{SideResult, SideSample, SideStream, SideStreamSample, TcpSample};
pub use warning::{End, Warning, WarningKind};
