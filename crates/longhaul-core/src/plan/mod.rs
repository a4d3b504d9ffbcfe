//! Plans: complete, validated descriptions of what to run.
//!
//! A plan is plain data, built from command-line arguments or a TOML file. An engine runs it and
//! produces samples.

mod copy;
pub mod filter;
pub mod link;
mod matrix;
mod path;
mod stamp;
mod test;
mod topology;
mod tree;

use std::fmt;

pub use copy::{
    CopyOptions, CopyPlan, CopySubset, DirectIo, Location, LocationError, Protection,
    SubsetContent, Verify, ssh_destination,
};
pub use link::{LinkDirection, LinkOptions, LinkPlan, LinkPlanError, Side};
pub use matrix::{
    Condition, Conditions, Constraint, Content, DataStore, DiskWork, DocumentStep, FlowTimes,
    MatrixFault, MatrixPlan, MatrixRow, MemoryWork, Mixed, PlanCell, PlanEntry, PlannedWork,
    Precision, RealPath, WorkFault, Workload,
};
pub use path::{PathPart, PathPlan, StreamSpec, TrainSpec};
pub use stamp::StampPlan;
pub use test::{
    CpuList, Direction, LinkAddress, Opener, Pacing, Placement, Protocol, TestLength, TestLink,
    TestPlan, parse_addresses,
};
pub use topology::{
    Attachment, FlowHash, GuestPlan, PlannedRoute, Routing, TopologyError, TopologyFault,
    TopologyLink, TopologyPart, TopologyPlan,
};
pub use tree::{DeleteOptions, OwnerMode, SyncLevel, TreeOptions};

/// The reason why a plan is invalid. Nothing has been started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A number is out of range.
    #[error("{field} is {value}, but must be {accepted}")]
    OutOfRange {
        /// The field, by the name that the user knows.
        field: &'static str,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// Two options exclude each other.
    #[error("{one} cannot be used with {other}")]
    Conflict {
        /// The first option.
        one: TestOption,
        /// The second option.
        other: TestOption,
    },
    /// An option needs another one.
    #[error("{one} needs {other}")]
    Needs {
        /// The given option.
        one: TestOption,
        /// The missing option.
        other: TestOption,
    },
}

/// An option of a test that excludes or needs another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOption {
    /// UDP.
    Udp,
    /// MPTCP.
    Mptcp,
    /// A congestion control.
    Congestion,
    /// A segment size.
    SegmentSize,
    /// The socket option TCP_NODELAY.
    NoDelay,
    /// Zero-copy send.
    ZeroCopy,
    /// Discarding of received data in the kernel.
    SkipReceiveCopy,
    /// The size of bursts.
    Burst,
    /// The rate.
    Rate,
    /// The method of pacing.
    Pacing,
    /// Pacing by the kernel.
    KernelPacing,
    /// Striping over links.
    Links,
    /// Data connections that the server opens.
    ServerOpens,
    /// An IPv4 address of a link.
    Ipv4,
    /// An IPv6 address of the same link.
    Ipv6,
}

impl fmt::Display for TestOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TestOption::Udp => "UDP",
            TestOption::Mptcp => "MPTCP",
            TestOption::Congestion => "a congestion control",
            TestOption::SegmentSize => "a segment size",
            TestOption::NoDelay => "no delay",
            TestOption::ZeroCopy => "zero-copy send",
            TestOption::SkipReceiveCopy => "discarding received data",
            TestOption::Burst => "a burst",
            TestOption::Rate => "a rate",
            TestOption::Pacing => "pacing",
            TestOption::KernelPacing => "pacing by the kernel",
            TestOption::Links => "striping over links",
            TestOption::ServerOpens => "data connections that the server opens",
            TestOption::Ipv4 => "an IPv4 address",
            TestOption::Ipv6 => "an IPv6 address on one link",
        })
    }
}
