//! `longhaul.test/1`: a memory-to-memory test as its two ends saw it, put together.
//!
//! The two ends' samples are [joined](FlowSample::join) interval by interval, and their results
//! [folded](FlowResult::fold) into one document, with the [steady part](Steady) told apart from
//! the ramp, and the [reason](Reason) for the rate told from the [facts](FlowFacts).

mod document;
mod facts;
mod fold;
mod join;
mod math;
mod reason;
mod shares;
mod spoiled;
mod steady;
mod words;

pub use document::{
    FLOW_SCHEMA, FlowEnd, FlowHalf, FlowResult, FlowSample, FlowSummary, LinkSummary, SideSummary,
    StreamResult, StreamSample,
};
pub use facts::{EndFacts, FlowFacts};
pub use reason::{Hosts, Limit, Reason};
pub use shares::{Holder, Shares};
pub use steady::{Curve, Steady};
