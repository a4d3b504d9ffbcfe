//! The result of a diagnosis.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    CopyLimit, CopyPathReport, End, EndReport, Finding, HostSummary, Reason, StageTimes,
    TransferEnd,
};
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
    pub sample: SampleReport,
    /// The steps, from the source to the whole copy.
    #[serde(rename = "rungs")]
    pub steps: Vec<StepReport>,
    /// The hosts of source and sink, as far as they could be examined.
    pub ends: DiagnosedEnds,
    /// The limits of the copy, the tightest first. Each further one would be the next limit.
    pub limits: Vec<Bottleneck>,
    /// The answer as one sentence.
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

/// The data that were copied to measure.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SampleReport {
    /// The bytes of the files that were found.
    pub bytes: Bytes,
    /// The number of files that were found.
    pub files: u64,
    /// True if there are more files, which were not examined.
    pub more: bool,
}

impl SampleReport {
    /// Returns the mean bytes per file.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes.get() / self.files.max(1)
    }
}

/// One step of a diagnosis: one part of a copy, measured separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosisStep {
    /// The source's files, read and discarded on the source's host.
    Read,
    /// Memory to memory over the path with one connection, like `longhaul test`.
    MemoryOne,
    /// Memory to memory over the path with several connections.
    Memory,
    /// Memory to memory in the form of a copy: in blocks, encrypted or hashed, verified.
    Protected,
    /// The source's files to the sink's memory.
    ReadSend,
    /// Memory to files at the sink.
    SendWrite,
    /// Files written on the sink's host from its memory.
    Write,
    /// The whole copy.
    Whole,
}

impl DiagnosisStep {
    /// All steps, from the source to the whole copy.
    pub const ALL: [DiagnosisStep; 8] = [
        DiagnosisStep::Read,
        DiagnosisStep::MemoryOne,
        DiagnosisStep::Memory,
        DiagnosisStep::Protected,
        DiagnosisStep::ReadSend,
        DiagnosisStep::SendWrite,
        DiagnosisStep::Write,
        DiagnosisStep::Whole,
    ];

    /// Returns a short title.
    pub fn title(self) -> &'static str {
        match self {
            DiagnosisStep::Read => "source read alone",
            DiagnosisStep::MemoryOne => "memory to memory, 1 stream",
            DiagnosisStep::Memory => "memory to memory, streams",
            DiagnosisStep::Protected => "memory to memory, as cp",
            DiagnosisStep::ReadSend => "source to far memory",
            DiagnosisStep::SendWrite => "memory to far disk",
            DiagnosisStep::Write => "sink write alone",
            DiagnosisStep::Whole => "the whole copy",
        }
    }
}

/// The report of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step.
    #[serde(rename = "rung")]
    pub step: DiagnosisStep,
    /// [`DiagnosisStep::title`].
    pub title: String,
    /// The median of the rounds; `None` if none succeeded.
    pub throughput_bps: Option<Rate>,
    /// The median number of files per second, if files are copied.
    pub files_per_second: Option<f64>,
    /// The rounds of the measurement.
    pub rounds: Vec<StepRound>,
    /// The method of measurement, or the reason why there is no rate.
    pub note: String,
}

impl StepReport {
    /// Returns the round whose rate is the median or the next above it.
    pub fn median(&self) -> Option<&StepRound> {
        let mut rounds: Vec<_> = self.rounds.iter().collect();
        rounds.sort_by_key(|round| round.throughput_bps);
        rounds.get(rounds.len() / 2).copied()
    }
}

/// One round of one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepRound {
    /// The number of the round, from 1.
    pub number: u32,
    /// The goodput after ramp-up. The start of a copy, while TCP increases its window, is omitted.
    pub throughput_bps: Rate,
    /// The number of bytes moved.
    pub bytes: Bytes,
    /// The number of files moved.
    #[serde(default)]
    pub files: u64,
    /// The duration in seconds.
    pub seconds: f64,
    /// True if the time limit ended the round before everything was copied.
    #[serde(default)]
    pub cut: bool,
    /// The load of the source's host during the round.
    #[serde(default)]
    pub source_host: Option<HostUse>,
    /// The load of the sink's host during the round.
    #[serde(default)]
    pub sink_host: Option<HostUse>,
    /// The reason for the rate, in a test.
    #[serde(default)]
    pub reason: Option<Box<Reason>>,
    /// The percentage of segments retransmitted in the second half of a test, which excludes losses
    /// of the first burst at a full queue.
    #[serde(default)]
    pub late_loss_percent: Option<f64>,
    /// The report of the copy, in a step that copies.
    #[serde(default)]
    pub copy: Option<Box<CopyEvidence>>,
    /// The report of an end that read or wrote separately, in such a step.
    #[serde(default)]
    pub alone: Option<AloneReport>,
}

