//! The control messages of a third-party test.

use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::plan::TestPlan;
use crate::result::{TestResult, TestSample};

/// The longest name or address of another server in a request: a DNS name (RFC 1035), brackets and
/// a port.
pub const TARGET_LIMIT_BYTES: usize = 255 + 8;

/// The messages of a client that lets one server test against another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThirdOrder {
    /// Run a test as the client of another server.
    Run {
        /// `HOST:PORT` of the other server, as the requested server resolves it.
        target: String,
        /// The plan, seen from the requested server.
        plan: Box<TestPlan>,
    },
    /// Stop early and cleanly.
    Stop,
    /// The client has the result; the session ends.
    Finished,
}

/// The messages of a server that tests against another server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThirdEvent {
    /// The server refuses the request; the session ends.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// The reason as one sentence for the user.
        reason: String,
    },
    /// The test has started.
    Started,
    /// The sample of one interval, combined from both ends.
    Sample(Box<TestSample>),
    /// The result of the whole test, without its intervals.
    Done(Box<TestResult>),
    /// The test failed; the session ends.
    Failed {
        /// The reason as one sentence for the user.
        reason: String,
    },
}
