use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::plan::Verify;
use crate::units::{Bytes, Rate};
use crate::wire::FilePath;

/// The schema of [`CopyResult`] in JSON.
pub const COPY_SCHEMA: &str = "longhaul.cp/1";

/// What a copy did; `docs/design/results.md` has every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyResult {
    /// [`COPY_SCHEMA`].
    pub schema: String,
    /// The whole in a few numbers.
    pub summary: CopySummary,
    /// The limit and the waits of the stages in one sentence, which the program words.
    pub verdict: String,
    /// The same in a word; `None` where nothing stands out.
    #[serde(default)]
    pub limit: Option<CopyLimit>,
    /// What was done to suit the path.
    #[serde(default)]
    pub path: PathReport,
    /// The end that read.
    pub source: EndReport,
    /// The end that wrote.
    pub sink: EndReport,
    /// What could not be copied, each with its reason.
    pub failures: Vec<CopyFailure>,
    /// What was passed over: devices, sockets, links that lead nowhere.
    pub skipped: Vec<CopyFailure>,
    /// What could not be kept of files that are in place: owners, attributes.
    #[serde(default)]
    pub not_kept: Vec<NotKept>,
    /// What was deleted; after a dry run, everything that would be done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// The files' digests, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<DigestOf>,
}

/// The whole copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopySummary {
    /// `bytes` without `resumed_bytes`, over `seconds`.
    pub throughput_bps: Rate,
    /// Bytes of files that are in place at the sink.
    pub bytes: Bytes,
    /// Those of them that were there from an earlier attempt; the rate leaves them out.
    #[serde(default)]
    pub resumed_bytes: Bytes,
    /// Files that are in place at the sink.
    pub files: u64,
    /// From the open session to the sink's word that everything is in place.
    pub seconds: f64,
    /// Every block was checked at the sink before it was written.
    pub verified: bool,
    /// When it was compared, if it was; `Reread` means that the disk's bytes were compared as well.
    #[serde(default)]
    pub verification: Option<Verify>,
    /// The data connections were encrypted.
    pub encrypted: bool,
    /// Every file was synced before it got its name.
    pub durable: bool,
    /// TCP connections used, at the end.
    pub streams: u32,
    /// Times that the connection was lost and made again.
    #[serde(default)]
    pub reconnects: u32,
    /// Blocks that did not pass their check and were sent again.
    pub resent_blocks: u64,
    /// TCP segments sent again.
    pub retransmits: Option<u64>,
    /// Smoothed round-trip time, milliseconds, the least over the streams at the end.
    pub rtt_ms: Option<f64>,
    /// Nothing was changed; `actions` has what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Files that stayed as they were, being as new.
    #[serde(default)]
    pub unchanged_files: u64,
    /// Files and directories deleted.
    #[serde(default)]
    pub deleted: u64,
    /// Where the manifest is, at the sink.
    #[serde(default)]
    pub manifest: Option<String>,
}

/// What holds a copy back.
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
    /// The path's rate, or what others leave of it.
    Path,
    /// Lost segments.
    Loss,
    /// The sink's socket buffers (`net.ipv4.tcp_rmem`).
    ReceiveWindow,
    /// The processors of the sink's host.
    SinkCpu,
    /// Writing or syncing the sink's files.
    SinkDisk,
    /// The processors of the one host that both ends are on.
    Cpu,
    /// The limit that was asked for (`--bwlimit`).
    Rate,
}

impl CopyLimit {
    /// Two words for it.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyLimit::SourceDisk => "source disk",
            CopyLimit::SourceCpu => "source CPU",
            CopyLimit::Sealing => "sealing",
            CopyLimit::SendWindow => "send window",
            CopyLimit::Path => "path",
            CopyLimit::Loss => "loss",
            CopyLimit::ReceiveWindow => "receive window",
            CopyLimit::SinkCpu => "sink CPU",
            CopyLimit::SinkDisk => "sink disk",
            CopyLimit::Cpu => "CPU",
            CopyLimit::Rate => "--bwlimit",
        }
    }
}

