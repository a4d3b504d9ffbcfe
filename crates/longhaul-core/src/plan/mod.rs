//! Plans: complete, validated descriptions of what to run.
//!
//! A plan is plain data, built from command-line arguments or a TOML file. An engine runs it and
//! produces samples.

mod copy;
mod error;
pub mod filter;
pub mod link;
mod matrix;
mod path;
mod stamp;
mod test;
mod topology;
mod tree;

pub use copy::{
    CopyOptions, CopyPlan, DirectIo, Location, LocationError, Protection, Sample, SampleContent,
    Verify, ssh_destination,
};
pub use error::{PlanError, TestOption};
pub use link::{LinkDirection, LinkOptions, LinkPlan, LinkPlanError, Side};
pub use matrix::{
    Condition, Conditions, Constraint, Content, DiskWork, MatrixFault, MatrixPlan, MemoryWork,
    Mixed, PlanCell, PlanEntry, PlannedWork, Precision, RealPath, Row, Step, Store, WorkFault,
    Workload,
};
pub use path::{PathPart, PathPlan, StreamSpec, TrainSpec};
pub use stamp::StampPlan;
pub use test::{
    Amount, CpuList, Direction, LinkAddress, Opener, Pacing, Placement, Protocol, TestLink,
    TestPlan, parse_addresses,
};
pub use topology::{
    Attachment, FlowHash, PlannedRoute, Routing, TopologyError, TopologyFault, TopologyLink,
    TopologyPart, TopologyPlan,
};
pub use tree::{DeleteOptions, OwnerMode, SyncLevel, TreeOptions};
