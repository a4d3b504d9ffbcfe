//! The plan of a matrix: tools, workloads and settings over paths, with repeats.
//!
//! A [`MatrixPlan`] is the content of a TOML file. [`MatrixPlan::rows`] expands it into one [`MatrixRow`]
//! per tool, workload and setting, [`MatrixPlan::conditions`] into one [`Condition`] per path, and
//! [`MatrixPlan::cells`] omits the cells that the plan's constraints exclude. [`MatrixPlan::check`]
//! finds invalid values. The laboratory, which knows the drivers, checks that tools exist.

mod check;
mod condition;
mod conditions;
mod entry;
mod fault;
mod mixed;
mod plan;
mod row;
mod work;

pub use condition::Condition;
pub use conditions::Conditions;
pub use entry::Constraint;
pub use entry::PlanEntry;
pub use fault::{DocumentStep, MatrixFault};
pub use mixed::Mixed;
pub use plan::{DiskWork, FlowTimes, MatrixPlan, MemoryWork, Precision, RealPath};
pub use row::{MatrixRow, PlanCell};
pub use work::{Content, DataStore, PlannedWork, WorkFault, Workload};
