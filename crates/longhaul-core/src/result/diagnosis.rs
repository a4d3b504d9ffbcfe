//! The result of a diagnosis.

use serde::{Deserialize, Serialize};

use super::{Bottleneck, DiagnosisStep, End, Finding, HostSummary, StepReport};
use crate::units::{Bytes, Rate};

/// The limits of a copy, as measured by a diagnosis; `docs/design/results.md` describes every
/// field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`Diagnosis::SCHEMA`].
    pub schema: String,
    /// The version of longhaul.
    pub version: String,
    /// The source as the user wrote it.
    pub source: String,
    /// The target as the user wrote it.
    pub target: String,
    /// The lowest round-trip time between the ends in ms; `None` if no connection measured it.
    pub rtt_ms: Option<f64>,
    /// The data that the steps copied.
    #[serde(rename = "sample")]
    pub subset: SubsetReport,
    /// The steps, from the source to the whole copy.
    #[serde(rename = "rungs")]
    pub steps: Vec<StepReport>,
    /// The test below the rate of the path, which runs if the tests lose segments without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounded: Option<BoundedTest>,
    /// The hosts of source and sink, as far as they could be examined.
    pub ends: DiagnosedEnds,
    /// The limits of the copy, the tightest first. Each further one would be the next limit.
    pub limits: Vec<Bottleneck>,
    /// The answer as one sentence. The program fills it in.
    #[serde(default)]
    pub sentence: String,
    /// The parts that could not be measured or examined, with reasons.
    pub gaps: Vec<Gap>,
    /// The duration of the diagnosis in seconds.
    pub seconds: f64,
    /// True if the diagnosis was interrupted.
    pub interrupted: bool,
}

impl Diagnosis {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.diagnose/1";

    /// Returns the report of a step.
    pub fn step(&self, step: DiagnosisStep) -> Option<&StepReport> {
        self.steps.iter().find(|report| report.step == step)
    }

    /// Returns the unmeasured parts, grouped by reason.
    pub fn gaps_by_reason(&self) -> Vec<(String, &str)> {
        let mut reasons: Vec<(String, &str)> = Vec::new();
        for Gap { what, why } in &self.gaps {
            match reasons.iter_mut().find(|(_, other)| other == why) {
                Some((all, _)) => {
                    all.push_str(", ");
                    all.push_str(what);
                }
                None => reasons.push((what.clone(), why)),
            }
        }
        reasons
    }

    /// Returns the rate of a step.
    pub fn rate(&self, step: DiagnosisStep) -> Option<Rate> {
        self.step(step)?.throughput_bps
    }
}

/// A test from memory to memory at a rate that the path has exceeded in the other tests. Random
/// errors lose the same share of the segments at every rate; a policer or a shallow queue loses
/// none below its rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct BoundedTest {
    /// The bound of all connections together.
    pub bound_bps: Rate,
    /// The goodput.
    pub throughput_bps: Rate,
    /// The number of connections.
    pub streams: u32,
    /// The number of segments with payload sent, including retransmissions.
    pub segments: u64,
    /// The number of retransmitted segments.
    pub retransmits: u64,
}

/// The subset of the data that the steps copied.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SubsetReport {
    /// The bytes of the files that were found.
    pub bytes: Bytes,
    /// The number of files that were found.
    pub files: u64,
    /// True if there are more files, which were not examined.
    pub more: bool,
}

impl SubsetReport {
    /// Returns the mean bytes per file.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes.get() / self.files.max(1)
    }
}

/// The two ends of a copy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiagnosedEnds {
    /// The source's host.
    pub source: Option<EndView>,
    /// The sink's host.
    pub sink: Option<EndView>,
    /// True if both ends are on one host.
    pub same_host: bool,
}

impl DiagnosedEnds {
    /// Returns an end; the source is the sender.
    pub fn of(&self, end: End) -> Option<&EndView> {
        match end {
            End::Sender => self.source.as_ref(),
            End::Receiver => self.sink.as_ref(),
        }
    }

    /// Returns the name of an end's host.
    pub fn host(&self, end: End) -> &str {
        self.of(end).map_or("that host", |view| view.host.as_str())
    }
}

/// The examination of an end's host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndView {
    /// The name of the host.
    pub host: String,
    /// A short description of the host.
    pub about: Option<HostSummary>,
    /// The directory that is read or written.
    pub directory: String,
    /// The type of the file system.
    pub file_system: Option<String>,
    /// The name of the device.
    pub device: Option<String>,
    /// The free space of the file system.
    pub free_bytes: Option<Bytes>,
    /// The rate at which one core copies memory: each byte is read and written once.
    pub memory_copy_bps: Option<Rate>,
    /// The rate at which one core encrypts.
    pub seal_bps: Option<Rate>,
    /// The findings of `longhaul doctor` for the rate of the next limit, restricted to those that
    /// concern a limit.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

impl EndView {
    /// Returns the finding of a rule.
    pub fn finding(&self, rule: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.rule == rule)
    }
}

/// A part that could not be measured or examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The part.
    pub what: String,
    /// The reason, as a clause.
    pub why: String,
}
