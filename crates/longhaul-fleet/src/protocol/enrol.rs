//! The enrolment of an agent.

use serde::{Deserialize, Serialize};

/// The request of a new agent, which a one-time token authenticates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// The secret part of the token.
    pub secret: String,
    /// The name of the agent's host; it must be the name of the token.
    pub host: String,
    /// The agent's Ed25519 public key: 32 bytes in base64.
    pub public_key: String,
    /// The version of longhaul.
    pub version: String,
}

/// The answer to an enrolment.
///
/// The same key may repeat an enrolment with the same token within ten minutes, because an answer can
/// be lost. The hub then returns the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolResponse {
    /// The agent's id, which its later requests state.
    pub agent: String,
    /// The name of the agent's host in the mesh.
    pub host: String,
    /// The version of the hub.
    pub hub_version: String,
}
