use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MatrixFault;
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
    /// Further passes until the medians are known well enough; `None` makes `repeats` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
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

/// When a cell has been measured often enough, beyond the plan's `repeats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// A cell is done when the 95 % interval of its median is narrower than this share of the
    /// median; above 0, at most 1. It takes six valid runs at the least.
    pub share: f64,
    /// Passes, at most; up to 1000.
    #[serde(default = "Precision::default_passes")]
    pub at_most: u32,
    /// No pass is begun after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<Span>,
}

impl Precision {
    /// A target without a time limit.
    pub fn new(share: f64, at_most: u32) -> Self {
        Precision { share, at_most, limit: None }
    }

    /// The time after which no pass is begun.
    pub fn limit(&self) -> Option<Duration> {
        self.limit.map(|span| span.0)
    }

    const fn default_passes() -> u32 {
        30
    }
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

    /// The passes that may be made at most.
    pub fn passes(&self) -> u32 {
        self.precision.as_ref().map_or(self.repeats, |target| target.at_most.max(self.repeats))
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
        if let Some(target) = &self.precision {
            if !(target.share > 0.0 && target.share <= 1.0) {
                return Err(MatrixFault::Share { share: target.share });
            }
            if !(6..=1000).contains(&target.at_most) {
                return Err(MatrixFault::AtMost { passes: target.at_most });
            }
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
    use crate::plan::Step;

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
            precision: None,
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
        let cases: [(Break, Vec<Step>); 9] = [
            (|p| p.repeats = 0, vec![Key("repeats")]),
            (|p| p.precision = Some(Precision::new(0.0, 30)), vec![Key("precision"), Key("share")]),
            (
                |p| p.precision = Some(Precision::new(0.05, 5)),
                vec![Key("precision"), Key("at_most")],
            ),
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
