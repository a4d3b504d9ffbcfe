//! The sender: a state machine and its driver.

mod drive;
mod histograms;
mod ledger;
mod losses;
mod machine;
mod period;
mod result;

pub use drive::{Measured, Progress, measure};
pub use machine::{Landed, Machine, Moment, PeriodReport, Seen, Silence, Step};
pub use result::{clocks, is_this_host};
