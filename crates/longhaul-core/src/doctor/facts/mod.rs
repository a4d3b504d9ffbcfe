//! The facts of a host, as plain values.

mod devices;
mod host;

use std::fmt;

pub use devices::{
    Coalescing, DirectIoSupport, DiskFacts, InterfaceFacts, InterfaceKind, InterfaceOffloads,
    InterfaceTraffic, Interrupt, MountFacts, Pause, PciFacts, PcieLink, Queueing, Rings,
};
pub use host::{
    Chain, ClockFacts, FirewallFacts, HostFacts, IdleState, PathFacts, ProcessorFacts,
    ResourceLimit, TcpMemoryFacts,
};

/// A fact, or the reason why it is unknown.
pub type FactResult<T> = Result<T, UnknownFact>;

/// A fact that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFact {
    /// The file or call that provides it.
    pub what: String,
    /// The cause.
    pub cause: Cause,
}

/// The cause of an unreadable fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The user lacks the permission.
    Denied,
    /// The file does not exist, or the kernel or driver lacks the feature.
    Absent,
    /// Another error, as text.
    Failed(String),
}

impl UnknownFact {
    /// Reports `what` as missing.
    pub fn absent(what: impl Into<String>) -> Self {
        UnknownFact { what: what.into(), cause: Cause::Absent }
    }

    /// Reports that the content of `what` is not understood.
    pub fn not_understood(what: impl Into<String>, text: &str) -> Self {
        let shown: String = text.trim().chars().take(40).collect();
        UnknownFact {
            what: what.into(),
            cause: Cause::Failed(format!("unexpected content '{shown}'")),
        }
    }
}

impl fmt::Display for UnknownFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Denied => write!(f, "{}: permission denied", self.what),
            Cause::Absent => write!(f, "{}: not found", self.what),
            Cause::Failed(how) => write!(f, "{}: {how}", self.what),
        }
    }
}
