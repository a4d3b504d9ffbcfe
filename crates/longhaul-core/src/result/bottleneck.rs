//! The limits of a copy with their evidence and remedies.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BusyThread, DiagnosisStep, End, GainRounds};
use crate::units::{Bytes, Rate};

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
    /// A part of the path that drops bursts instead of queueing them: a policer, or a switch with
    /// few buffers.
    ShallowQueue,
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
            Resource::ShallowQueue => "shallow queue",
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
    /// The same ratio in each round; `None` for the last limit, for a limit whose rate is not the median
    /// of a step, and in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_rounds: Option<GainRounds>,
    /// The measurements that show the limit; `None` in documents of earlier versions.
    #[serde(default)]
    pub evidence: Option<Evidence>,
    /// The reason with its numbers, without a final period. The program fills it in.
    #[serde(default)]
    pub sentence: String,
    /// The remedies, best first.
    pub cures: Vec<Cure>,
}

impl Bottleneck {
    /// Returns the sample size and the uncertainty of the gain, in words.
    pub fn gain_sample(&self) -> String {
        self.gain_rounds.map_or("no interval".to_owned(), |rounds| rounds.to_string())
    }
}

/// The measurements that show a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    /// A CPU quota throttles the process that reads or writes the files separately.
    ThrottledFiles {
        /// The rate of reading or writing.
        rate_bps: Rate,
        /// The share of time in which the quota throttles the process.
        throttled_percent: f64,
    },
    /// One end reads or writes small files separately.
    SmallFilesAlone {
        /// The number of files per second.
        files_per_second: f64,
        /// The mean size of the files.
        mean_bytes: Bytes,
        /// The rate of reading or writing.
        rate_bps: Rate,
    },
    /// A busy thread reads or writes the files separately.
    BusyFilesThread {
        /// The rate of reading or writing.
        rate_bps: Rate,
        /// The thread.
        thread: BusyThread,
    },
    /// The sink writes new files more slowly than allocated blocks.
    Allocation {
        /// The type of the file system.
        file_system: Option<String>,
        /// The rate of writing new files.
        new_bps: Rate,
        /// The rate of overwriting allocated blocks.
        overwrite_bps: Rate,
    },
    /// A disk, read or written separately.
    Disk {
        /// The name of the device.
        device: Option<String>,
        /// The rate of reading or writing.
        rate_bps: Rate,
    },
    /// The reason of a test.
    Test {
        /// The step of the test.
        #[serde(rename = "rung")]
        step: DiagnosisStep,
        /// The number of the round, from 1.
        round: u32,
    },
    /// The loss during a test whose reason is another one.
    TestLoss {
        /// The step of the test.
        #[serde(rename = "rung")]
        step: DiagnosisStep,
        /// The number of the round, from 1.
        round: u32,
        /// The retransmitted share of the segments.
        loss_percent: f64,
    },
    /// The loss of the tests depends on their load, and no packet waits in a queue.
    ShallowQueue {
        /// The highest delivered rate: that of a test, or the rate that a copy found, if it is higher.
        /// Drops set in at or below this rate, and the capacity is this rate or more.
        rate_bps: Rate,
        /// The retransmitted share of the segments in the test with the lowest loss.
        least_percent: f64,
        /// The same in the test with the highest loss.
        most_percent: f64,
        /// The longest queueing delay of a test in ms.
        queue_ms: f64,
    },
    /// A CPU quota throttles the process.
    Throttled {
        /// The share of time in which the quota throttles the process.
        throttled_percent: f64,
    },
    /// A thread moves data almost as fast as one core copies memory.
    MemoryCopy {
        /// The rate of the thread.
        thread_bps: Rate,
        /// The rate at which one core copies memory.
        copy_bps: Rate,
    },
    /// A copy from memory to memory is slower than a test over as many connections.
    Encryption {
        /// The rate of the copy.
        copy_bps: Rate,
        /// The rate of the test, which does not encrypt.
        test_bps: Rate,
        /// The share of the time of the connections' threads in encryption or decryption.
        sealing_percent: f64,
        /// True if a CPU quota throttles the process.
        throttled: bool,
        /// The busiest thread.
        thread: Option<BusyThread>,
    },
    /// A thread that runs or waits for a core most of the time.
    BusyThread {
        /// The thread.
        thread: BusyThread,
    },
    /// A window or buffer that was full during a copy.
    FullWindow {
        /// The share of time in which it was full.
        full_percent: f64,
    },
    /// The loss during a copy.
    CopyLoss {
        /// The retransmitted share of the bytes.
        loss_percent: f64,
    },
    /// The rate of a copy that no host limits.
    Path {
        /// The rate of the copy.
        rate_bps: Rate,
    },
    /// The whole copy of small files.
    SmallFiles {
        /// The number of files per second.
        files_per_second: f64,
        /// The mean size of the files.
        mean_bytes: Bytes,
        /// The rate of the copy.
        rate_bps: Rate,
        /// The rate of the slowest part, for the bytes of the files only.
        slowest_bps: Rate,
    },
    /// A busy thread of the whole copy.
    BusyTogether {
        /// The thread.
        thread: BusyThread,
    },
    /// The processors of a host are fully loaded by the whole copy.
    FullTogether,
    /// Source and sink appear to share a disk, which reads and writes in turn during a copy.
    SharedDisk {
        /// The name of the device.
        device: String,
        /// The rate of reading alone.
        read_bps: Rate,
        /// The rate of writing alone.
        write_bps: Rate,
        /// The rate of reading and writing each byte in turn.
        in_turn_bps: Rate,
    },
    /// The whole copy is slower than each part.
    Contention {
        /// The rate of the whole copy.
        whole_bps: Rate,
        /// The rate of the slowest part.
        slowest_bps: Rate,
    },
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

