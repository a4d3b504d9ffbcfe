//! The control messages of a test.

use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::plan::TestPlan;
use crate::result::{SideResult, SideSample};

/// The messages of a test's client on the control channel, in this order: `Plan`, `Listening` if
/// the server opens the data connections, `Start` after the server is ready, `Stop` at any time
/// after that, and `Finished` in answer to `Done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestOrder {
    /// The plan to run.
    Plan(Box<TestPlan>),
    /// The client accepts data connections at this port of the address that the control channel
    /// comes from.
    Listening {
        /// The TCP port, or the UDP port of a test over UDP.
        port: u16,
    },
    /// Start: the sender may send.
    Start,
    /// Stop early: the sender ends its streams as at the end of the time.
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