/// The report of a copy about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyEvidence {
    /// The limit that the copy names.
    pub limit: Option<CopyLimit>,
    /// The TCP statistics.
    pub path: CopyPathReport,
    /// The source's end.
    pub source: EndReport,
    /// The sink's end.
    pub sink: EndReport,
}

/// The report of one end that read or wrote separately.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AloneReport {
    /// The number of bytes read or written.
    pub bytes: Bytes,
    /// The number of files, or of passes over the same files.
    pub files: u64,
    /// The duration in seconds, including the sync.
    pub seconds: f64,
    /// The resources that the end used.
    pub end: TransferEnd,
    /// The time that its threads spent in each stage.
    pub stages: StageTimes,
    /// The rate of overwriting allocated blocks, for large files only.
    #[serde(default)]
    pub overwrite_bps: Option<Rate>,
    /// The method that kept the page cache out of the measurement.
    pub how: String,
}

/// The load of a host's processors during a round; shares of the time, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostUse {
    /// The use of all processors together by all programs.
    pub busy: f64,
    /// The share that the hypervisor took.
    pub stolen: f64,
    /// The number of the processor with the most interrupts.
    pub interrupts_core: u32,
    /// The share of that processor's time in interrupts.
    pub interrupts: f64,
    /// The share of time in which the CPU quota of its control group throttled the process.
    pub throttled: f64,
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

/// A resource that can limit a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Reads from the source's disk.
    SourceDisk,
    /// Writes to the sink's disk.
    SinkDisk,
    /// Allocation of new blocks in the sink's file system.
    FileAllocation,
    /// The cost per file in addition to its bytes.
    SmallFiles,
    /// A core of the source's host.
    SenderCpu,
    /// A core of the sink's host.
    ReceiverCpu,
    /// Encryption or hashing.
    Encryption,
    /// A core that is busy with network interrupts.
    InterruptCpu,
    /// Memory bandwidth.
    MemoryBandwidth,
    /// The source's socket buffers.
    SenderWindow,
    /// The sink's socket buffers.
    ReceiverWindow,
    /// The congestion window, kept small by loss.
    Loss,
    /// The congestion window, for another reason than loss.
    CongestionWindow,
    /// The slowest link of the path.
    LinkRate,
    /// The kernel's memory for TCP.
    TcpMemory,
    /// Packets dropped by a host.
    HostDrops,
    /// Contention: each part is fast separately, but all together slow each other down.
    Contention,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Resource::SourceDisk => "source disk",
            Resource::SinkDisk => "sink disk",
            Resource::FileAllocation => "file allocation",
            Resource::SmallFiles => "small files",
            Resource::SenderCpu => "sender CPU",
            Resource::ReceiverCpu => "receiver CPU",
            Resource::Encryption => "encryption",
            Resource::InterruptCpu => "interrupt CPU",
            Resource::MemoryBandwidth => "memory bandwidth",
            Resource::SenderWindow => "sender window",
            Resource::ReceiverWindow => "receiver window",
            Resource::Loss => "loss",
            Resource::CongestionWindow => "congestion window",
            Resource::LinkRate => "link rate",
            Resource::TcpMemory => "kernel TCP memory",
            Resource::HostDrops => "packets dropped by a host",
            Resource::Contention => "contention",
        })
    }
}

/// A limit of the copy: the present one or a later one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The resource.
    pub resource: Resource,
    /// The end that has the resource, if it belongs to one end.
    pub end: Option<End>,
    /// The step that shows the limit.
    #[serde(rename = "rung")]
    pub step: DiagnosisStep,
    /// The rate that the resource allows.
    pub allows_bps: Rate,
    /// The rate that the next limit would allow if this limit were removed; `None` for the last
    /// limit.
    pub without_bps: Option<Rate>,
    /// `without_bps` divided by the present rate; `None` for the last limit.
    pub gain: Option<f64>,
    /// The reason with its numbers, without a final period.
    pub sentence: String,
    /// The remedies, best first.
    pub cures: Vec<Cure>,
}

/// The requirement of a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CureKind {
    /// Any user can make the change and undo it.
    Safe,
    /// The change affects the host and needs root.
    NeedsRoot,
    /// The change needs new or rebuilt hardware.
    NeedsHardware,
}

impl fmt::Display for CureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CureKind::Safe => "safe",
            CureKind::NeedsRoot => "needs root",
            CureKind::NeedsHardware => "needs hardware",
        })
    }
}

/// A remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cure {
    /// The requirement.
    pub kind: CureKind,
    /// The host to change.
    pub host: String,
    /// The change, as text.
    pub what: String,
    /// The present value; empty if not applicable.
    #[serde(default)]
    pub present: String,
    /// The proposed value; empty if not applicable.
    #[serde(default)]
    pub proposed: String,
    /// A shell command; empty if no command makes the change.
    #[serde(default)]
    pub command: String,
}

/// A part that could not be measured or examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The part.
    pub what: String,
    /// The reason, as a clause.
    pub why: String,
}
