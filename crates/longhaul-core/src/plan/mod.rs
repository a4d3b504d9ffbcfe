//! Plans: what to run, complete and validated, before anything runs.
//!
//! A plan is built from command-line arguments or from a TOML file and is plain data; an engine
//! turns it into samples.

mod flow;
mod link;
mod seconds;

pub use flow::{Amount, Direction, FlowPlan};
pub use link::{LinkDirection, LinkPlan, LinkPlanError, Side};
