//! The matrix plan.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Condition, Conditions, Constraint, Content, DataStore, PlanEntry, PlannedWork, Workload,
};
use crate::sequential::InterimChecks;
use crate::units::{Bytes, span_text};

/// An experiment: every row over every condition, `repeats` times.
///
/// The plan is plain data; [`MatrixPlan::check`] finds invalid values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixPlan {
    /// The name of the experiment in tables and reports.
    pub name: String,
    /// The purpose in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The number of complete passes over all cells; 1 to 1000.
    #[serde(default = "once")]
    pub repeats: u32,
    /// The wanted precision of medians, for which further passes are run; `None` means only
    /// `repeats` passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// The seed of the order within each pass and of the paths' random decisions. The same seed
    /// repeats both.
    #[serde(default)]
    pub seed: u64,
    /// The factor for the volume of every created workload.
    #[serde(default = "unscaled", skip_serializing_if = "is_unscaled")]
    pub scale: f64,
    /// The time limit of a single run; `None` lets the laboratory derive it from the workload.
    #[serde(default)]
    pub limit_seconds: Option<u32>,
    /// The pause before each run, in which effects of the previous run settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cool_down_seconds: Option<u32>,
    /// The paths to emulate; empty for a real path.
    #[serde(default)]
    pub conditions: Conditions,
    /// A real path, instead of emulated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealPath>,
    /// The times for which flows beside a tool run alone, if their share and recovery are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<FlowTimes>,
    /// The workload `memory`.
    #[serde(default)]
    pub memory: MemoryWork,
    /// The workload `disk`.
    #[serde(default)]
    pub disk: DiskWork,
    /// Further workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<PlannedWork>,
    /// The tools to compare, in the order of the table's rows.
    pub entries: Vec<PlanEntry>,
    /// Constraints: if there are any, only cells that match one of them are run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Constraint>,
    /// Constraints: cells that match one of them are not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Constraint>,
}

/// The precision at which a cell is complete, beyond the plan's `repeats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Precision {
    /// A cell is complete when the 95 % interval of its median is at most this share of the median
    /// wide; above 0, at most 1. The interval is examined at the few numbers of valid runs of
    /// [`MatrixPlan::interim_checks`].
    pub share: f64,
    /// The maximum number of passes; up to 1000.
    #[serde(default = "Precision::default_passes")]
    pub at_most: u32,
    /// No pass starts after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<Span>,
}

impl Precision {
    /// Creates a target without a time limit.
    pub fn new(share: f64, at_most: u32) -> Self {
        Precision { share, at_most, limit: None }
    }

    /// Returns this precision with a time after which no pass starts.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Precision { limit: Some(Span(limit)), ..self }
    }

    /// Returns the time after which no pass starts.
    pub fn limit(&self) -> Option<Duration> {
        self.limit.map(|span| span.0)
    }

    const fn default_passes() -> u32 {
        30
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Span(#[serde(with = "span_text")] Duration);

/// The times for which the flows beside a tool run without the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowTimes {
    /// The seconds before the tool starts; 2 to 3600. The flows must fill the link in this time.
    pub before_seconds: u32,
    /// The seconds after the end of the tool, in which the flows recover; 2 to 3600.
    pub after_seconds: u32,
}

impl Default for FlowTimes {
    fn default() -> Self {
        FlowTimes { before_seconds: 8, after_seconds: 10 }
    }
}

impl FlowTimes {
    /// Returns the time before the tool starts.
    pub fn before(self) -> Duration {
        Duration::from_secs(self.before_seconds.into())
    }

    /// Returns the time after the end of the tool.
    pub fn after(self) -> Duration {
        Duration::from_secs(self.after_seconds.into())
    }
}

/// A path between this host and another, reached by ssh.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealPath {
    /// The host of far commands: `user@host`, or a name from the ssh configuration.
    pub far: String,
    /// The far end's address on the measured path; by default the host of `far`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The directory at the far end for copies, created if necessary; by default
    /// [`RealPath::DEFAULT_DIRECTORY`]. A relative path starts at the login directory.
    #[serde(default, alias = "scratch", skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl RealPath {
    /// The default directory, relative to the login directory.
    pub const DEFAULT_DIRECTORY: &str = "longhaul-matrix";

    /// Returns the address of the far end for the near end.
    pub fn address(&self) -> &str {
        let host = self.far.rsplit_once('@').map_or(self.far.as_str(), |(_, host)| host);
        self.address.as_deref().unwrap_or(host)
    }

    /// Returns the directory for copies at the far end.
    pub fn directory(&self) -> &str {
        self.directory.as_deref().unwrap_or(Self::DEFAULT_DIRECTORY)
    }

    /// Returns whether all tools and shells on the way to the far end treat this path literally.
    /// Some shells expand special characters, and some tools split at blanks or colons.
    pub fn is_plain(path: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@,=".contains(c);
        !path.is_empty() && !path.starts_with('-') && path.chars().all(plain)
    }
}

/// The workload `memory`: the duration of memory-to-memory tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryWork {
    /// The measured seconds; 1 to 86400.
    pub seconds: u32,
    /// The omitted seconds before the measurement, because of slow start; at most 3600.
    pub omit_seconds: u32,
}

impl Default for MemoryWork {
    fn default() -> Self {
        MemoryWork { seconds: 10, omit_seconds: 4 }
    }
}

/// The workload `disk`: the data of disk-to-disk copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskWork {
    /// The size of the file that is created if `data` is `None`.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: Bytes,
    /// A file or directory of the user.
    pub data: Option<String>,
}

