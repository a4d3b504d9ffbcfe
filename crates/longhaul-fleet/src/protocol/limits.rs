//! The paths, headers and limits of the protocol.

/// The path of all requests of agents.
pub const BASE: &str = "/agent/v1";
/// The path of an enrolment.
pub const ENROL_PATH: &str = "/agent/v1/enrol";
/// The path of a sync, without its query `?wait=SECONDS`.
pub const SYNC_PATH: &str = "/agent/v1/sync";
/// The default port of a hub.
pub const DEFAULT_HUB_PORT: u16 = 5280;
/// The header with the agent's id.
pub const AGENT_HEADER: &str = "longhaul-agent";
/// The header with the counter, a decimal number.
pub const COUNTER_HEADER: &str = "longhaul-counter";
/// The header with the signature, in base64.
pub const SIGNATURE_HEADER: &str = "longhaul-signature";

/// The most bytes of a body, in both directions.
pub const MAX_BODY_BYTES: usize = 8 << 20;
/// The most bytes of the result document of one run.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// The longest long poll in seconds.
pub const MAX_WAIT_SECONDS: u64 = 25;
/// The most bytes of an identifier: of a run, an agent, a host, an interface, a test.
pub const MAX_NAME_BYTES: usize = 128;
/// The most bytes of a message for people.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// The most rows of samples in one sync.
pub const MAX_ROWS: usize = 20_000;
/// The most leases in one answer.
pub const MAX_LEASES: usize = 1024;
/// The most results in one sync.
pub const MAX_RUNS: usize = 256;
/// The most events in one sync.
pub const MAX_EVENTS: usize = 256;