/// How the source suited the copy to the path, and what TCP said of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathReport {
    /// What the path was like before the first byte; `None` in documents that do not tell.
    #[serde(default)]
    pub before: Option<PathBefore>,
    /// Data connections at the end.
    pub streams: u32,
    /// Their congestion control at the end.
    pub congestion: Option<String>,
    /// What was changed while it ran, and why, in order.
    pub steps: Vec<String>,
    /// What went over each address of the host that was connected to, in their order.
    #[serde(default)]
    pub addresses: Vec<AddressReport>,
    /// Bytes sent again for each byte delivered.
    pub loss: f64,
    /// The share of the time with data to send in which the peer's window held it back.
    pub receive_window_limited: f64,
    /// The same of the send buffer.
    pub send_buffer_limited: f64,
}

/// What the first data connection's handshake tells of an idle path; `longhaul path` tells more.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PathBefore {
    /// The round trip of the handshake.
    pub rtt_ms: f64,
    /// The path MTU as the kernel believes it.
    pub mtu_bytes: u32,
    /// The payload of a segment.
    pub segment_bytes: u32,
    /// The congestion window that the copy began with.
    pub cwnd_bytes: Bytes,
}

/// What went over one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressReport {
    /// The address.
    pub address: IpAddr,
    /// Data connections over it.
    pub streams: u32,
    /// Bytes that were delivered over them, with the headers of blocks.
    pub bytes: Bytes,
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// CPU and memory.
    #[serde(flatten)]
    pub end: TransferEnd,
    /// Where its threads spent their time.
    pub stages: StageTimes,
}

/// What a process used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TransferEnd {
    /// CPU time of the copy, in percent of one core.
    pub cpu_percent: f64,
    /// CPU seconds, user and system.
    pub cpu_seconds: f64,
    /// The largest resident set of the process so far.
    pub peak_memory_bytes: Bytes,
    /// The share of the host's processor time in use meanwhile, by whomever, 0 to 1.
    #[serde(default)]
    pub host_busy: Option<f64>,
    /// Bytes that were read or written past the page cache.
    #[serde(default)]
    pub direct_bytes: Bytes,
    /// The thread that worked or waited for a processor the largest share of its life.
    #[serde(default)]
    pub busiest: Option<BusyThread>,
}

/// A thread of a copy and how the scheduler treated it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BusyThread {
    /// What it does.
    pub role: ThreadRole,
    /// It ran.
    pub running_percent: f64,
    /// It could have run and waited for a core; 0 when the kernel keeps no account.
    pub waiting_percent: f64,
}

impl BusyThread {
    /// Running or waiting for a core: near 100 the thread never waits for anything else.
    pub fn load_percent(&self) -> f64 {
        self.running_percent + self.waiting_percent
    }
}

/// What a thread of a copy does.
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
    /// Talks to the other end and keeps the books.
    Control,
}

impl ThreadRole {
    /// The word for it before "thread".
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

/// How busy the stages of one end were: 1 means that all threads of the stage worked all the
/// time; what is missing to 1 they waited for other stages. A stage that an end does not have is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StageTimes {
    /// Reading files.
    pub read: Option<f64>,
    /// Sending: hashing or sealing, and waiting for the socket to take it.
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

/// A file that is not in place, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFailure {
    /// Its path.
    pub path: String,
    /// One sentence.
    pub reason: String,
}

/// Metadata that the sink may fail to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The user a file belongs to.
    Owner,
    /// Its group.
    Group,
    /// Permission bits, among them set-user-id and set-group-id.
    Mode,
    /// Modification time.
    Times,
    /// Extended attributes.
    Xattrs,
    /// Access control lists.
    Acls,
}

impl Kept {
    /// The word for it in a sentence.
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

/// Metadata that was to be kept and could not be: counted, with one example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// What of them.
    pub what: Kept,
    /// How many files and directories.
    pub count: u64,
    /// The first of them.
    pub example: String,
    /// Why, for the first of them.
    pub reason: String,
}

/// Something done at the sink besides writing what was announced, or, in a dry run, anything
/// that would be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What.
    pub what: ActionKind,
    /// With which path at the sink; a directory's ends with a slash.
    pub path: FilePath,
    /// The bytes that a file would bring.
    #[serde(default)]
    pub bytes: Bytes,
}

/// What is done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// It is not there yet.
    Create,
    /// What is there is replaced.
    Replace,
    /// What is there is deleted.
    Delete,
}

impl ActionKind {
    /// The word for it.
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
    /// Its path at the sink, relative to the target's directory.
    pub path: FilePath,
    /// Its size.
    pub bytes: Bytes,
    /// BLAKE3, 64 hexadecimal digits, as `b3sum` prints it.
    pub blake3: String,
}
