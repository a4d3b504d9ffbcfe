//! The hosts of a fleet.

use serde::{Deserialize, Serialize};

use crate::protocol::AgentState;

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
    /// The agent has not called for a minute.
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
