use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Rate, format_span, span_text};

/// An experiment: every entry over every condition, `repeats` times.
///
/// Data only. [`MatrixPlan::check`] finds what makes no sense; whether a tool exists is the
/// laboratory's to say, which knows the drivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixPlan {
    /// What the experiment is called in tables and reports.
    pub name: String,
    /// Complete passes over all cells; 1 to 1000.
    #[serde(default = "once")]
    pub repeats: u32,
    /// Seed of the order within each pass, so that a plan run twice runs in the same order.
    #[serde(default)]
    pub seed: u64,
    /// When a single run is given up; `None` lets the laboratory derive it from the workload.
    #[serde(default)]
    pub limit_seconds: Option<u32>,
    /// The paths to try.
    pub conditions: Conditions,
    /// The memory-to-memory workload.
    #[serde(default)]
    pub memory: MemoryWork,
    /// The disk-to-disk workload.
    #[serde(default)]
    pub disk: DiskWork,
    /// The tools to compare, in the order of the table's rows.
    pub entries: Vec<Entry>,
}

/// Lists of path properties; the conditions are their product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Round-trip times, as text with a unit.
    rtt: Vec<Span>,
    /// Link rates; empty leaves the rate to the machine.
    #[serde(rename = "rate_bps", alias = "rate", default)]
    rate: Vec<Rate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Span(#[serde(with = "span_text")] Duration);

impl Conditions {
    /// The product of `rtt` and `rate`.
    pub fn new(rtt: &[Duration], rate: &[Rate]) -> Self {
        Conditions { rtt: rtt.iter().copied().map(Span).collect(), rate: rate.to_vec() }
    }
}

/// One emulated path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Round-trip time, half of it in each direction.
    #[serde(rename = "rtt_ms", with = "milliseconds")]
    pub rtt: Duration,
    /// Link rate in each direction; `None` is as fast as the machine goes.
    #[serde(rename = "rate_bps")]
    pub rate: Option<Rate>,
}

impl Condition {
    /// The heading of this condition's column: `90 ms`, or `90 ms, 10.0 Gb/s`.
    pub fn label(&self) -> String {
        let text = format_span(self.rtt);
        let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let rtt = format!("{} {}", &text[..unit], &text[unit..]);
        match self.rate {
            Some(rate) => format!("{rtt}, {rate}"),
            None => rtt,
        }
    }
}

/// How long memory-to-memory entries run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryWork {
    /// Seconds that count; 1 to 86400.
    pub seconds: u32,
    /// Seconds before them that do not, for slow start; at most 3600.
    pub omit_seconds: u32,
}

impl Default for MemoryWork {
    fn default() -> Self {
        MemoryWork { seconds: 10, omit_seconds: 4 }
    }
}

/// What disk-to-disk entries copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskWork {
    /// Size of the file that is made when `data` names none.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: Bytes,
    /// A file or directory of the user's own.
    pub data: Option<String>,
}

impl Default for DiskWork {
    fn default() -> Self {
        DiskWork { size: Bytes::gib(8), data: None }
    }
}

/// What a tool is given to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Memory to memory, for a time.
    Memory,
    /// Disk to disk, a file or a directory.
    Disk,
}

impl Workload {
    /// The text of the table's column `Type`.
    pub const fn label(self) -> &'static str {
        match self {
            Workload::Memory => "Mem to mem",
            Workload::Disk => "Disk to disk",
        }
    }
}

/// One row of the matrix: a tool with options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The driver, such as `iperf3` or `longhaul cp`.
    pub tool: String,
    /// What it is given to do.
    pub workload: Workload,
    /// Arguments added to the tool's command.
    #[serde(default)]
    pub options: Vec<String>,
    /// The row's name where tool and options would not read well.
    #[serde(default)]
    pub label: Option<String>,
    /// Size of the made file for this entry where it is less than the plan's: for a tool so slow
    /// that the plan's size would only repeat the same second. The table says so.
    #[serde(rename = "size_bytes", alias = "size", default)]
    pub size: Option<Bytes>,
}

impl Entry {
    /// The row's name: `label`, or the tool with its options.
    pub fn label(&self) -> String {
        match &self.label {
            Some(label) => label.clone(),
            None if self.options.is_empty() => self.tool.clone(),
            None => format!("{} {}", self.tool, self.options.join(" ")),
        }
    }
}

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

impl MatrixPlan {
    /// The conditions, in the order of the table's columns: for each rate, each RTT.
    pub fn conditions(&self) -> Vec<Condition> {
        let rates: Vec<Option<Rate>> = match self.conditions.rate.as_slice() {
            [] => vec![None],
            rates => rates.iter().copied().map(Some).collect(),
        };
        rates
            .into_iter()
            .flat_map(|rate| {
                self.conditions.rtt.iter().map(move |rtt| Condition { rtt: rtt.0, rate })
            })
            .collect()
    }

    /// The size of the file that is made for `entry`: its own, if that is less than the plan's.
    pub fn size_for(&self, entry: &Entry) -> Bytes {
        entry.size.map_or(self.disk.size, |size| size.min(self.disk.size))
    }

    /// Whether any entry has this workload.
    pub fn has(&self, workload: Workload) -> bool {
        self.entries.iter().any(|entry| entry.workload == workload)
    }

