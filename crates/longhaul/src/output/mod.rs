//! Text for people. A renderer reads results and computes nothing; each ends with the answer.

mod certificate;
mod copy;
mod flow;
mod topology;

pub(crate) use certificate::{certificate_end, certificate_head, check_line};
pub(crate) use copy::{CopyBar, copy_text};
pub(crate) use flow::FlowText;
pub(crate) use topology::{link_text, topology_end, topology_summary, topology_table};
