//! Text for people. A renderer reads results and computes nothing; each ends with the answer.

mod copy;
mod flow;

pub(crate) use copy::{CopyBar, copy_text};
pub(crate) use flow::FlowText;
