//! The plan of a memory-to-memory test: [`TestPlan`] and its parts.

mod check;
mod parts;
mod placement;
mod plan;
mod striping;

pub use parts::{Amount, Direction, Opener, Pacing, Protocol};
pub use placement::{CpuList, Placement};
pub use plan::TestPlan;
pub use striping::{LinkAddress, TestLink, parse_addresses};
