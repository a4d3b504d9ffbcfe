//! Plans: what to run, complete and validated, before anything runs.
//!
//! A plan is built from command-line arguments or from a TOML file and is plain data; an engine
//! turns it into samples.

mod flow;
mod matrix;

pub use flow::{Amount, Direction, FlowPlan};
pub use matrix::{
    Condition, Conditions, DiskWork, Entry, MatrixFault, MatrixPlan, MemoryWork, Step, Workload,
};
