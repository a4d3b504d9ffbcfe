//! Errors of matrix plans, and their positions in the document.

use std::borrow::Cow;

/// A step from a document's root to the invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentStep {
    /// The value of this key.
    Key(Cow<'static, str>),
    /// The element at this index.
    Index(usize),
}

impl DocumentStep {
    /// Creates a step to a key that every plan may have.
    pub const fn key(name: &'static str) -> Self {
        DocumentStep::Key(Cow::Borrowed(name))
    }
}

/// The reason why a plan is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatrixFault {
    /// The name is empty.
    #[error("name is empty")]
    NoName,
    /// The number of passes is zero or too large.
    #[error("repeats is {repeats}; it must be 1 to 1000")]
    Repeats {
        /// The given number.
        repeats: u32,
    },
    /// The width of an interval is zero or exceeds the median.
    #[error("precision.share is {share}; it must be above 0 and at most 1, such as 0.05")]
    Share {
        /// The given share.
        share: f64,
    },
    /// The number of passes is too small for an interval, or too large.
    #[error("precision.at_most is {passes}; a 95 % interval needs 6 runs, and the maximum is 1000")]
    AtMost {
        /// The given number of passes.
        passes: u32,
    },
    /// The factor makes the data empty, or larger than any disk.
    #[error("scale is {scale}; it must be above 0 and at most 1000, such as 0.01")]
    Scale {
        /// The given factor.
        scale: f64,
    },
    /// The time limit of a run is zero.
    #[error("limit_seconds is 0; a run needs at least one second")]
    NoLimit,
    /// The length of the paths is missing.
    #[error("conditions.rtt is empty; it needs at least one round-trip time")]
    NoRtt,
    /// A link option without values.
    #[error("conditions.{option} is empty; give it a value or omit it")]
    NoValues {
        /// The name of the option.
        option: String,
    },
    /// The seed was given as a property of a path.
    #[error("conditions.seed cannot be given: it is derived from the plan's seed and the run")]
    SeedAsCondition,
    /// The value of a link option is invalid, or the option is unknown.
    #[error("{reason}")]
    Value {
        /// The name of the option.
        option: String,
        /// The index of the value in its list.
        index: usize,
        /// The reason.
        reason: String,
    },
    /// A value appears twice.
    #[error("conditions.{option} has {value} twice; use repeats to measure again")]
    ValueTwice {
        /// The name of the option.
        option: String,
        /// The index of the second occurrence in the list.
        index: usize,
        /// The repeated value.
        value: String,
    },
    /// Options that cannot be combined.
    #[error("the path '{path}' is invalid: {reason}")]
    Path {
        /// The label of the path.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A plan has link options and a real path, which is not emulated.
    #[error("a plan with a real path cannot have conditions")]
    RealConditions,
    /// The far end is not a host name.
    #[error("real.far is '{far}'; it must be user@host or a host by its ssh name")]
    RealFar {
        /// The given name.
        far: String,
    },
    /// A directory name at the far end that a shell could misinterpret.
    #[error(
        "real.directory is '{directory}'; it must be a path of letters, digits and /._-+@,= \
         (a relative one is below the login directory)"
    )]
    RealDirectory {
        /// The given directory.
        directory: String,
    },
    /// The time of measurement is zero or more than a day.
    #[error("memory.seconds is {seconds}; it must be 1 to 86400")]
    Seconds {
        /// The given seconds.
        seconds: u32,
    },
    /// The omitted time is more than an hour.
    #[error("memory.omit_seconds is {seconds}; it must be at most 3600")]
    Omit {
        /// The given seconds.
        seconds: u32,
    },
    /// A workload has no data to copy.
    #[error("disk.size is 0; there must be something to copy")]
    NoSize,
    /// Two workloads have the same name.
    #[error("two workloads have the name '{name}'")]
    WorkTwice {
        /// The index of the second workload in the list.
        index: usize,
        /// The name of the workload.
        name: String,
    },
    /// The plan has no entries.
    #[error("entries is empty; it needs at least one tool")]
    NoEntries,
    /// Two rows have the same name.
    #[error("two rows have the name '{label}'; give one of their entries a different label")]
    LabelTwice {
        /// The index of the entry of the second row.
        index: usize,
        /// The name of the row.
        label: String,
    },
    /// An entry has no workload, or an unknown one.
    #[error("the plan has no workload '{name}'; its workloads: {known}")]
    NoWork {
        /// The index of the entry.
        index: usize,
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// An entry has a size of zero.
    #[error("the size of '{label}' is 0; there must be something to copy")]
    EntrySize {
        /// The index of the entry.
        index: usize,
        /// The name of the entry.
        label: String,
    },
    /// A setting is out of range.
    #[error("{setting} of '{label}' has {value}; it must be 1 to {most}")]
    Setting {
        /// The index of the entry.
        index: usize,
        /// The name of the setting.
        setting: &'static str,
        /// The name of the entry.
        label: String,
        /// The given value.
        value: u64,
        /// The largest accepted value.
        most: u64,
    },
    /// The time of the flows before or after a tool is out of range.
    #[error("recovery.{setting} is {seconds}; it must be 2 to 3600")]
    Recovery {
        /// The name of the setting.
        setting: &'static str,
        /// The given seconds.
        seconds: u32,
    },
    /// A congestion control of flows is not a name, or there are no flows.
    #[error(
        "beside_congestion of '{label}' has '{name}'; it needs the name of a congestion control, such \
         as cubic, and `beside`, the number of flows"
    )]
    BesideCongestion {
        /// The index of the entry.
        index: usize,
        /// The name of the entry.
        label: String,
        /// The given name.
        name: String,
    },
    /// An option of an entry cannot be an argument: it is empty or contains a line break or NUL.
    #[error("an option of '{label}' is empty or contains a line break or NUL")]
    Option {
        /// The index of the entry.
        index: usize,
        /// The index of the option in the entry.
        option: usize,
        /// The name of the entry.
        label: String,
    },
    /// A constraint is empty.
    #[error("this constraint is empty and would match every cell")]
    RuleEmpty {
        /// `only` or `except`.
        list: &'static str,
        /// The index in that list.
        index: usize,
    },
    /// A constraint matches no cell, for example because of a misspelled name.
    #[error(
        "no cell of the plan matches this constraint; check the names of entries and workloads"
    )]
    RuleUnused {
        /// `only` or `except`.
        list: &'static str,
        /// The index in that list.
        index: usize,
    },
    /// The constraints exclude every cell.
    #[error("the constraints leave no cell to run")]
    NoCells,
}

