use std::borrow::Cow;

/// A step from a document's root to the value that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The value of this key.
    Key(Cow<'static, str>),
    /// The element at this index.
    Index(usize),
}

impl Step {
    /// The value of a key that every plan may have.
    pub const fn key(name: &'static str) -> Self {
        Step::Key(Cow::Borrowed(name))
    }
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
    /// A factor that leaves nothing, or more than any disk has.
    #[error("scale is {scale}; it must be above 0 and at most 1000, such as 0.01")]
    Scale {
        /// What was asked for.
        scale: f64,
    },
    /// A run that may take no time.
    #[error("limit_seconds is 0; a run needs at least one second")]
    NoLimit,
    /// Nothing says how long the paths are.
    #[error("conditions.rtt is empty; it needs at least one round-trip time")]
    NoRtt,
    /// A link option without values.
    #[error("conditions.{option} is empty; give it a value or leave it out")]
    NoValues {
        /// The option.
        option: String,
    },
    /// The seed as a property of a path.
    #[error("conditions.seed cannot be given: it follows from the plan's own seed and the run")]
    SeedAsCondition,
    /// A value that a link option does not take, or an option that there is not.
    #[error("{reason}")]
    Value {
        /// The option.
        option: String,
        /// The value's place in its list.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The same value twice.
    #[error("conditions.{option} has {value} twice; use repeats to measure again")]
    ValueTwice {
        /// The option.
        option: String,
        /// The second's place in the list.
        index: usize,
        /// What is there twice.
        value: String,
    },
    /// Options that cannot be had together.
    #[error("the path '{path}' cannot be had: {reason}")]
    Path {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// Link options for a path that is not emulated.
    #[error("a plan with a real path cannot have conditions: the path is as it is")]
    RealConditions,
    /// A far end that is no name.
    #[error("real.far is '{far}'; it must be user@host or a host by its ssh name")]
    RealFar {
        /// What was given.
        far: String,
    },
    /// A far directory that some shell on the way would take for something else.
    #[error(
        "real.directory is '{directory}'; it must be a path of letters, digits and /._-+@,= \
         (a relative one is below the login directory)"
    )]
    RealDirectory {
        /// What was given.
        directory: String,
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
    /// Two workloads of one name.
    #[error("two workloads are called '{name}'")]
    WorkTwice {
        /// The second's place in the list.
        index: usize,
        /// The name.
        name: String,
    },
    /// No tool to run.
    #[error("entries is empty; it needs at least one tool")]
    NoEntries,
    /// Two rows of one name.
    #[error("two rows are called '{label}'; give one of their entries a label of its own")]
    LabelTwice {
        /// The second's entry.
        index: usize,
        /// The name.
        label: String,
    },
    /// An entry without work, or with one that the plan does not have.
    #[error("the plan has no workload '{name}'; it has: {known}")]
    NoWork {
        /// The entry's place in the list.
        index: usize,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An entry that copies nothing.
    #[error("the size of '{label}' is 0; there must be something to copy")]
    EntrySize {
        /// The entry's place in the list.
        index: usize,
        /// The entry's name.
        label: String,
    },
    /// A setting out of its range.
    #[error("{setting} of '{label}' has {value}; it must be 1 to {most}")]
    Setting {
        /// The entry's place in the list.
        index: usize,
        /// The setting.
        setting: &'static str,
        /// The entry's name.
        label: String,
        /// What was asked for.
        value: u64,
        /// The most that is taken.
        most: u64,
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
    /// A constraint that says nothing.
    #[error("this constraint says nothing, and so would mean every cell")]
    RuleEmpty {
        /// `only` or `except`.
        list: &'static str,
        /// Its place in that list.
        index: usize,
    },
    /// A constraint that means no cell, for instance for a misspelt name.
    #[error("no cell of the plan fits this constraint; see the names of entries and workloads")]
    RuleUnused {
        /// `only` or `except`.
        list: &'static str,
        /// Its place in that list.
        index: usize,
    },
    /// Constraints that leave nothing.
    #[error("the constraints leave no cell to run")]
    NoCells,
}

impl MatrixFault {
    /// Where in the plan's document the fault is.
    pub fn at(&self) -> Vec<Step> {
        use Step::Index;
        let key = Step::key;
        let axis = |option: &String| vec![key("conditions"), Step::Key(option.clone().into())];
        let entry = |index: usize| vec![key("entries"), Index(index)];
        let with = |mut steps: Vec<Step>, more: &[Step]| {
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
