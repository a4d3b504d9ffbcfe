//! The report of one end of a copy: its CPU time, memory, threads and stages.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// CPU and memory.
    #[serde(flatten)]
    pub end: TransferEnd,
    /// The time of the threads in each stage.
    pub stages: StageTimes,
}

/// The resources that a process used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TransferEnd {
    /// CPU time of the copy, in percent of one core.
    pub cpu_percent: f64,
    /// CPU seconds, user and system.
    pub cpu_seconds: f64,
    /// The largest resident set of the process so far.
    pub peak_memory_bytes: Bytes,
    /// The share of the host's processor time that all programs used during the copy, 0 to 1.
    #[serde(default)]
    pub host_busy: Option<f64>,
    /// The bytes read or written with direct I/O.
    #[serde(default)]
    pub direct_bytes: Bytes,
    /// The way in which most bytes moved between memory and disk; `None` if none were read or
    /// written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_path: Option<DataPath>,
    /// The thread that ran or waited for a processor for the largest share of its lifetime.
    #[serde(default)]
    pub busiest: Option<BusyThread>,
    /// The share of the time in which a CPU quota throttled the process, 0 to 1; `None` if its
    /// control group is not visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<f64>,
}

/// The way in which bytes move between memory and disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPath {
    /// Whole blocks with direct I/O, by separate threads.
    Direct,
    /// Through the page cache; large files in pieces, by the threads of the connections.
    Buffered,
}

/// A thread of a copy with its shares of running and waiting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BusyThread {
    /// The task of the thread.
    pub role: ThreadRole,
    /// The share of time in which the thread ran.
    pub running_percent: f64,
    /// The share of time in which the thread waited for a core; 0 if the kernel provides no such
    /// statistic.
    pub waiting_percent: f64,
}

impl BusyThread {
    /// Returns the share of time in which the thread ran or waited for a core. A thread near 100
    /// waits for nothing else.
    pub fn load_percent(&self) -> f64 {
        self.running_percent + self.waiting_percent
    }
}

/// The task of a thread of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadRole {
    /// Finds files and announces them.
    Walk,
    /// Reads files.
    Read,
    /// Hashes or seals blocks and sends them.
    Send,
    /// Receives blocks and opens or checks them.
    Receive,
    /// Writes files.
    Write,
    /// Syncs files and gives them their names.
    Finish,
    /// Exchanges control messages with the peer and tracks entries.
    Control,
}

impl ThreadRole {
    /// Returns the adjective that precedes "thread" in a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            ThreadRole::Walk => "walking",
            ThreadRole::Read => "reading",
            ThreadRole::Send => "sending",
            ThreadRole::Receive => "receiving",
            ThreadRole::Write => "writing",
            ThreadRole::Finish => "finishing",
            ThreadRole::Control => "control",
        }
    }
}

/// The load of the stages of one end, from 0 to 1. At 1 all threads of the stage worked all the
/// time; below 1 they waited for other stages during the rest. `None` if the end lacks the stage.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StageTimes {
    /// Reading files.
    pub read: Option<f64>,
    /// Sending: hashing or sealing, and waiting for space in the socket.
    pub send: Option<f64>,
    /// The part of `send` that is hashing or sealing.
    #[serde(default)]
    pub seal: Option<f64>,
    /// Receiving: waiting for the socket, opening or hashing.
    pub receive: Option<f64>,
    /// The part of `receive` that is opening or hashing.
    #[serde(default)]
    pub verify: Option<f64>,
    /// Writing files.
    pub write: Option<f64>,
    /// Syncing and renaming.
    pub sync: Option<f64>,
}