    /// Checks all that can be said without knowing the machine or the tools.
    ///
    /// # Errors
    /// The first fault, in the order of the document.
    pub fn check(&self) -> Result<(), MatrixFault> {
        if self.name.trim().is_empty() {
            return Err(MatrixFault::NoName);
        }
        if !(1..=1000).contains(&self.repeats) {
            return Err(MatrixFault::Repeats { repeats: self.repeats });
        }
        if self.limit_seconds == Some(0) {
            return Err(MatrixFault::NoLimit);
        }
        self.check_conditions()?;
        if !(1..=86_400).contains(&self.memory.seconds) {
            return Err(MatrixFault::Seconds { seconds: self.memory.seconds });
        }
        if self.memory.omit_seconds > 3600 {
            return Err(MatrixFault::Omit { seconds: self.memory.omit_seconds });
        }
        if self.disk.size.get() == 0 {
            return Err(MatrixFault::NoSize);
        }
        self.check_entries()
    }

    fn check_conditions(&self) -> Result<(), MatrixFault> {
        let Conditions { rtt, rate } = &self.conditions;
        if rtt.is_empty() {
            return Err(MatrixFault::NoRtt);
        }
        for (index, &Span(this)) in rtt.iter().enumerate() {
            if this > Duration::from_secs(10) {
                return Err(MatrixFault::RttTooLong { index, rtt: this });
            }
            if rtt[..index].contains(&Span(this)) {
                return Err(MatrixFault::RttTwice { index, rtt: this });
            }
        }
        for (index, this) in rate.iter().enumerate() {
            if this.bps() == 0 {
                return Err(MatrixFault::NoRate { index });
            }
            if rate[..index].contains(this) {
                return Err(MatrixFault::RateTwice { index, rate: *this });
            }
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<(), MatrixFault> {
        if self.entries.is_empty() {
            return Err(MatrixFault::NoEntries);
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let label = entry.label();
            if self.entries[..index].iter().any(|other| other.label() == label) {
                return Err(MatrixFault::LabelTwice { index, label });
            }
            if entry.size.is_some_and(|size| size.get() == 0) {
                return Err(MatrixFault::EntrySize { index, label });
            }
            let bad = |text: &String| text.is_empty() || text.contains(['\0', '\n', '\r']);
            if let Some(option) = entry.options.iter().position(bad) {
                return Err(MatrixFault::Option { index, option, label });
            }
        }
        Ok(())
    }
}

fn once() -> u32 {
    1
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_nanos() as f64 / 1e6)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(d)?;
        if !(0.0..=1e9).contains(&ms) {
            return Err(serde::de::Error::custom(format!("{ms} ms is out of range")));
        }
        // Whole nanoseconds, so that what was written comes back.
        Ok(Duration::from_nanos((ms * 1e6).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> MatrixPlan {
        let entry = |tool: &str, workload| Entry {
            tool: tool.into(),
            workload,
            options: Vec::new(),
            label: None,
            size: None,
        };
        MatrixPlan {
            name: "two".into(),
            repeats: 1,
            seed: 0,
            limit_seconds: None,
            conditions: Conditions::new(&[Duration::ZERO, Duration::from_millis(90)], &[]),
            memory: MemoryWork::default(),
            disk: DiskWork::default(),
            entries: vec![entry("iperf3", Workload::Memory), entry("scp", Workload::Disk)],
        }
    }

    #[test]
    fn conditions_are_the_product_of_rates_and_round_trip_times() {
        let mut two = plan();
        let labels =
            |plan: &MatrixPlan| plan.conditions().iter().map(Condition::label).collect::<Vec<_>>();
        assert_eq!(labels(&two), ["0 ms", "90 ms"]);
        two.conditions.rate = vec!["10G".parse().unwrap(), "1G".parse().unwrap()];
        assert_eq!(
            labels(&two),
            ["0 ms, 10.0 Gb/s", "90 ms, 10.0 Gb/s", "0 ms, 1.00 Gb/s", "90 ms, 1.00 Gb/s"]
        );
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        use Step::{Index, Key};
        type Break = fn(&mut MatrixPlan);
        let cases: [(Break, Vec<Step>); 7] = [
            (|p| p.repeats = 0, vec![Key("repeats")]),
            (|p| p.conditions.rtt.clear(), vec![Key("conditions"), Key("rtt")]),
            (
                |p| p.conditions.rtt[1] = Span(Duration::ZERO),
                vec![Key("conditions"), Key("rtt"), Index(1)],
            ),
            (
                |p| p.conditions.rate = vec![Rate::from_bps(0)],
                vec![Key("conditions"), Key("rate_bps"), Index(0)],
            ),
            (|p| p.memory.seconds = 0, vec![Key("memory"), Key("seconds")]),
            (|p| p.entries[1] = p.entries[0].clone(), vec![Key("entries"), Index(1)]),
            (
                |p| p.entries[0].options = vec!["-Z".into(), String::new()],
                vec![Key("entries"), Index(0), Key("options"), Index(1)],
            ),
        ];
        assert_eq!(plan().check(), Ok(()));
        for (spoil, at) in cases {
            let mut spoiled = plan();
            spoil(&mut spoiled);
            assert_eq!(spoiled.check().unwrap_err().at(), at);
        }
    }

    #[test]
    fn a_plan_survives_its_document() {
        let mut before = plan();
        before.conditions.rate = vec!["2.5G".parse().unwrap()];
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<MatrixPlan>(&text).unwrap(), before);

        let condition = before.conditions()[1];
        let text = serde_json::to_string(&condition).unwrap();
        assert_eq!(text, r#"{"rtt_ms":90.0,"rate_bps":2500000000}"#);
        assert_eq!(serde_json::from_str::<Condition>(&text).unwrap(), condition);
    }
}
