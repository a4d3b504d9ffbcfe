//! The refusal of a request.

use serde::{Deserialize, Serialize};

/// The body of a response that is not 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
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
    /// The body is no valid message (400).
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
