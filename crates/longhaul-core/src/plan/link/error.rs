use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{LinkPlan, TraceError};
use crate::units::{Rate, format_span};

/// Why a link plan makes no sense. Options are named without their dashes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkPlanError {
    /// A delay beyond [`LinkPlan::MAX_DELAY`].
    #[error(
        "a one-way delay of {} is more than the {} that a link may have",
        format_span(*.delay), format_span(LinkPlan::MAX_DELAY)
    )]
    Delay {
        /// What was asked for.
        delay: Duration,
    },
    /// A rate below [`LinkPlan::MIN_RATE`], zero among them.
    #[error(
        "a rate of {rate} is below the {} that a link must have; leave it out for no limit",
        LinkPlan::MIN_RATE
    )]
    Rate {
        /// What was asked for.
        rate: Rate,
    },
    /// An MTU that no IP link may have.
    #[error("an MTU of {mtu} is outside {} to {} bytes", LinkPlan::MIN_MTU, LinkPlan::MAX_MTU)]
    Mtu {
        /// What was asked for.
        mtu: u32,
    },
    /// A value that the option does not take.
    #[error("--{option} cannot be '{value}': {accepted}")]
    Value {
        /// The option.
        option: String,
        /// What was asked for.
        value: String,
        /// What it takes.
        accepted: &'static str,
    },
    /// There is no such option.
    #[error("there is no link option '{option}'")]
    Unknown {
        /// What was asked for.
        option: String,
    },
    /// Two options that say different things about the same.
    #[error("--{one} and --{other} contradict each other: give one of them")]
    Contradiction {
        /// One.
        one: String,
        /// The other.
        other: String,
    },
    /// An option that means nothing without another.
    #[error("--{option} means nothing without --{needs}: give both or none")]
    Needs {
        /// The one that was given.
        option: &'static str,
        /// The one that is missing.
        needs: &'static str,
    },
    /// An option that a running link cannot change.
    #[error("--{option} of a running link is fixed: take the link down to change it")]
    Fixed {
        /// The option.
        option: &'static str,
    },
    /// A file that an option names is of no use.
    #[error("--{option} {file}: {}", trace_text(.source))]
    Trace {
        /// The option.
        option: &'static str,
        /// The file.
        file: String,
        /// Why.
        source: Arc<TraceError>,
    },
    /// A plan of a document was not given its files with [`LinkPlan::load`].
    #[error("--{option} {file}: the file has not been read yet")]
    NotLoaded {
        /// The option.
        option: &'static str,
        /// The file.
        file: String,
    },
}

impl LinkPlanError {
    /// The option at fault, where it is a single one, as the user knows it.
    pub fn option(&self) -> Option<&str> {
        match self {
            LinkPlanError::Delay { .. } | LinkPlanError::Rate { .. } => None,
            LinkPlanError::Mtu { .. } => Some("mtu"),
            LinkPlanError::Value { option, .. } | LinkPlanError::Unknown { option } => Some(option),
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

/// The reason in the same sentence, as it alone says what to do.
fn trace_text(error: &TraceError) -> String {
    match error {
        TraceError::Read(source) => format!("the file cannot be read: {source}"),
        TraceError::Line { .. } => error.to_string(),
        other => format!("the file {other}"),
    }
}
