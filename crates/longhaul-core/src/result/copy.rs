//! `longhaul.cp/1`: the result of a copy.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{EndReport, Invocation};
use crate::plan::Verify;
use crate::units::{Bytes, Rate};
use crate::wire::FilePath;

/// The schema of [`CopyResult`] in JSON.
pub const COPY_SCHEMA: &str = "longhaul.cp/1";

/// The result of a copy; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyResult {
    /// [`COPY_SCHEMA`].
    pub schema: String,
    /// The command of the client; `None` in documents of earlier versions.
    #[serde(default)]
    pub invocation: Option<Invocation>,
    /// The source places of the command.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The target place of the command.
    #[serde(default)]
    pub target: String,
    /// The totals.
    pub summary: CopySummary,
    /// The limit and the waits of the stages in one sentence.
    pub verdict: String,
    /// The limit; `None` if none stands out.
    #[serde(default)]
    pub limit: Option<CopyLimit>,
    /// The adaptation to the path.
    #[serde(default)]
    pub path: CopyPathReport,
    /// The report of the source.
    pub source: EndReport,
    /// The report of the sink.
    pub sink: EndReport,
    /// The entries that could not be copied, with reasons.
    pub failures: Vec<CopyFailure>,
    /// The entries skipped by design: devices, sockets, dangling links.
    pub skipped: Vec<CopyFailure>,
    /// The owners and attributes of complete files that could not be preserved.
    #[serde(default)]
    pub not_kept: Vec<NotKept>,
    /// The deletions; after a dry run, all planned changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// The digests of the files, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<DigestOf>,
}

/// The totals of a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopySummary {
    /// The rate: `bytes` without `resumed_bytes`, divided by `seconds`.
    pub throughput_bps: Rate,
    /// The bytes of complete files at the sink.
    pub bytes: Bytes,
    /// The part of `bytes` that earlier attempts wrote; the rate excludes it.
    #[serde(default)]
    pub resumed_bytes: Bytes,
    /// The number of complete files at the sink.
    pub files: u64,
    /// The time from the opening of the session to the sink's final report, in seconds.
    pub seconds: f64,
    /// True if the sink verified every block before it wrote the block.
    pub verified: bool,
    /// The kind of verification; with `Reread` the bytes on the disk were compared, too.
    #[serde(default)]
    pub verification: Option<Verify>,
    /// True if the data connections were encrypted.
    pub encrypted: bool,
    /// True if every file was synced before it got its name.
    pub durable: bool,
    /// The number of TCP connections when the copy ended.
    pub streams: u32,
    /// The number of reconnections.
    #[serde(default)]
    pub reconnects: u32,
    /// The time without a connection, or without any sign of work over one, in seconds.
    #[serde(default)]
    pub outage_seconds: f64,
    /// The number of blocks that failed their check and were sent again.
    pub resent_blocks: u64,
    /// The number of retransmitted TCP segments.
    pub retransmits: Option<u64>,
    /// The lowest smoothed round-trip time of the streams when the copy ended, in ms.
    pub rtt_ms: Option<f64>,
    /// True if the run changed nothing; `actions` contains the planned changes.
    #[serde(default)]
    pub dry_run: bool,
    /// The number of files that were up to date.
    #[serde(default)]
    pub unchanged_files: u64,
    /// The number of deleted files and directories.
    #[serde(default)]
    pub deleted: u64,
    /// The path of the manifest at the sink.
    #[serde(default)]
    pub manifest: Option<String>,
}

/// The limit of a copy's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyLimit {
    /// Reading the source's files.
    SourceDisk,
    /// The processors of the source's host.
    SourceCpu,
    /// Sealing or hashing blocks at the source.
    Sealing,
    /// The source's socket buffers (`net.ipv4.tcp_wmem`).
    SendWindow,
    /// The rate of the path, or the share of it that other traffic leaves.
    Path,
    /// Lost segments.
    Loss,
    /// A policer, or a switch with few buffers, which drops segments from a rate on.
    ShallowQueue,
    /// The sink's socket buffers (`net.ipv4.tcp_rmem`).
    ReceiveWindow,
    /// The processors of the sink's host.
    SinkCpu,
    /// Writing or syncing the sink's files.
    SinkDisk,
    /// The processors of the host on which both ends run.
    Cpu,
    /// The requested limit (`--bwlimit`).
    Rate,
    /// The time without a connection, or with a silent one.
    Outage,
    /// The set-up of the session and the growth of the congestion windows.
    RampUp,
    /// No limit is known, because the copy was too short.
    TooShort,
}

