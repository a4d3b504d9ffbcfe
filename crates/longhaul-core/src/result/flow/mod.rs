//! `longhaul.test/1`: the result of a memory-to-memory test, combined from its two ends.
//!
//! The samples of both ends are [joined](FlowSample::join) per interval, and their results
//! [folded](FlowResult::fold) into one document. The [steady part](Steady) is separated from the
//! ramp-up, and the [reason](Reason) for the rate is derived from the [facts](FlowFacts).

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
