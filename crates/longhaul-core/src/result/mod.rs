//! Results: what happened. Renderers read them and compute nothing.
//!
//! Names carry their units (`_bps`, `_bytes`, `_seconds`, `_ms`), and each document that outlives
//! a process says its schema, such as `"longhaul.test/1"`. `docs/design/results.md` describes
//! them all.

mod copy;
mod flow;
mod impairments;
mod link;
mod run;
mod side;
mod topology;
mod warning;

pub use copy::{
    COPY_SCHEMA, CopyFailure, CopyResult, CopySummary, EndReport, StageTimes, TransferEnd,
};
pub use flow::{
    FLOW_SCHEMA, FlowEnd, FlowResult, FlowSample, FlowSummary, SideSummary, StreamResult,
    StreamSample,
};
pub use impairments::{Impairments, Segments};
pub use link::{
    DirectionReport, DropCounts, Lateness, LatenessBucket, LinkReport, LinkWarning, ProcessorShare,
    Traffic,
};
pub use run::{Caches, Guarantees, HostLoad, Outcome, RunRecord, RunSchema, ToolOutput};
pub use side::{SideResult, SideSample, SideStream, SideStreamSample, TcpSample};
pub use topology::{SiteReport, TopologyLinkReport, TopologyReport};
pub use warning::{End, Warning, WarningKind};