impl MatrixFault {
    /// Returns the position of the error in the plan's document.
    pub fn at(&self) -> Vec<DocumentStep> {
        use DocumentStep::Index;
        let key = DocumentStep::key;
        let axis =
            |option: &String| vec![key("conditions"), DocumentStep::Key(option.clone().into())];
        let entry = |index: usize| vec![key("entries"), Index(index)];
        let with = |mut steps: Vec<DocumentStep>, more: &[DocumentStep]| {
            steps.extend_from_slice(more);
            steps
        };
        match self {
            MatrixFault::NoName => vec![key("name")],
            MatrixFault::Repeats { .. } => vec![key("repeats")],
            MatrixFault::Share { .. } => vec![key("precision"), key("share")],
            MatrixFault::AtMost { .. } => vec![key("precision"), key("at_most")],
            MatrixFault::Scale { .. } => vec![key("scale")],
            MatrixFault::NoLimit => vec![key("limit_seconds")],
            MatrixFault::NoRtt => vec![key("conditions"), key("rtt")],
            MatrixFault::Path { .. } | MatrixFault::RealConditions => vec![key("conditions")],
            MatrixFault::SeedAsCondition => vec![key("conditions"), key("seed")],
            MatrixFault::NoValues { option } => axis(option),
            MatrixFault::Value { option, index, .. }
            | MatrixFault::ValueTwice { option, index, .. } => with(axis(option), &[Index(*index)]),
            MatrixFault::RealFar { .. } => vec![key("real"), key("far")],
            MatrixFault::RealDirectory { .. } => vec![key("real"), key("directory")],
            MatrixFault::Seconds { .. } => vec![key("memory"), key("seconds")],
            MatrixFault::Omit { .. } => vec![key("memory"), key("omit_seconds")],
            MatrixFault::NoSize => vec![key("disk"), key("size_bytes")],
            MatrixFault::WorkTwice { index, .. } => {
                vec![key("workloads"), Index(*index), key("name")]
            }
            MatrixFault::NoEntries | MatrixFault::NoCells => vec![key("entries")],
            MatrixFault::LabelTwice { index, .. } => entry(*index),
            MatrixFault::NoWork { index, .. } => with(entry(*index), &[key("workload")]),
            MatrixFault::EntrySize { index, .. } => with(entry(*index), &[key("size_bytes")]),
            MatrixFault::Recovery { setting, .. } => vec![key("recovery"), key(setting)],
            MatrixFault::BesideCongestion { index, .. } => {
                with(entry(*index), &[key("beside_congestion")])
            }
            MatrixFault::Setting { index, setting, .. } => with(entry(*index), &[key(setting)]),
            MatrixFault::Option { index, option, .. } => {
                with(entry(*index), &[key("options"), Index(*option)])
            }
            MatrixFault::RuleEmpty { list, index } | MatrixFault::RuleUnused { list, index } => {
                vec![key(list), Index(*index)]
            }
        }
    }
}
