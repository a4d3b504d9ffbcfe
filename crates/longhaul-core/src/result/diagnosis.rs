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
    /// The options of the same copy by `longhaul cp`, as words without source and target; empty in
    /// documents of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy_options: Vec<String>,
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

    /// Returns the unmeasured parts, grouped by reason. Many steps are counted, not listed.
    pub fn gaps_by_reason(&self) -> Vec<(String, &str)> {
        let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
        for Gap { what, why } in &self.gaps {
            match reasons.iter_mut().find(|(_, other)| other == why) {
                Some((parts, _)) => parts.push(what),
                None => reasons.push((vec![what], why)),
            }
        }
        reasons.into_iter().map(|(parts, why)| (self.listed(&parts), why)).collect()
    }

    fn listed(&self, parts: &[&str]) -> String {
        let is_step = |what: &&str| self.steps.iter().any(|report| report.title == **what);
        let (steps, all) = (parts.iter().filter(|what| is_step(what)).count(), self.steps.len());
        if steps <= MOST_LISTED {
            return parts.join(", ");
        }
        let counted =
            if steps == all { "all steps".to_owned() } else { format!("{steps} of {all} steps") };
        let others = parts.iter().filter(|what| !is_step(what)).copied();
        others.chain([counted.as_str()]).collect::<Vec<_>>().join(", ")
    }

    /// Returns the reason why no step was measured, if there is one reason for all.
    pub fn unmeasured(&self) -> Option<&str> {
        let why = self.gaps.first()?.why.as_str();
        let none = self.steps.iter().all(|report| report.throughput_bps.is_none());
        (none && self.gaps.iter().all(|gap| gap.why == why)).then_some(why)
    }

    /// Returns the rate of a step.
    pub fn rate(&self, step: DiagnosisStep) -> Option<Rate> {
        self.step(step)?.throughput_bps
    }
}

/// The highest number of unmeasured steps with one reason that are listed by name.
const MOST_LISTED: usize = 2;

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
    /// A hash of the identifier of the kernel's boot; equal for two ends only if they are one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_unmeasured_steps_are_counted() {
        let step = |step: DiagnosisStep| StepReport {
            step,
            title: step.title(4),
            throughput_bps: None,
            files_per_second: None,
            rounds: Vec::new(),
            note: String::new(),
        };
        let gap = |what: String, why: &str| Gap { what, why: why.to_owned() };
        let mut diagnosis = Diagnosis {
            schema: Diagnosis::SCHEMA.to_owned(),
            version: String::new(),
            source: String::new(),
            target: String::new(),
            rtt_ms: None,
            subset: SubsetReport::default(),
            steps: DiagnosisStep::ALL.map(step).to_vec(),
            bounded: None,
            ends: DiagnosedEnds::default(),
            limits: Vec::new(),
            sentence: String::new(),
            copy_options: Vec::new(),
            gaps: vec![gap("the sink's end".to_owned(), "away")],
            seconds: 0.0,
            interrupted: false,
        };
        diagnosis.gaps.extend(DiagnosisStep::ALL.map(|step| gap(step.title(4), "away")));
        let all = "the sink's end, all steps".to_owned();
        assert_eq!(diagnosis.gaps_by_reason(), [(all, "away")]);
        assert_eq!(diagnosis.unmeasured(), Some("away"));
        // The step that reads the source is measured, and two steps have a different reason.
        diagnosis.steps[0].throughput_bps = Some(Rate::from_bps(1));
        diagnosis.gaps.remove(1);
        for gap in diagnosis.gaps.iter_mut().take(3).skip(1) {
            gap.why = "full".to_owned();
        }
        let expected = [
            ("the sink's end, 5 of 8 steps".to_owned(), "away"),
            ("memory to memory, 1 stream, memory to memory, 4 streams".to_owned(), "full"),
        ];
        assert_eq!(diagnosis.gaps_by_reason(), expected);
        assert_eq!(diagnosis.unmeasured(), None);
    }
}
