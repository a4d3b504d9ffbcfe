//! Text for people. A renderer reads results and computes nothing; each ends with the answer.

use std::fmt::Display;
use std::io::{self, Write};

mod certificate;
mod copy;
mod diagnosis;
mod doctor;
mod flow;
mod path;
mod topology;

pub(crate) use certificate::{certificate_end, certificate_head, check_line};
pub(crate) use copy::{CopyBar, copy_text};
pub(crate) use diagnosis::{LadderView, diagnosis_text};
pub(crate) use doctor::doctor_text;
pub(crate) use flow::FlowText;
pub(crate) use path::path_text;
pub(crate) use topology::{link_text, topology_end, topology_summary, topology_table};

/// Says something beside the result, on standard error. That nobody hears it any more is no reason
/// to fail: there is work to end in order.
pub(crate) fn say(what: impl Display) {
    let _ = writeln!(io::stderr(), "longhaul: {what}");
}

/// Writes a result to standard output.
///
/// # Errors
/// Nobody reads it any more, or it cannot be stored.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
