//! The plan of a memory-to-memory test: [`TestPlan`] and its parts.

mod check;
mod placement;
mod plan;
mod striping;

pub use placement::{CpuList, Placement};
pub use plan::{Amount, Direction, Opener, Pacing, Protocol, TestPlan};
pub use striping::{LinkAddress, TestLink, parse_addresses};
