//! The plan of a memory-to-memory test: [`FlowPlan`] and its parts.

mod check;
mod parts;
mod placement;
mod plan;
mod striping;

pub use parts::{Amount, Direction, Opener, Pacing, Protocol};
pub use placement::{CpuList, Placement};
pub use plan::FlowPlan;
pub use striping::{Link, LinkAddress, parse_addresses};
