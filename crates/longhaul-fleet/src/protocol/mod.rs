//! The protocol of agents and the hub: JSON over HTTPS below [`BASE`].
//!
//! An agent sends `POST /agent/v1/enrol` ([`EnrolRequest`], [`EnrolResponse`]) once, and then
//! `POST /agent/v1/sync?wait=SECONDS` ([`SyncRequest`], [`SyncResponse`]) for ever. The agent signs
//! every `sync`, see [`signed_text`]. A refused request has the body [`Refusal`].
//! `docs/design/fleet.md` describes the states.

mod enrol;
mod limits;
mod refusal;
mod run;
mod sample;
mod sign;
mod sync;
mod token;

pub use enrol::{EnrolRequest, EnrolResponse};
pub use limits::{
    AGENT_HEADER, BASE, COUNTER_HEADER, DEFAULT_HUB_PORT, ENROL_PATH, MAX_BODY_BYTES,
    MAX_DOCUMENT_BYTES, MAX_EVENTS, MAX_LEASES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_ROWS,
    MAX_RUNS, MAX_WAIT_SECONDS, SIGNATURE_HEADER, SYNC_PATH,
};
pub use refusal::{Refusal, RefusalCode};
pub use run::{Lease, Role, RunOutcome, RunReason, RunReport, TestKind, TestSpec};
pub use sample::{InterfaceRow, InterfaceSamples, StampPeer, StampSummary};
pub use sign::{signature_holds, signed_text};
pub use sync::{AgentEvent, AgentSettings, AgentState, Severity, SyncRequest, SyncResponse};
pub use token::{EnrolToken, InvalidToken, key_pin};
