use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::plan::FlowPlan;
use crate::result::{SideResult, SideSample};

/// What the client of a test says on the control channel, in this order: `Plan`, `Listening` where
/// the server is to open the data connections, `Start` once the server is ready, `Stop` at any
/// time after that, `Finished` in answer to `Done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowOrder {
    /// What to run.
    Plan(Box<FlowPlan>),
    /// The client takes data connections at this port of the address that the control channel
    /// comes from.
    Listening {
        /// The TCP port, or the UDP port of a test over UDP.
        port: u16,
    },
    /// Begin: the sender may send.
    Start,
    /// End early: the sender ends its streams as it does when time is up.
    Stop,
    /// The client has the result; the session is over.
    Finished,
}

/// What the server of a test says: `Accepted` or `Refused` to the plan, `Ready` when all data
/// connections are there, a `Sample` each interval, and at the end `Done`. In a
/// test of both directions it says samples and `Done` for each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEvent {
    /// The client may open its data connections.
    Accepted,
    /// The plan is not for this server; the session is over.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// One sentence for the user.
        reason: String,
    },
    /// All data connections are there.
    Ready,
    /// One interval at the server's end.
    Sample(SideSample),
    /// The server's end of the whole test.
    Done(SideResult),
    /// The server could not go on; the session is over.
    Failed {
        /// One sentence for the user.
        reason: String,
    },
}
