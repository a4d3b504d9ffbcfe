//! The sender: a state machine and its driver.

mod drive;
mod histograms;
mod ledger;
mod losses;
mod machine;
mod period;
mod result;
mod seen;
mod step;

pub use drive::{Advance, Measured, Progress, Sender, measure};
pub use machine::Machine;
pub use result::{clocks, is_this_host};
pub use seen::Seen;
pub use step::{Landed, Moment, PeriodReport, Silence, Step};
