//! Notices for the log of the agent.

use crate::error::AgentError;

/// A notice. The program words it.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The agent has enrolled.
    Enrolled {
        /// The name of the host in the mesh.
        host: &'a str,
        /// The agent's id.
        agent: &'a str,
    },
    /// The agent runs.
    Started {
        /// The name of the host in the mesh.
        host: &'a str,
        /// The hub.
        hub: &'a str,
    },
    /// The hub answers, after a time without an answer.
    HubBack,
    /// The hub does not answer. Reported once, until it answers again.
    HubAway(&'a AgentError),
    /// A run has started.
    RunStarted {
        /// The id of the run.
        run: &'a str,
        /// The name of the test.
        test: &'a str,
    },
    /// A run is over.
    RunOver {
        /// The id of the run.
        run: &'a str,
        /// The reason, if it has no result.
        reason: Option<&'static str>,
    },
    /// The disk is full; no runs start until there is space.
    DiskFull,
    /// A part of the agent failed; the others continue.
    PartFailed {
        /// The part, such as `STAMP reflector`.
        part: &'static str,
        /// The error.
        message: String,
    },
}
