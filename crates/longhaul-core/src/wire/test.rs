//! The control messages of a test, and of a test between two other servers.

use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::plan::TestPlan;
use crate::result::{SideResult, SideSample, TestResult, TestSample};

/// The messages of a test's client on the control channel, in this order: `Plan`, `Listening` if
/// the server opens the data connections, `Start` after the server is ready, `Stop` at any time
/// after that, and `Finished` in answer to `Done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestOrder {
    /// The plan to run.
    Plan(Box<TestPlan>),
    /// The client accepts data connections at this port. The address is that of the client's
    /// control channel.
    Listening {
        /// The TCP port, or the UDP port of a test over UDP.
        port: u16,
    },
    /// The sender may start.
    Start,
    /// Stop early: the sender ends its streams as at the end of the test's duration.
    Stop,
    /// The client has the result; the session ends.
    Finished,
}

/// The messages of a test's server: `Accepted` or `Refused` in answer to the plan, `Ready` when all
/// data connections exist, a `Sample` per interval, and `Done` at the end. In a bidirectional test
/// it sends samples and `Done` for each direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestEvent {
    /// The client may open its data connections.
    Accepted,
    /// The server refuses the plan; the session ends.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// The reason as one sentence for the user.
        reason: String,
    },
    /// All data connections exist.
    Ready,
    /// The sample of one interval at the server.
    Sample(SideSample),
    /// The result of the whole test at the server.
    Done(SideResult),
    /// The test failed at the server; the session ends.
    Failed {
        /// The reason as one sentence for the user.
        reason: String,
    },
}

/// The longest name or address of another server in a request: a DNS name (RFC 1035), brackets and
/// a port.
pub const TARGET_LIMIT_BYTES: usize = 255 + 8;

/// The messages of a client that lets one server test against another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThirdOrder {
    /// Run a test as the client of another server.
    Run {
        /// The `HOST:PORT` of the other server, which the requested server resolves.
        target: String,
        /// The plan, in which the requested server is the client.
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
