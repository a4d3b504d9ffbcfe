//! An emulated link: what each direction does to its packets.
//!
//! [`LinkPlan`] is what the emulator runs and what a result document repeats. It is made from
//! [`LinkOptions`], the text form that the command line, topology files and changes of a running
//! link share, so that an option means the same everywhere and is refused by the same sentence.
//!
//! Every impairment is decided for each segment: an MTU-sized packet as it would cross a wire,
//! also where the kernel hands over a super-packet of many.

mod capacity;
mod delay;
mod direction;
mod error;
mod loss;
mod option_table;
mod options;
mod outage;
mod plan;
mod preset;
mod probability;
mod samples;
mod schedule;
mod seed;
mod set;
mod side;
mod trace;

pub use capacity::{Aqm, CrossTraffic, ETHERNET_OVERHEAD, QueueLimit};
pub use delay::{Extent, Jitter, Reorder, Spread};
pub use direction::LinkDirection;
pub use error::LinkPlanError;
pub use loss::{Loss, LossTrace};
pub use option_table::{LINK_OPTIONS, LinkOption};
pub use options::LinkOptions;
pub(super) use options::Scalar;
pub use outage::Outage;
pub use plan::LinkPlan;
pub use preset::{Preset, fibre_delay};
pub use probability::Probability;
pub use samples::DelaySamples;
pub use schedule::{DelaySchedule, RateSchedule, Steps};
pub use seed::derive_seed;
pub use set::SegmentSet;
pub use side::Side;
pub use trace::{ReadFile, Trace, TraceError, TraceFile};
