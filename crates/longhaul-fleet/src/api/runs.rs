//! The runs of a fleet.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::{RunReason, TestKind};

/// The schema of [`RunsDocument`].
pub const RUNS_SCHEMA: &str = "longhaul.fleet-runs/1";

/// The answer to `GET /api/v1/runs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunsDocument {
    /// [`RUNS_SCHEMA`].
    pub schema: String,
    /// The runs, the latest first.
    pub runs: Vec<RunDocument>,
    /// The value of `before` for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunDocument {
    /// The id.
    pub run: String,
    /// The name of the test.
    pub test: String,
    /// The kind of the test.
    pub kind: TestKind,
    /// The source's host.
    pub source: String,
    /// The destination's host.
    pub destination: String,
    /// The state.
    pub state: RunState,
    /// The reason, if the run has no result.
    pub reason: Option<RunReason>,
    /// The error message of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The planned start, in ms since 1970.
    pub planned_ms: i64,
    /// The end of the window, in ms since 1970.
    pub window_end_ms: i64,
    /// The start, in ms since 1970.
    pub started_ms: Option<i64>,
    /// The end, in ms since 1970.
    pub ended_ms: Option<i64>,
    /// The fencing number.
    pub fencing: u64,
    /// The resources that the run occupied.
    pub resources: Vec<String>,
    /// The throughput in bit/s, if the test measures it.
    pub throughput_bps: Option<u64>,
    /// The loss share, if the test measures it; 0 to 1.
    pub loss: Option<f64>,
    /// The median round-trip time in ms, if the test measures it.
    pub rtt_ms: Option<f64>,
    /// The path MTU in bytes, if the test measures it.
    pub mtu: Option<u32>,
    /// The result document; only of `GET /api/v1/runs/ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run is planned, and no agent has its lease yet.
    Planned,
    /// The agents have their leases.
    Leased,
    /// An agent reports that the run is running.
    Running,
    /// The run has a result.
    Finished,
    /// The run started and has no result.
    Failed,
    /// The run did not start.
    Missed,
    /// The run was cancelled.
    Cancelled,
}

impl RunState {
    /// Returns the name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Planned => "planned",
            RunState::Leased => "leased",
            RunState::Running => "running",
            RunState::Finished => "finished",
            RunState::Failed => "failed",
            RunState::Missed => "missed",
            RunState::Cancelled => "cancelled",
        }
    }

    /// Returns whether the state never changes again.
    pub fn is_final(self) -> bool {
        self >= RunState::Finished
    }
}
