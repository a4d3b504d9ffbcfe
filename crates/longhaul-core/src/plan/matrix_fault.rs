use std::time::Duration;

use crate::units::{Rate, format_span};

/// A step from a document's root to the value that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The value of this key.
    Key(&'static str),
    /// The element at this index.
    Index(usize),
}

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatrixFault {
    /// The name is empty.
    #[error("name is empty")]
    NoName,
    /// Zero passes, or too many.
    #[error("repeats is {repeats}; it must be 1 to 1000")]
    Repeats {
        /// What was asked for.
        repeats: u32,
    },
    /// An interval of no width, or wider than the median itself.
    #[error("precision.share is {share}; it must be above 0 and at most 1, such as 0.05")]
    Share {
        /// What was asked for.
        share: f64,
    },
    /// Fewer passes than an interval takes, or too many.
    #[error("precision.at_most is {passes}; a 95 % interval takes 6 runs, and 1000 is the most")]
    AtMost {
        /// What was asked for.
        passes: u32,
    },
    /// A run that may take no time.
    #[error("limit_seconds is 0; a run needs at least one second")]
    NoLimit,
    /// The list of round-trip times is empty.
    #[error("conditions.rtt is empty; it needs at least one round-trip time")]
    NoRtt,
    /// A round-trip time beyond any path on Earth or to a satellite.
    #[error("a round-trip time of {} is more than the 10 s that a path may have", format_span(*rtt))]
    RttTooLong {
        /// Its place in the list.
        index: usize,
        /// What was asked for.
        rtt: Duration,
    },
    /// The same round-trip time twice.
    #[error("the round-trip time {} is listed twice; use repeats to measure again", format_span(*rtt))]
    RttTwice {
        /// The second's place in the list.
        index: usize,
        /// What is there twice.
        rtt: Duration,
    },
    /// A rate of nothing.
    #[error("a link rate of 0 carries nothing")]
    NoRate {
        /// Its place in the list.
        index: usize,
    },
    /// The same rate twice.
    #[error("the rate {rate} is listed twice; use repeats to measure again")]
    RateTwice {
        /// The second's place in the list.
        index: usize,
        /// What is there twice.
        rate: Rate,
    },
    /// No time to measure, or more than a day.
    #[error("memory.seconds is {seconds}; it must be 1 to 86400")]
    Seconds {
        /// What was asked for.
        seconds: u32,
    },
    /// An hour and more of slow start.
    #[error("memory.omit_seconds is {seconds}; it must be at most 3600")]
    Omit {
        /// What was asked for.
        seconds: u32,
    },
    /// Nothing to copy.
    #[error("disk.size is 0; there must be something to copy")]
    NoSize,
    /// No tool to run.
    #[error("entries is empty; it needs at least one tool")]
    NoEntries,
    /// Two rows of one name.
    #[error("two entries are called '{label}'; give one of them a label of its own")]
    LabelTwice {
        /// The second's place in the list.
        index: usize,
        /// The name.
        label: String,
    },
    /// An entry that copies nothing.
    #[error("the size of '{label}' is 0; there must be something to copy")]
    EntrySize {
        /// The entry's place in the list.
        index: usize,
        /// The entry's name.
        label: String,
    },
    /// An option that is no argument.
    #[error("an option of '{label}' is empty or holds a line break or NUL")]
    Option {
        /// The entry's place in the list.
        index: usize,
        /// The option's place in the entry.
        option: usize,
        /// The entry's name.
        label: String,
    },
}

impl MatrixFault {
    /// Where in the plan's document the fault is.
    pub fn at(&self) -> Vec<Step> {
        use Step::{Index, Key};
        match *self {
            MatrixFault::NoName => vec![Key("name")],
            MatrixFault::Repeats { .. } => vec![Key("repeats")],
            MatrixFault::Share { .. } => vec![Key("precision"), Key("share")],
            MatrixFault::AtMost { .. } => vec![Key("precision"), Key("at_most")],
            MatrixFault::NoLimit => vec![Key("limit_seconds")],
            MatrixFault::NoRtt => vec![Key("conditions"), Key("rtt")],
            MatrixFault::RttTooLong { index, .. } | MatrixFault::RttTwice { index, .. } => {
                vec![Key("conditions"), Key("rtt"), Index(index)]
            }
            MatrixFault::NoRate { index } | MatrixFault::RateTwice { index, .. } => {
                vec![Key("conditions"), Key("rate_bps"), Index(index)]
            }
            MatrixFault::Seconds { .. } => vec![Key("memory"), Key("seconds")],
            MatrixFault::Omit { .. } => vec![Key("memory"), Key("omit_seconds")],
            MatrixFault::NoSize => vec![Key("disk"), Key("size_bytes")],
            MatrixFault::NoEntries => vec![Key("entries")],
            MatrixFault::LabelTwice { index, .. } => vec![Key("entries"), Index(index)],
            MatrixFault::EntrySize { index, .. } => {
                vec![Key("entries"), Index(index), Key("size_bytes")]
            }
            MatrixFault::Option { index, option, .. } => {
                vec![Key("entries"), Index(index), Key("options"), Index(option)]
            }
        }
    }
}
