//! `longhaul.test/1`: the result of a memory-to-memory test, combined from its two ends.
//!
//! The samples of both ends are [joined](TestSample::join) per interval, and their results
//! [folded](TestResult::fold) into one document. The [steady part](Steady) is separated from the
//! ramp-up, and the [reason](Reason) for the rate is derived from the [facts](TestFacts).

mod document;
mod facts;
mod fold;
mod gather;
mod join;
mod math;
mod reason;
mod report;
mod shares;
mod spoiled;
mod steady;
mod words;

pub use document::{
    LinkSummary, SideSummary, StreamResult, StreamSample, TEST_SCHEMA, TestEnd, TestHalf, TestPeer,
    TestResult, TestSample, TestSummary,
};
pub use facts::{EndFacts, TestFacts};
pub use reason::{Hosts, Limit, Reason};
pub use report::{SideReport, SideStreamReport};
pub use shares::{Holder, Shares};
pub use steady::{Curve, Steady};
