//! Text for people. A renderer reads results and computes nothing; each ends with the answer.

mod flow;

pub(crate) use flow::FlowText;