/// A change that raises a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Remedy {
    /// The commands of a finding of the doctor.
    Finding {
        /// The name of the rule.
        rule: String,
    },
    /// Copying over more connections.
    MoreStreams,
    /// Copying over fewer connections.
    FewerStreams,
    /// Copying more data, because the window was still growing.
    LongerCopy,
    /// BBR as the congestion control.
    Bbr,
    /// A repair of the part of the path that loses packets.
    PathRepair,
    /// A faster link.
    FasterLink,
    /// A limit of the rate below that of the path, which keeps bursts short.
    LowerRate,
    /// A deeper queue, or a policer with a larger burst.
    DeeperQueue,
    /// Freeing of the kernel's memory for TCP.
    FreeTcpMemory,
    /// A higher CPU quota.
    HigherQuota,
    /// Freeing of the cores on which the copy runs.
    FreeCores,
    /// Faster or more cores.
    FasterCores,
    /// Copying without encryption.
    ClearText,
    /// Cores with AES instructions.
    AesCores,
    /// Memory in every channel.
    MemoryChannels,
    /// A search for other users of the disk.
    OtherDiskUsers,
    /// A faster disk.
    FasterDisk,
    /// A file system that allocates large extents.
    LargeExtents,
    /// Copying the files as one archive.
    OneArchive,
    /// Copying without syncing.
    NoSync,
    /// A disk with more operations per second.
    DiskOperations,
    /// Separate disks for source and sink, or more cores.
    SeparateDisks,
}

/// A remedy on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cure {
    /// The requirement.
    pub kind: CureKind,
    /// The end whose host is changed; `None` in documents of earlier versions.
    #[serde(default)]
    pub end: Option<End>,
    /// The remedy; `None` in documents of earlier versions.
    #[serde(default)]
    pub remedy: Option<Remedy>,
    /// The host to change. The program fills in this field and the following ones.
    #[serde(default)]
    pub host: String,
    /// The change, as text.
    #[serde(default)]
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
