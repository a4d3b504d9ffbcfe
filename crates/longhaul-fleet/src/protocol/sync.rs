//! The exchange of an agent and the hub.

use std::net::IpAddr;

use longhaul_core::units::Rate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::{Lease, RunReport};
use super::sample::{SampleBatch, StampPeer, StampSummary};
use super::snapshot::HostSnapshot;

/// The upload of an agent. It has at most [`MAX_ROWS`](super::MAX_ROWS) rows,
/// [`MAX_RUNS`](super::MAX_RUNS) results and [`MAX_EVENTS`](super::MAX_EVENTS) events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncRequest {
    /// The kernel's boot id.
    pub boot: String,
    /// The agent's clock, in ms since 1970.
    pub clock_ms: i64,
    /// The state of the agent.
    pub state: AgentState,
    /// The document of `longhaul doctor --json`, only if it changed since the last one that the hub
    /// received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Value>,
    /// The samples of interfaces and of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleBatch>,
    /// The state of the host, if there is a newer one than in the last upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<HostSnapshot>,
    /// The outcomes of runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RunReport>,
    /// The STAMP measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stamp: Vec<StampSummary>,
    /// The events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<AgentEvent>,
}

/// The state of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentState {
    /// The version of longhaul.
    pub version: String,
    /// The time since the start of the agent in seconds.
    pub uptime_seconds: u64,
    /// The ids of the runs that run now.
    pub running: Vec<String>,
    /// The ids of the accepted runs that have not started.
    pub accepted: Vec<String>,
    /// The free space of the file system of the journal in bytes.
    pub disk_free_bytes: u64,
    /// The size of the journal in bytes.
    pub journal_bytes: u64,
    /// The number of entries of the journal that the hub has not acknowledged.
    pub backlog: u64,
    /// The resident memory of the agent in bytes.
    pub memory_bytes: u64,
    /// The UDP port of the agent's STAMP reflector; 0 if it has none.
    pub stamp_port: u16,
    /// The addresses of the interfaces, except those that only the host or the link can reach; at most
    /// [`MAX_ADDRESSES`](super::MAX_ADDRESSES).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface. A mesh can name an interface by its address only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterfaceAddress {
    /// The name of the interface at the host.
    pub interface: String,
    /// The address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
}

/// An event at an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEvent {
    /// The number of the event in the agent's journal, which the hub acknowledges.
    pub id: u64,
    /// The time in ms since 1970 by the hub's clock.
    pub at_ms: i64,
    /// The severity.
    pub severity: Severity,
    /// The kind, such as `agent_started`, `disk_full`, `samples_dropped`, `clock_step`.
    pub kind: String,
    /// The description, one sentence.
    pub message: String,
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// No action is necessary.
    Info,
    /// A measurement is degraded.
    Warning,
    /// Data or tests are lost.
    Error,
}

/// The answer of the hub. It comes at once if there is a new lease or cancellation, and otherwise at
/// the end of the long poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncResponse {
    /// The numbers of the journal entries that the hub has stored. The agent deletes them.
    pub acknowledged: Vec<u64>,
    /// True if the hub has stored the facts of the request.
    #[serde(default)]
    pub facts_stored: bool,
    /// All leases of the agent without a reported outcome.
    pub leases: Vec<Lease>,
    /// The ids of the runs that the agent must stop or not start.
    #[serde(default)]
    pub cancel: Vec<String>,
    /// All peers that the agent measures with STAMP.
    #[serde(default)]
    pub stamp_peers: Vec<StampPeer>,
    /// The settings of the agent.
    pub settings: AgentSettings,
}

/// The settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// The hub's clock when it sent the answer, in ms since 1970. Leases, samples and results use
    /// this clock.
    pub hub_ms: i64,
    /// The interval of the samples in ms; 100 to 60000.
    pub sample_interval_ms: u32,
    /// The seconds between two uploads of samples, if nothing else is to be sent; 1 to 300.
    pub upload_seconds: u32,
    /// The greatest capacity that the mesh declares for the agent's host. The agent examines its host for this
    /// rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<DeclaredCapacity>,
}

/// A capacity that the mesh declares for an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredCapacity {
    /// The capacity of each direction.
    pub capacity_bps: Rate,
    /// The name of the interface, if it is one of [`AgentState::addresses`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}
