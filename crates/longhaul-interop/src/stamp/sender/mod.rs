//! The sender: a state machine and its driver.

mod drive;
mod histograms;
mod ledger;
mod losses;
mod machine;
mod period;
mod result;
mod step;
mod traits;

pub use drive::{Advance, Measured, Progress, Sender, measure};
pub use machine::SenderMachine;
pub use result::{clocks, is_this_host};
pub use step::{Moment, NoReply, PeriodReport, ReplyArrival, Step};
pub use traits::ReflectorTraits;
