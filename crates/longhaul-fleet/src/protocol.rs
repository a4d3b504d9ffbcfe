//! The protocol of agents and the hub: JSON over HTTPS below [`BASE`].
//!
//! An agent sends `POST /agent/v1/enrol` ([`EnrollRequest`], [`EnrollResponse`]) once, and then
//! `POST /agent/v1/sync?wait=SECONDS` ([`SyncRequest`], [`SyncResponse`]) repeatedly. The agent
//! signs every `sync`, see [`signed_text`]. A refused request has the body [`RefusalBody`].
//! `docs/design/fleet.md` describes the states.

mod identity;
mod run;
mod sample;
mod snapshot;
mod sync;

pub use identity::{
    EnrollRequest, EnrollResponse, EnrollToken, InvalidToken, body_digest, key_pin,
    signature_holds, signed_text, signed_text_of_digest,
};
pub use run::{Lease, Role, RunOutcome, RunReason, RunReport, TestKind, TestSpec};
pub use sample::{HostRow, InterfaceRow, QueueRow, SampleBatch, StampPeer, StampSummary};
pub use snapshot::{CoreLoad, Flow, HostSnapshot, MAX_CORES, MAX_FLOWS, MAX_SHORT_NAME_BYTES};
pub use sync::{
    AgentEvent, AgentSettings, AgentState, DeclaredCapacity, InterfaceAddress, Severity,
    SyncRequest, SyncResponse,
};

use serde::{Deserialize, Serialize};

/// The path of all requests of agents.
pub const BASE: &str = "/agent/v1";
/// The path of an enrollment.
pub const ENROLL_PATH: &str = "/agent/v1/enrol";
/// The path of a sync, without its query `?wait=SECONDS`.
pub const SYNC_PATH: &str = "/agent/v1/sync";
/// The path of a check of an enrollment: a signed `GET` that changes nothing.
pub const CHECK_PATH: &str = "/agent/v1/check";
/// The default port of a hub.
pub const DEFAULT_HUB_PORT: u16 = 5280;
/// The header with the agent's id.
pub const AGENT_HEADER: &str = "longhaul-agent";
/// The header with the counter, a decimal number.
pub const COUNTER_HEADER: &str = "longhaul-counter";
/// The header with the SHA-256 of the body in lower-case hexadecimal.
pub const DIGEST_HEADER: &str = "longhaul-digest";
/// The header with the signature, in base64.
pub const SIGNATURE_HEADER: &str = "longhaul-signature";

/// The maximum number of bytes of a body, in both directions.
pub const MAX_BODY_BYTES: usize = 8 << 20;
/// The maximum number of bytes of the result document of one run.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// The longest long poll in seconds.
pub const MAX_WAIT_SECONDS: u64 = 25;
/// The maximum number of bytes of an identifier: of a run, an agent, a host, an interface, a test.
pub const MAX_NAME_BYTES: usize = 128;
/// The maximum number of bytes of a message for the reader.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// The maximum number of rows of samples in one sync.
pub const MAX_ROWS: usize = 20_000;
/// The maximum number of leases in one answer.
pub const MAX_LEASES: usize = 1024;
/// The maximum number of results in one sync.
pub const MAX_RUNS: usize = 256;
/// The maximum number of addresses of an agent's host.
pub const MAX_ADDRESSES: usize = 256;
/// The maximum number of events in one sync.
pub const MAX_EVENTS: usize = 256;

/// The body of a response that is not 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalBody {
    /// The reason.
    pub code: RefusalCode,
    /// A sentence for the log of the agent.
    pub message: String,
    /// The highest counter that the hub accepted from the agent, if the reason is
    /// [`RefusalCode::Replayed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
}

/// The reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The token is unknown or has expired (401).
    UnknownToken,
    /// Another agent has used the token (409).
    TokenUsed,
    /// The token belongs to another host name (403).
    OtherHost,
    /// The agent is unknown (401).
    UnknownAgent,
    /// The key of the agent is revoked (403).
    Revoked,
    /// The signature does not belong to the request (401).
    BadSignature,
    /// The counter is not above the last one (409).
    Replayed,
    /// The body or a part of it is larger than the limits (413).
    TooLarge,
    /// The body is not a valid message (400).
    Malformed,
    /// The hub cannot answer now (429, 500, 503); the agent retries later.
    Busy,
    /// A reason of a newer hub.
    #[serde(other)]
    Other,
}

impl RefusalCode {
    /// Returns the status of the HTTP response.
    pub fn status(self) -> u16 {
        match self {
            RefusalCode::UnknownToken | RefusalCode::UnknownAgent | RefusalCode::BadSignature => {
                401
            }
            RefusalCode::TokenUsed | RefusalCode::Replayed => 409,
            RefusalCode::OtherHost | RefusalCode::Revoked => 403,
            RefusalCode::TooLarge => 413,
            RefusalCode::Malformed | RefusalCode::Other => 400,
            RefusalCode::Busy => 503,
        }
    }
}
