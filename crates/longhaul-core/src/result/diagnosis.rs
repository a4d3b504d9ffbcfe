use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    CopyLimit, End, EndReport, Finding, HostSummary, PathReport, Reason, StageTimes, TransferEnd,
};
use crate::units::{Bytes, Rate};

/// What limits a copy, by the ladder that was climbed; `docs/design/results.md` has every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`Diagnosis::SCHEMA`].
    pub schema: String,
    /// Of longhaul.
    pub version: String,
    /// What is copied, as it was given.
    pub source: String,
    /// Where to, as it was given.
    pub target: String,
    /// The least round-trip time between the ends; `None` if no connection told it.
    pub rtt_ms: Option<f64>,
    /// What the rungs copied.
    pub sample: SampleReport,
    /// The rungs, from the source to the whole.
    pub rungs: Vec<RungReport>,
    /// The hosts of the source and of the sink, as far as they were looked at.
    pub ends: Ends,
    /// What limits the copy, the tightest first: the rest is what would limit it next.
    pub limits: Vec<Bottleneck>,
    /// The answer in one sentence.
    pub sentence: String,
    /// What could not be measured or seen.
    pub gaps: Vec<Gap>,
    /// How long the diagnosis took.
    pub seconds: f64,
    /// It was ended early.
    pub interrupted: bool,
}

impl Diagnosis {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.diagnose/1";

    /// A rung's report.
    pub fn rung(&self, rung: Rung) -> Option<&RungReport> {
        self.rungs.iter().find(|report| report.rung == rung)
    }

    /// What could not be measured or seen, by the reason.
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

    /// A rung's rate.
    pub fn rate(&self, rung: Rung) -> Option<Rate> {
        self.rung(rung)?.throughput_bps
    }
}

/// What was copied to measure.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SampleReport {
    /// Bytes of the files that were found.
    pub bytes: Bytes,
    /// How many there are.
    pub files: u64,
    /// There are more, which were not looked at.
    pub more: bool,
}

impl SampleReport {
    /// Bytes of a file, the mean.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes.get() / self.files.max(1)
    }
}

/// One rung of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The source's files, read and dropped at their own host.
    Read,
    /// Memory to memory over the path, one connection, as `longhaul test` does.
    MemoryOne,
    /// The same with several connections.
    Memory,
    /// Memory to memory as a copy sends: in blocks, sealed or hashed, verified.
    Protected,
    /// The source's files to the far memory.
    ReadSend,
    /// Memory to files at the sink.
    SendWrite,
    /// Files written at the sink's own host, from memory there.
    Write,
    /// The whole copy.
    Whole,
}

impl Rung {
    /// All of them, from the source to the whole.
    pub const ALL: [Rung; 8] = [
        Rung::Read,
        Rung::MemoryOne,
        Rung::Memory,
        Rung::Protected,
        Rung::ReadSend,
        Rung::SendWrite,
        Rung::Write,
        Rung::Whole,
    ];

    /// What it is, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Rung::Read => "source read alone",
            Rung::MemoryOne => "memory to memory, 1 stream",
            Rung::Memory => "memory to memory, streams",
            Rung::Protected => "memory to memory, as cp",
            Rung::ReadSend => "source to far memory",
            Rung::SendWrite => "memory to far disk",
            Rung::Write => "sink write alone",
            Rung::Whole => "the whole copy",
        }
    }
}

/// What one rung came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RungReport {
    /// Which.
    pub rung: Rung,
    /// [`Rung::title`].
    pub title: String,
    /// The median of the rounds; `None` when none succeeded.
    pub throughput_bps: Option<Rate>,
    /// Files in a second, the median, where files are copied.
    pub files_per_second: Option<f64>,
    /// Each time that it was measured.
    pub rounds: Vec<RungRound>,
    /// Why it has no rate, or how it was measured.
    pub note: String,
}

impl RungReport {
    /// The round whose rate is the median, or just above it.
    pub fn median(&self) -> Option<&RungRound> {
        let mut rounds: Vec<_> = self.rounds.iter().collect();
        rounds.sort_by_key(|round| round.throughput_bps);
        rounds.get(rounds.len() / 2).copied()
    }
}

/// One rung, measured once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RungRound {
    /// Where the round was in the whole, from 1.
    pub number: u32,
    /// Goodput once it ran: the first part of a copy, in which TCP gathers speed, is left out.
    pub throughput_bps: Rate,
    /// Bytes moved.
    pub bytes: Bytes,
    /// Files moved.
    #[serde(default)]
    pub files: u64,
    /// How long it took.
    pub seconds: f64,
    /// Its time was up before all was copied.
    #[serde(default)]
    pub cut: bool,
    /// What the source's host did meanwhile.
    #[serde(default)]
    pub source_host: Option<HostUse>,
    /// What the sink's host did meanwhile.
    #[serde(default)]
    pub sink_host: Option<HostUse>,
    /// Why a test was as fast as it was.
    #[serde(default)]
    pub reason: Option<Box<Reason>>,
    /// Segments of a test sent again in its second half, in percent: without what the first burst
    /// loses at a full queue.
    #[serde(default)]
    pub late_loss_percent: Option<f64>,
    /// What a copy tells of itself.
    #[serde(default)]
    pub copy: Option<Box<CopyEvidence>>,
    /// What one end used that read or wrote alone.
    #[serde(default)]
    pub alone: Option<AloneReport>,
}

