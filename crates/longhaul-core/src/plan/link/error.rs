//! Errors of link plans and trace files, and the bounds of their values.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::units::{Rate, format_span};

/// The packet size that every IPv4 host must accept (RFC 791).
pub(super) const MIN_MTU: u32 = 576;
/// The largest MTU of a TUN device (`MAX_MTU` in drivers/net/tun.c).
pub(super) const MAX_MTU: u32 = 65_535;
/// The largest one-way delay; with a longer delay TCP times out before it has an RTT sample.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);
/// The lowest rate; below it a single packet would take minutes.
pub(super) const MIN_RATE: Rate = Rate::from_bps(1000);

/// The reason why a link plan is invalid. Options are named without dashes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkPlanError {
    /// A delay beyond [`LinkPlan::MAX_DELAY`](super::LinkPlan::MAX_DELAY).
    #[error(
        "a one-way delay of {} exceeds the maximum of {}",
        format_span(*.delay), format_span(MAX_DELAY)
    )]
    Delay {
        /// The given delay.
        delay: Duration,
    },
    /// A rate below [`LinkPlan::MIN_RATE`](super::LinkPlan::MIN_RATE), including zero.
    #[error("a rate of {rate} is below the minimum of {}; omit it for no limit", MIN_RATE)]
    Rate {
        /// The given rate.
        rate: Rate,
    },
    /// An MTU outside of the range of IP links.
    #[error("an MTU of {mtu} is outside {} to {} bytes", MIN_MTU, MAX_MTU)]
    Mtu {
        /// The given MTU.
        mtu: u32,
    },
    /// An invalid value of an option.
    #[error("{option} cannot be '{value}': {accepted}")]
    Value {
        /// The name of the option.
        option: String,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// A time without a unit.
    #[error("{option} = {value} has no unit: did you mean {value}ms?")]
    NoUnit {
        /// The name of the option.
        option: String,
        /// The given value.
        value: String,
    },
    /// An unknown option.
    #[error("there is no link option '{option}'")]
    Unknown {
        /// The given name.
        option: String,
    },
    /// Two options that exclude each other.
    #[error("{one} and {other} contradict each other: give only one of them")]
    Contradiction {
        /// The first option.
        one: String,
        /// The second option.
        other: String,
    },
    /// An option that needs another one.
    #[error("{option} needs {needs}: give both or none")]
    Needs {
        /// The given option.
        option: &'static str,
        /// The missing option.
        needs: &'static str,
    },
    /// An option that cannot be changed on a running link.
    #[error("{option} of a running link cannot be changed: take the link down first")]
    Fixed {
        /// The name of the option.
        option: &'static str,
    },
    /// A file that an option names is unusable.
    #[error("{option} {file}: {}", trace_text(.cause))]
    Trace {
        /// The name of the option.
        option: &'static str,
        /// The path of the file.
        file: String,
        /// The reason, which the text includes.
        cause: Arc<TraceError>,
    },
    /// The files of a plan from a document were not loaded with
    /// [`LinkPlan::load`](super::LinkPlan::load).
    #[error("{option} {file}: the file is not loaded")]
    NotLoaded {
        /// The name of the option.
        option: &'static str,
        /// The path of the file.
        file: String,
    },
}

impl LinkPlanError {
    /// Returns the invalid option by the name that the user knows; `None` if several options
    /// conflict.
    pub fn option(&self) -> Option<&str> {
        match self {
            LinkPlanError::Delay { .. } | LinkPlanError::Rate { .. } => None,
            LinkPlanError::Mtu { .. } => Some("mtu"),
            LinkPlanError::Value { option, .. }
            | LinkPlanError::NoUnit { option, .. }
            | LinkPlanError::Unknown { option } => Some(option),
            LinkPlanError::Contradiction { other, .. } => Some(other),
            LinkPlanError::Needs { option, .. }
            | LinkPlanError::Fixed { option }
            | LinkPlanError::Trace { option, .. }
            | LinkPlanError::NotLoaded { option, .. } => Some(option),
        }
    }

    pub(super) fn value(option: &str, value: impl fmt::Display, accepted: &'static str) -> Self {
        LinkPlanError::Value { option: option.to_owned(), value: value.to_string(), accepted }
    }

    pub(super) fn contradiction(one: &str, other: &str) -> Self {
        LinkPlanError::Contradiction { one: one.to_owned(), other: other.to_owned() }
    }
}

/// The reason why an option cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OptionFault {
    /// The value is invalid; the text describes the accepted values.
    Value(&'static str),
    /// A word of the value is invalid; the text describes the accepted values.
    Word(String, &'static str),
    /// The time has no unit.
    NoUnit,
    /// The option needs another one.
    Needs(&'static str),
}

impl From<&'static str> for OptionFault {
    fn from(accepted: &'static str) -> Self {
        OptionFault::Value(accepted)
    }
}

/// The reason why a file is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// The file has no entry.
    #[error("has no entries")]
    Empty,
    /// A line cannot be parsed.
    #[error("line {line}: expected {expected}")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The expected content.
        expected: &'static str,
    },
    /// A file with which no packet could ever pass.
    #[error("{0}")]
    Stuck(&'static str),
    /// The file differs from the file of the document's run.
    #[error("has changed: its XXH3 digest is {found} instead of {wanted}")]
    Changed {
        /// The digest in the plan.
        wanted: String,
        /// The digest of the file.
        found: String,
    },
}

/// Returns the error with its cause as one sentence, because the cause helps the user.
fn trace_text(error: &TraceError) -> String {
    match error {
        TraceError::Read(source) => format!("the file cannot be read: {source}"),
        TraceError::Line { .. } => error.to_string(),
        other => format!("the file {other}"),
    }
}
