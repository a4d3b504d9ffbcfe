//! Plans: what to run, complete and validated, before anything runs.
//!
//! A plan is built from command-line arguments or from a TOML file and is plain data; an engine
//! turns it into samples.

mod copy;
mod error;
mod flow;
pub mod link;
mod matrix;
mod matrix_fault;
mod seconds;
mod topology;

pub use copy::{CopyOptions, CopyPlan, Location, LocationError, Protection};
pub use error::PlanError;
pub use flow::{Amount, Direction, FlowPlan};
pub use link::{LinkDirection, LinkOptions, LinkPlan, LinkPlanError, Side};
pub use matrix::{
    Condition, Conditions, DiskWork, Entry, MatrixPlan, MemoryWork, Precision, Workload,
};
pub use matrix_fault::{MatrixFault, Step};
pub use topology::{TopologyError, TopologyFault, TopologyLink, TopologyPart, TopologyPlan};