impl Default for DiskWork {
    fn default() -> Self {
        DiskWork { size: Bytes::gib(8), data: None }
    }
}

impl MatrixPlan {
    /// Creates a plan without entries and with one pass.
    pub fn named(name: &str) -> Self {
        MatrixPlan {
            name: name.to_owned(),
            about: None,
            repeats: once(),
            precision: None,
            seed: 0,
            scale: unscaled(),
            limit_seconds: None,
            cool_down_seconds: None,
            conditions: Conditions::default(),
            real: None,
            recovery: None,
            memory: MemoryWork::default(),
            disk: DiskWork::default(),
            workloads: Vec::new(),
            entries: Vec::new(),
            only: Vec::new(),
            except: Vec::new(),
        }
    }

    /// Returns the conditions in the order of the table's columns, round-trip times innermost.
    pub fn conditions(&self) -> Vec<Condition> {
        match &self.real {
            Some(real) => {
                let path = Condition::new(Duration::ZERO, None);
                vec![Condition { real: Some(real.address().to_owned()), ..path }]
            }
            None => self.conditions.product(),
        }
    }

    /// Returns a workload by name, not scaled.
    pub fn work(&self, name: &str) -> Option<Cow<'_, PlannedWork>> {
        if let Some(work) = self.workloads.iter().find(|work| work.name == name) {
            return Some(Cow::Borrowed(work));
        }
        let content = match name {
            "memory" => Content::Timed {
                seconds: self.memory.seconds,
                omit_seconds: self.memory.omit_seconds,
            },
            "disk" => match &self.disk.data {
                Some(path) => Content::Data { path: path.clone() },
                None => Content::Files { files: 1, size: self.disk.size },
            },
            _ => return None,
        };
        let (from, to) = (DataStore::Disk, DataStore::Disk);
        Some(Cow::Owned(PlannedWork { name: name.to_owned(), content, from, to }))
    }

    /// Returns whether any row has this kind of workload.
    pub fn has(&self, workload: Workload) -> bool {
        self.rows().iter().any(|row| row.work.workload() == workload)
    }

    /// Returns the largest number of passes.
    pub fn passes(&self) -> u32 {
        self.precision.as_ref().map_or(self.repeats, |target| target.at_most.max(self.repeats))
    }

    /// Returns the numbers of valid runs at which a cell may be complete; `None` without a
    /// [`Precision`].
    pub fn interim_checks(&self) -> Option<InterimChecks> {
        self.precision.as_ref().map(|target| InterimChecks::new(self.repeats, target.at_most))
    }

    /// Returns the pause before each run.
    pub fn cool_down(&self) -> Duration {
        Duration::from_secs(self.cool_down_seconds.unwrap_or_default().into())
    }
}

const fn once() -> u32 {
    1
}

const fn unscaled() -> f64 {
    1.0
}

fn is_unscaled(scale: &f64) -> bool {
    *scale == unscaled()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_document() {
        let mut before = MatrixPlan::named("two");
        let rtt = [Duration::ZERO, Duration::from_millis(90)];
        before.conditions = Conditions::new(&rtt, &["2.5G".parse().unwrap()]);
        before.entries = vec![PlanEntry::new("iperf3", "memory"), PlanEntry::new("scp", "disk")];
        before.cool_down_seconds = Some(2);
        before.precision = Some(Precision::new(0.1, 20).within(Duration::from_secs(60)));
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<MatrixPlan>(&text).unwrap(), before);
    }

    #[test]
    fn a_plan_of_the_first_version_still_reads() {
        let old = r#"{"name": "old", "repeats": 2, "seed": 0, "limit_seconds": null,
            "conditions": {"rtt": ["0ms", "90ms"], "rate_bps": []},
            "memory": {"seconds": 4, "omit_seconds": 2},
            "disk": {"size_bytes": 1024, "data": null},
            "entries": [
                {"tool": "iperf3", "workload": "memory", "options": [], "label": null},
                {"tool": "scp", "workload": "disk", "options": ["-C"], "label": null,
                 "size_bytes": 512}]}"#;
        let plan: MatrixPlan = serde_json::from_str(old).unwrap();
        plan.check().unwrap();
        let rows = plan.rows();
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["iperf3", "scp -C"]);
        let size = Bytes::new(512);
        assert_eq!(rows[1].work.content, Content::Files { files: 1, size });
        assert_eq!(plan.cells().len(), 4);
    }

    #[test]
    fn a_real_path_is_one_condition() {
        let plan: RealPath = serde_json::from_str(r#"{"far": "me@dtn2.example.org"}"#).unwrap();
        assert_eq!(plan.address(), "dtn2.example.org");
        let real = MatrixPlan { real: Some(plan), ..MatrixPlan::named("real") };
        assert_eq!(real.conditions()[0].label(), "dtn2.example.org");
    }

    #[test]
    fn copies_go_below_the_login_directory_or_to_the_planned_one() {
        let read = |text| serde_json::from_str::<RealPath>(text).unwrap();
        assert_eq!(read(r#"{"far": "h"}"#).directory(), "longhaul-matrix");
        assert_eq!(read(r#"{"far": "h", "directory": "/data/m"}"#).directory(), "/data/m");
        // The name of the field in plans of earlier versions.
        assert_eq!(read(r#"{"far": "h", "scratch": "/data/m"}"#).directory(), "/data/m");
        for odd in ["", "-r", "a b", "~/x", "a:b", "$HOME", "it's", "a\nb", "*"] {
            assert!(!RealPath::is_plain(odd), "{odd:?}");
        }
        assert!(RealPath::is_plain("/data/user@x/m-1_2.d"));
    }
}
