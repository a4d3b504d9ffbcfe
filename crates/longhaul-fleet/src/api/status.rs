//! The grid of a mesh, and its hosts.

use serde::{Deserialize, Serialize};

use crate::protocol::{AgentState, HostSnapshot};

/// The schema of [`StatusDocument`].
pub const STATUS_SCHEMA: &str = "longhaul.fleet-status/1";

/// The answer to `GET /api/v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusDocument {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The version of the hub.
    pub version: String,
    /// The hub's clock, in ms since 1970.
    pub at_ms: i64,
    /// The name of the applied mesh; `None` before the first `apply`.
    pub mesh: Option<String>,
    /// The number of hosts in contact.
    pub hosts_present: u32,
    /// The number of hosts in the mesh.
    pub hosts: u32,
    /// The number of hosts of which the mesh declares that they have no agent; they are never in
    /// contact.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts_without_agent: u32,
    /// The predicted time of a full cycle in seconds.
    pub cycle_seconds: Option<u64>,
    /// The number of runs of the last 24 hours that were due.
    pub runs_expected: u64,
    /// The number of runs of the last 24 hours with a result.
    pub runs_finished: u64,
    /// The cells, by source, destination and metric.
    pub cells: Vec<CellDocument>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde calls.
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One cell of the grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CellDocument {
    /// The source's host.
    pub source: String,
    /// The destination's host.
    pub destination: String,
    /// The property.
    pub metric: CellMetric,
    /// The state after the rule of M of N.
    pub state: CellState,
    /// The last value, in the unit of the metric.
    pub value: Option<f64>,
    /// The expected value or threshold that the state is relative to.
    pub expected: Option<f64>,
    /// The time of the last value, in ms since 1970.
    pub at_ms: Option<i64>,
}

/// The property that a cell shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CellMetric {
    /// The throughput in bit/s.
    Throughput,
    /// The loss share; 0 to 1.
    Loss,
    /// The median round-trip time in ms.
    Rtt,
    /// The path MTU in bytes.
    Mtu,
}

/// The state of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CellState {
    /// Within the thresholds.
    Good,
    /// Beyond the warning threshold.
    Warning,
    /// Beyond the critical threshold.
    Critical,
    /// Too few or too old measurements; not a bad state.
    Unknown,
    /// The last runs did not run or failed.
    NotRun,
    /// A host is in maintenance.
    Maintenance,
    /// The mesh has no test of the pair.
    NotTested,
}

/// The schema of [`HostsDocument`].
pub const HOSTS_SCHEMA: &str = "longhaul.fleet-hosts/1";

/// The answer to `GET /api/v1/hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostsDocument {
    /// [`HOSTS_SCHEMA`].
    pub schema: String,
    /// The hosts in the order of the mesh, then enrolled hosts outside the mesh by name.
    pub hosts: Vec<HostDocument>,
}

/// The schema of [`SnapshotDocument`].
pub const SNAPSHOT_SCHEMA: &str = "longhaul.fleet-snapshot/1";

/// The answer to `GET /api/v1/hosts/NAME/snapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotDocument {
    /// [`SNAPSHOT_SCHEMA`].
    pub schema: String,
    /// The name of the host.
    pub host: String,
    /// The latest snapshot that its agent sent.
    pub snapshot: HostSnapshot,
}

/// A host of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostDocument {
    /// The name.
    pub name: String,
    /// The state of its agent.
    pub state: HostState,
    /// The id of its agent, if one has enrolled.
    pub agent: Option<String>,
    /// True if the applied mesh has the host.
    pub in_mesh: bool,
    /// The last contact, in ms since 1970.
    pub seen_ms: Option<i64>,
    /// The address of the last contact.
    pub address: Option<String>,
    /// The agent's clock minus the hub's clock at the last contact, in ms.
    pub clock_offset_ms: Option<i64>,
    /// The last state that the agent reported.
    pub report: Option<AgentState>,
}

/// The state of a host's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// The agent is in contact.
    Present,
    /// The agent has not contacted the hub for a minute.
    Away,
    /// A maintenance window covers the present time.
    Maintenance,
    /// No agent has enrolled.
    NotEnrolled,
    /// The agent's key is revoked.
    Revoked,
    /// The mesh declares that the host has no agent.
    NoAgent,
}
