//! The schedule of the heavy tests of a mesh: tasks with exclusive resources, their rounds, the time
//! of a full cycle, the load of the resources, and the choice of the next runs.
//!
//! A [`Schedule`] depends on the mesh only. [`Schedule::plan`] is a pure function of the schedule,
//! the states of the tasks and the active runs: the hub calls it every few seconds and stores its
//! decisions. A resource is an interface direction or a trunk direction. Two heavy runs never overlap
//! on a resource. `docs/design/fleet.md` describes the order and its bounds.

mod book;
mod color;
mod load;
mod plan;
#[cfg(test)]
mod plan_tests;
mod resource;
mod task;
mod whole;

pub use load::ResourceLoad;
pub use plan::{ActiveRun, Decision, Situation, Verdict};
pub use resource::{Resource, path_capacity, resources_of};
pub use task::{Task, TaskState};
pub use whole::{Schedule, TestRounds};
