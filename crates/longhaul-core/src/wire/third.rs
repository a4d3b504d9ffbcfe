use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::plan::FlowPlan;
use crate::result::{FlowResult, FlowSample};

/// The longest name or address of another server that a request may carry: a DNS name (RFC 1035),
/// brackets and a port.
pub const TARGET_LIMIT_BYTES: usize = 255 + 8;

/// What a client says who has one server test against another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThirdOrder {
    /// Run a test as the client of another server.
    Run {
        /// `HOST:PORT` of the other server, as the one asked resolves it.
        target: String,
        /// What to run, seen from the one asked.
        plan: Box<FlowPlan>,
    },
    /// End early, in order.
    Stop,
    /// The client has the result; the session is over.
    Finished,
}

/// What the server says that was asked to test against another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThirdEvent {
    /// The request is not for this server; the session is over.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// One sentence for the user.
        reason: String,
    },
    /// The test runs.
    Started,
    /// One interval, both ends' accounts joined.
    Sample(Box<FlowSample>),
    /// The whole test, without its intervals.
    Done(Box<FlowResult>),
    /// The test could not be run to its end; the session is over.
    Failed {
        /// One sentence for the user.
        reason: String,
    },
}
