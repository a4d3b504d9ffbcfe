//! Text for people. A renderer reads results and computes nothing; each ends with the answer.

mod copy;
mod flow;
mod topology;

pub(crate) use copy::{CopyBar, copy_text};
pub(crate) use flow::FlowText;
pub(crate) use topology::{link_text, topology_end, topology_summary, topology_table};
