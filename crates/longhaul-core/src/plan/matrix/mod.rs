//! An experiment as data: tools by workloads by settings, over paths, so many times.
//!
//! A [`MatrixPlan`] is what a TOML file says. [`MatrixPlan::rows`] multiplies it out into one
//! [`Row`] for each tool, workload and setting, [`MatrixPlan::conditions`] into one [`Condition`]
//! for each path, and [`MatrixPlan::cells`] leaves out what the plan's constraints exclude.
//! [`MatrixPlan::check`] finds what makes no sense; whether a tool exists is the laboratory's to
//! say, which knows the drivers.

mod check;
mod condition;
mod conditions;
mod entry;
mod fault;
mod list;
mod mixed;
mod plan;
mod row;
mod rule;
mod work;

pub use condition::Condition;
pub use conditions::Conditions;
pub use entry::Entry;
pub use fault::{MatrixFault, Step};
pub use mixed::Mixed;
pub use plan::{DiskWork, MatrixPlan, MemoryWork, Precision, RealPath};
pub use row::{PlanCell, Row};
pub use rule::Rule;
pub use work::{Content, Store, Work, WorkFault, Workload};