impl CopyLimit {
    /// Returns the name for display.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyLimit::SourceDisk => "source disk",
            CopyLimit::SourceCpu => "source CPU",
            CopyLimit::Sealing => "sealing",
            CopyLimit::SendWindow => "send window",
            CopyLimit::Path => "path",
            CopyLimit::Loss => "loss",
            CopyLimit::ShallowQueue => "shallow queue",
            CopyLimit::ReceiveWindow => "receive window",
            CopyLimit::SinkCpu => "sink CPU",
            CopyLimit::SinkDisk => "sink disk",
            CopyLimit::Cpu => "CPU",
            CopyLimit::Rate => "requested rate",
            CopyLimit::Outage => "outage",
            CopyLimit::RampUp => "ramp-up",
            CopyLimit::TooShort => "too short",
        }
    }
}

/// The source's adaptation to the path, and TCP's measurements of the path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyPathReport {
    /// The path before the first byte; `None` in documents of the first versions.
    #[serde(default)]
    pub before: Option<PathBefore>,
    /// The number of data connections when the copy ended.
    pub streams: u32,
    /// The congestion control of the data connections when the copy ended.
    pub congestion: Option<String>,
    /// The highest delivered rate of several round trips; `None` on a short path, and with `--nice`
    /// or `--dedicated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bps: Option<Rate>,
    /// The rate at which the path dropped segments although none waited in a queue, if it dropped
    /// fewer below this rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_at_bps: Option<Rate>,
    /// The highest delivered rate at which an overflow of the queue of the path lowered the rate bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_overflows_at_bps: Option<Rate>,
    /// The changes during the copy with their reasons, in order.
    pub steps: Vec<String>,
    /// The traffic per address of the peer, in the order of connection.
    #[serde(default)]
    pub addresses: Vec<AddressReport>,
    /// The retransmitted bytes per delivered byte.
    pub loss: f64,
    /// The share of the time with data to send in which the peer's window was full.
    pub receive_window_limited: f64,
    /// The share of the time with data to send in which the send buffer was full.
    pub send_buffer_limited: f64,
}

/// The idle path, as measured by the handshake of the first data connection.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PathBefore {
    /// The round trip of the handshake.
    pub rtt_ms: f64,
    /// The path MTU that the kernel assumes.
    pub mtu_bytes: u32,
    /// The payload bytes of a full segment.
    pub segment_bytes: u32,
    /// The initial congestion window.
    pub cwnd_bytes: Bytes,
}

/// The traffic over one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressReport {
    /// The address.
    pub address: IpAddr,
    /// The number of data connections.
    pub streams: u32,
    /// The bytes delivered over these connections, including the headers of blocks.
    pub bytes: Bytes,
}

/// An entry that was not copied, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFailure {
    /// The path.
    pub path: String,
    /// The reason as one sentence.
    pub reason: String,
}

/// A kind of metadata that the sink may fail to preserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The owner.
    Owner,
    /// The group.
    Group,
    /// Permission bits, including set-user-id and set-group-id.
    Mode,
    /// Modification time.
    Times,
    /// Extended attributes.
    Xattrs,
    /// Access control lists.
    Acls,
}

impl Kept {
    /// Returns the name for use in a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Kept::Owner => "owner",
            Kept::Group => "group",
            Kept::Mode => "mode",
            Kept::Times => "times",
            Kept::Xattrs => "extended attributes",
            Kept::Acls => "access control lists",
        }
    }
}

/// Metadata that could not be preserved: a count with one example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// The kind of metadata.
    pub what: Kept,
    /// The number of files and directories.
    pub count: u64,
    /// The path of the first affected entry.
    pub example: String,
    /// The reason for the first affected entry.
    pub reason: String,
}

/// A deletion at the sink, or in a dry run any planned change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The kind of change.
    pub what: ActionKind,
    /// The path at the sink; the path of a directory ends with a slash.
    pub path: FilePath,
    /// The size of a file to write.
    #[serde(default)]
    pub bytes: Bytes,
}

/// The kind of a change at the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// A new entry.
    Create,
    /// An existing entry is replaced.
    Replace,
    /// An existing entry is deleted.
    Delete,
}

impl ActionKind {
    /// Returns the name for display.
    pub fn as_str(self) -> &'static str {
        match self {
            ActionKind::Create => "create",
            ActionKind::Replace => "replace",
            ActionKind::Delete => "delete",
        }
    }
}

/// A file's digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestOf {
    /// The path at the sink, relative to the target's directory.
    pub path: FilePath,
    /// The size.
    pub bytes: Bytes,
    /// BLAKE3, 64 hexadecimal digits, as `b3sum` prints it.
    pub blake3: String,
}
