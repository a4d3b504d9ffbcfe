use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::plan::FlowPlan;
use crate::result::{SideResult, SideSample};

/// What the client of a test says on the control channel, in this order: `Plan`, `Start` once
/// the server is ready, `Stop` at any time after that, `Finished` in answer to `Done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowOrder {
    /// What to run.
    Plan(FlowPlan),
    /// Begin: the sender may send.
    Start,
    /// End early: the sender ends its streams as it does when time is up.
    Stop,
    /// The client has the result; the session is over.
    Finished,
}

/// What the server of a test says: `Accepted` or `Refused` to the plan, `Ready` when all data
/// connections are there, a `Sample` each interval, and at the end `Done`.
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
