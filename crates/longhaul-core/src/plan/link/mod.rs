//! The plan of an emulated link: the properties of both directions.
//!
//! The emulator runs a [`LinkPlan`], and result documents contain it. It is built from
//! [`LinkOptions`], the text form that the command line, topology files and changes of a running
//! link share. An option therefore has the same meaning and the same error messages everywhere.
//!
//! Every impairment is decided per segment, an MTU-sized packet as it would cross a wire, even if
//! the kernel delivers a super-packet of many segments.

mod capacity;
mod class;
mod delay;
mod direction;
mod error;
mod loss;
mod moments;
mod netem;
mod option_document;
mod option_table;
mod option_value;
mod options;
mod outage;
mod plan;
mod preset;
mod recording;
mod recording_reader;
mod schedule;
mod set;
mod trace;
mod values;

pub use capacity::{Aqm, CrossTraffic, ETHERNET_OVERHEAD, Policer, QueueLimit};
pub use class::{ClassMatch, Headers};
pub use delay::{DelayDistribution, DelaySamples, Extent, Jitter, Reorder};
pub use direction::{LinkClass, LinkDirection};
pub use error::{LinkPlanError, TraceError};
pub use loss::{Loss, LossTrace};
pub(super) use option_document::Scalar;
pub use option_table::{LINK_OPTIONS, LinkOption};
pub use options::LinkOptions;
pub use outage::{Outage, Slots};
pub use plan::LinkPlan;
pub use preset::{Preset, fiber_delay};
pub use recording::{
    Fate, PathRecording, RecordedDirection, RecordedProbes, RecordedWindow, RecordingHead,
};
pub use schedule::{DelaySchedule, RateSchedule, Steps};
pub use set::SegmentSet;
pub use trace::{NO_FILES, ReadFile, Trace, TraceFile};
pub use values::{Probability, Side, derive_seed};
