//! Runs: the test, the lease that permits it, and the report of its outcome.

use std::net::IpAddr;

use longhaul_core::units::{Bytes, Rate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MAX_NAME_BYTES;

/// The kind of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TestKind {
    /// `longhaul test` from the source to the destination.
    Throughput,
    /// `longhaul path` with the server at the destination.
    Path,
    /// `longhaul cp` from a scratch directory to a scratch directory.
    Copy,
    /// `longhaul diagnose`.
    Diagnose,
    /// `longhaul test iperf3://`: the destination needs no agent.
    Iperf3,
    /// `longhaul test nuttcp://`: the destination needs no agent.
    Nuttcp,
}

impl TestKind {
    /// Returns the name in mesh files and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            TestKind::Throughput => "throughput",
            TestKind::Path => "path",
            TestKind::Copy => "copy",
            TestKind::Diagnose => "diagnose",
            TestKind::Iperf3 => "iperf3",
            TestKind::Nuttcp => "nuttcp",
        }
    }

    /// Returns whether the command measures for exactly the seconds of the test.
    pub fn is_timed(self) -> bool {
        matches!(self, TestKind::Throughput | TestKind::Iperf3 | TestKind::Nuttcp)
    }

    /// Returns whether the destination must run an agent.
    pub fn needs_target_agent(self) -> bool {
        !matches!(self, TestKind::Iperf3 | TestKind::Nuttcp)
    }
}

/// A test as the agent runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// The kind of the test.
    pub kind: TestKind,
    /// The duration of the measurement in seconds. For `path`, `copy` and `diagnose`, it is the time
    /// that the run may take.
    pub seconds: u32,
    /// The number of streams; the command's default if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u16>,
    /// The target rate; unlimited if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<Rate>,
    /// True for UDP instead of TCP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub udp: bool,
    /// The congestion control of TCP; the host's default if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The size of the data of a copy; 1 GB if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
}

/// The part of an agent in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent runs the client and reports the result.
    Source,
    /// The agent runs a server for this run only.
    Target,
}

/// The permission to run one role of one run within a window.
///
/// The hub repeats the leases of an agent in every answer until the agent reports their outcome, so a
/// lost answer loses no run. The agent accepts a run id once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The id of the run, unique in the fleet: 1 to 128 characters of `A-Za-z0-9_-`.
    pub run: String,
    /// The fencing number. The agent refuses a lease whose number is not above the highest that it
    /// has accepted for any of the resources.
    pub fencing: u64,
    /// The resources that the run occupies at this host, such as `host/eth0/out`.
    pub resources: Vec<String>,
    /// The name of the test in the mesh.
    pub test: String,
    /// The part of the agent.
    pub role: Role,
    /// The parameters of the test.
    pub spec: TestSpec,
    /// The name of the source's host.
    pub source: String,
    /// The name of the destination's host.
    pub destination: String,
    /// The agent's own address for the run; the choice of the kernel if `None`.
    pub local: Option<IpAddr>,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The port of the server of the run: the target listens there, and the source connects to it.
    pub port: u16,
    /// The Ed25519 public key of the peer's agent, 32 bytes in base64. The target authorizes this key
    /// only, and the source accepts this server only. `None` if the peer has no agent.
    pub peer_key: Option<String>,
    /// The earliest start, in ms since 1970 by the hub's clock.
    pub start_ms: i64,
    /// The time at which the run must have ended, in ms since 1970 by the hub's clock.
    pub end_ms: i64,
}

impl Lease {
    /// Returns whether the ids and names have valid lengths and characters, and the window is not
    /// empty. An agent ignores other leases.
    pub fn is_valid(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let id = (1..=MAX_NAME_BYTES).contains(&self.run.len()) && self.run.bytes().all(plain);
        let mut names = vec![&self.test, &self.source, &self.destination];
        names.extend(&self.resources);
        let congestion = self.spec.congestion.as_deref().unwrap_or("cubic");
        id && self.resources.len() <= 16
            && names.iter().all(|name| name.len() <= 2 * MAX_NAME_BYTES)
            && (1..=15).contains(&congestion.len())
            && congestion.bytes().all(plain)
            && !congestion.starts_with('-')
            && self.port > 0
            && self.start_ms >= 0
            && self.start_ms < self.end_ms
            && self.end_ms - self.start_ms <= 2 * 86_400_000
    }
}

/// The outcome of a run at one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The run has a result.
    Finished,
    /// The run started and has no result; the report has a reason.
    Failed,
    /// The run never started; the report has a reason.
    NotRun,
    /// The hub or an operator cancelled the run.
    Cancelled,
}

/// The reason of a run without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunReason {
    /// The source's agent did not take its lease.
    AgentAway,
    /// The target's agent did not take its lease, or its server did not answer.
    PeerAway,
    /// Another run occupied a resource.
    ResourceBusy,
    /// The lease arrived after the latest start.
    WindowMissed,
    /// The run did not end within its window; the agent stopped it.
    WindowEnded,
    /// The command failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The hub was away when the run was due.
    HubAway,
    /// A host is in maintenance.
    HostMaintenance,
    /// The lease has a fencing number that is not above an earlier one.
    StaleLease,
    /// The agent ended while the run was running.
    AgentRestarted,
    /// The agent's disk is full.
    DiskFull,
    /// The agent cannot run this test.
    Unsupported,
    /// The mesh changed before the run started.
    MeshChanged,
    /// The agent does not test the address of the peer.
    AddressRefused,
    /// A reason of a newer version.
    #[serde(other)]
    Unknown,
}

impl RunReason {
    /// Returns the name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            RunReason::AgentAway => "agent_away",
            RunReason::PeerAway => "peer_away",
            RunReason::ResourceBusy => "resource_busy",
            RunReason::WindowMissed => "window_missed",
            RunReason::WindowEnded => "window_ended",
            RunReason::Failed => "failed",
            RunReason::Cancelled => "cancelled",
            RunReason::HubAway => "hub_away",
            RunReason::HostMaintenance => "host_maintenance",
            RunReason::StaleLease => "stale_lease",
            RunReason::AgentRestarted => "agent_restarted",
            RunReason::DiskFull => "disk_full",
            RunReason::Unsupported => "unsupported",
            RunReason::MeshChanged => "mesh_changed",
            RunReason::AddressRefused => "address_refused",
            RunReason::Unknown => "unknown",
        }
    }
}

/// The report of one role of one run. The hub stores it once per run and role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The number of the report in the agent's journal, which the hub acknowledges.
    pub id: u64,
    /// The id of the run.
    pub run: String,
    /// The fencing number of the lease.
    pub fencing: u64,
    /// The part of the agent.
    pub role: Role,
    /// The outcome.
    pub outcome: RunOutcome,
    /// The reason, if the outcome is not [`RunOutcome::Finished`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    /// The start in ms since 1970 by the hub's clock; `None` if the run did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<i64>,
    /// The end in ms since 1970 by the hub's clock.
    pub ended_ms: i64,
    /// The exit code of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The error message of the command, at most [`MAX_MESSAGE_BYTES`](super::MAX_MESSAGE_BYTES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The result document of the command, such as `longhaul.test/1`, at most
    /// [`MAX_DOCUMENT_BYTES`](super::MAX_DOCUMENT_BYTES). Only the source has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
}
