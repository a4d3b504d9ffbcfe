//! The execution of runs: the commands of a lease, their processes, and the queue of accepted runs.

mod child;
mod command;
mod execute;
mod keys;
mod queue;
mod scratch;

pub(crate) use child::{ChildOutcome, run_child};
pub(crate) use execute::Executor;
pub(crate) use queue::RunQueue;