/// A copy's account of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyEvidence {
    /// What its own verdict names.
    pub limit: Option<CopyLimit>,
    /// What TCP said.
    pub path: PathReport,
    /// The end that read.
    pub source: EndReport,
    /// The end that wrote.
    pub sink: EndReport,
}

/// What one end did by itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AloneReport {
    /// Bytes read or written.
    pub bytes: Bytes,
    /// Files, or passes over the same ones.
    pub files: u64,
    /// How long that took, the sync included.
    pub seconds: f64,
    /// What it used.
    pub end: TransferEnd,
    /// Where its threads spent their time.
    pub stages: StageTimes,
    /// The rate of writing to blocks that the file has already; of large files alone.
    #[serde(default)]
    pub overwrite_bps: Option<Rate>,
    /// How the page cache was kept out.
    pub how: String,
}

/// What a host's processors did over a rung, each a share of the time, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostUse {
    /// All processors together, whoever used them.
    pub busy: f64,
    /// What the hypervisor withheld.
    pub stolen: f64,
    /// The processor with most interrupts.
    pub interrupts_core: u32,
    /// Its interrupts.
    pub interrupts: f64,
    /// In which this process was held back by the quota of its control group.
    pub throttled: f64,
}

/// Both ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ends {
    /// The source's.
    pub source: Option<EndView>,
    /// The sink's.
    pub sink: Option<EndView>,
    /// Both are one host.
    pub same_host: bool,
}

impl Ends {
    /// The source's is the sender's.
    pub fn of(&self, end: End) -> Option<&EndView> {
        match end {
            End::Sender => self.source.as_ref(),
            End::Receiver => self.sink.as_ref(),
        }
    }

    /// The name of its host.
    pub fn host(&self, end: End) -> &str {
        self.of(end).map_or("that host", |view| view.host.as_str())
    }
}

/// What was seen of the host of an end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndView {
    /// Its name.
    pub host: String,
    /// What kind of host it is.
    pub about: Option<HostSummary>,
    /// The directory that is read or written.
    pub directory: String,
    /// Its file system.
    pub file_system: Option<String>,
    /// The device that it is on.
    pub device: Option<String>,
    /// What is free there.
    pub free_bytes: Option<Bytes>,
    /// What one core copies in memory: each byte is read once and written once.
    pub memory_copy_bps: Option<Rate>,
    /// What one core seals.
    pub seal_bps: Option<Rate>,
    /// What `longhaul doctor` finds there for the rate that the next limit would allow; only what
    /// concerns a limit.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

impl EndView {
    /// The finding of a rule.
    pub fn finding(&self, rule: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.rule == rule)
    }
}

/// What can limit a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Reading the source's disk.
    SourceDisk,
    /// Writing the sink's disk.
    SinkDisk,
    /// Finding room for new blocks in the sink's file system.
    FileAllocation,
    /// What each file costs beside its bytes.
    SmallFiles,
    /// A core of the source's host.
    SenderCpu,
    /// A core of the sink's host.
    ReceiverCpu,
    /// Sealing or hashing.
    Encryption,
    /// A core that does little but the network's interrupts.
    InterruptCpu,
    /// The memory's bandwidth.
    MemoryBandwidth,
    /// The source's socket buffers.
    SenderWindow,
    /// The sink's socket buffers.
    ReceiverWindow,
    /// The congestion window, kept small by loss.
    Loss,
    /// The congestion window, for another reason.
    CongestionWindow,
    /// The slowest link of the path.
    LinkRate,
    /// The kernel's memory for TCP.
    TcpMemory,
    /// A host that throws packets away.
    HostDrops,
    /// The parts are fast and together they are not: they get in each other's way.
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

/// One thing that limits, or would next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// What.
    pub resource: Resource,
    /// At which end, where it is one of them.
    pub end: Option<End>,
    /// The rung that shows it.
    pub rung: Rung,
    /// The rate that it allows.
    pub allows_bps: Rate,
    /// What a copy would reach without it: what the next one allows. `None` for the last.
    pub without_bps: Option<Rate>,
    /// How many times as fast as it is that would be; `None` for the last.
    pub gain: Option<f64>,
    /// Why, with the numbers, without a full stop.
    pub sentence: String,
    /// What to do about it, best first.
    pub cures: Vec<Cure>,
}

/// What a cure takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CureKind {
    /// Anyone may do it, and it is undone by leaving it out.
    Safe,
    /// It changes the host, as root.
    NeedsRoot,
    /// Something has to be bought, or rebuilt.
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

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cure {
    /// What it takes.
    pub kind: CureKind,
    /// On which host.
    pub host: String,
    /// What is done, in words.
    pub what: String,
    /// The value now; empty where there is none.
    #[serde(default)]
    pub present: String,
    /// The value proposed; empty where there is none.
    #[serde(default)]
    pub proposed: String,
    /// A line of shell; empty where there is none.
    #[serde(default)]
    pub command: String,
}

/// Something that could not be measured or seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// What.
    pub what: String,
    /// Why, as a clause.
    pub why: String,
}
