//! The messages of a copy. One end is the *source* and one the *sink*; either may be the client.
//!
//! ```text
//! client                                   server
//!   CopyRequest            ->
//!                          <-              CopyReply (Ready, or Refused and closed)
//!   data connections       ->
//! source                                   sink
//!   Entries, Entries, End  ->              (at the same time: blocks on the data connections)
//!                          <-              Wanted, if the source waits for it
//!                          <-              Progress, Resend, Failed
//!                          <-              Finished: all entries are complete or have failed
//! ```

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use super::entry::{
    DeviceNumber, Entry, EntryKind, Owner, TOP_DIRECTORY, XATTRS_LIMIT_BYTES, Xattr,
};
use super::{FilePath, RefusalKind};
use crate::plan::CopyOptions;
use crate::result::{
    Action, CopyFailure, CopyPathReport, DigestOf, NotKept, StageTimes, TransferEnd,
};
use crate::units::{Bytes, Rate};

/// The maximum number of entries in one [`SinkMessage::Progress`], which keeps it below the frame
/// limit.
pub const DONE_BATCH: usize = 16 << 10;

/// The maximum number of bytes of paths in one [`SourceMessage::Entries`], which keeps it below the
/// frame limit.
pub const ENTRIES_BATCH_BYTES: usize = 128 << 10;

/// The client's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyRequest {
    /// The client is the source.
    Receive {
        /// The identity of the copy.
        key: CopyKey,
        /// The target at the server.
        target: FilePath,
        /// The entries at the top level.
        top: Top,
        /// The options of the copy.
        options: CopyOptions,
    },
    /// The client is the sink.
    Send {
        /// The paths that the server sends.
        paths: Vec<FilePath>,
        /// True if the source must wait for [`SinkMessage::Wanted`] before it reads a file.
        asks: bool,
        /// True if [`Names`] follow: the entries to send from the directory, which is the only
        /// path.
        #[serde(default)]
        listed: bool,
        /// The identity of the copy. The source skips directories that contain its journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<CopyKey>,
        /// The options of the copy.
        options: CopyOptions,
    },
    /// The client is a third party: the server sends to another server, and the client forwards the
    /// control messages of both.
    Forward {
        /// The paths that the server sends.
        paths: Vec<FilePath>,
        /// True if the source must wait for [`SinkMessage::Wanted`] before it reads a file.
        asks: bool,
        /// See [`CopyRequest::Send`].
        #[serde(default)]
        listed: bool,
        /// The identity of the copy. The source skips directories that contain its journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<CopyKey>,
        /// The options of the copy.
        options: CopyOptions,
        /// The sink.
        to: Introduction,
    },
    /// Copies no files: the server compares files with a manifest, both within its root, and sends
    /// [`CheckMessage`]s after it is ready.
    Check {
        /// The manifest.
        manifest: FilePath,
        /// The directory of the files; by default that of the manifest.
        dir: Option<FilePath>,
        /// The timeout in milliseconds without progress. A client that sends it understands
        /// [`CheckMessage::Progress`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        give_up_ms: Option<u64>,
    },
}

/// The messages of a server during a [`CopyRequest::Check`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckMessage {
    /// The check continues; sent so that the client does not time out.
    Alive,
    /// More bytes have been read.
    Progress {
        /// Bytes read so far.
        checked_bytes: Bytes,
    },
    /// Listed files with different contents.
    Changed(Vec<FilePath>),
    /// Listed files that are missing.
    Missing(Vec<FilePath>),
    /// Files that the manifest does not list.
    Extra(Vec<FilePath>),
    /// Files and directories that could not be read.
    Failures(Vec<CopyFailure>),
    /// The last message: the check failed.
    Failed {
        /// The reason as one sentence.
        reason: String,
    },
    /// The last message: the check is complete.
    Done {
        /// The number of unchanged files.
        unchanged_files: u64,
        /// The bytes in these files.
        unchanged_bytes: Bytes,
    },
}

/// A part of the list of names that follows a request with `listed` (`--files-from`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Paths relative to the request's only path.
    pub names: Vec<FilePath>,
    /// True if another part follows.
    pub more: bool,
}

/// The maximum number of bytes of names in one [`Names`]. Escapes can triple them, which stays
/// below the frame limit.
pub const NAMES_BATCH_BYTES: usize = 128 << 10;

/// The maximum number of bytes of names that a source accepts in total, about three million names.
pub const NAMES_LIMIT_BYTES: usize = 256 << 20;

/// The addresses and the key by which one server reaches the other, sent by the client of both.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The sink's addresses for data connections. If there are none, the client connects to the
    /// source and forwards the bytes.
    pub addresses: Vec<SocketAddr>,
    /// True if the data connections are distributed over all addresses; otherwise each uses the
    /// first one that answers. An older source always distributes them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// The keying material of the client's session with the sink. It only authenticates data
    /// connections of that session.
    keying: [u8; 32],
}

/// The maximum number of addresses in one [`Introduction`].
pub const ADDRESSES_LIMIT: usize = 16;

impl Introduction {
    /// Creates the introduction to a sink at the first [`ADDRESSES_LIMIT`] of `addresses`.
    pub fn new(addresses: &[SocketAddr], keying: [u8; 32]) -> Self {
        let addresses = addresses.iter().take(ADDRESSES_LIMIT).copied().collect();
        Introduction { addresses, spread: false, keying }
    }

    /// Returns the keying material.
    pub fn keying(&self) -> &[u8; 32] {
        &self.keying
    }
}

impl fmt::Debug for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introduction").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The identity of a copy: 32 lower-case hexadecimal digits. It is the same when the same command
/// runs again, so that an interrupted copy can resume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CopyKey(String);

impl CopyKey {
    /// Creates the key from a number.
    pub fn new(number: u128) -> Self {
        CopyKey(format!("{number:032x}"))
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CopyKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 32 && text.bytes().all(digit) {
            Ok(CopyKey(text))
        } else {
            Err("a copy's key has 32 hexadecimal digits")
        }
    }
}

impl From<CopyKey> for String {
    fn from(key: CopyKey) -> String {
        key.0
    }
}

/// The entries at the top level of a copy. They determine the interpretation of the target's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Top {
    /// One file or directory, which can get another name.
    One,
    /// Several entries; the target must be a directory.
    Several,
    /// The contents of a directory (`dir/.`).
    Contents,
}

/// The server's answer to a [`CopyRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyReply {
    /// The client may open data connections.
    Ready {
        /// True if the source waits for [`SinkMessage::Wanted`] before it reads a file.
        asks: bool,
        /// True if the server supports [`Verify::Reread`](crate::plan::Verify).
        #[serde(default)]
        rereads: bool,
    },
    /// The server refuses the request.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// The reason as one sentence.
        reason: String,
    },
}

/// The messages from the source to the sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceMessage {
    /// More files and directories.
    Entries(Vec<Entry>),
    /// An entry that cannot be sent; the sink removes its partial copy.
    Failed {
        /// The id of the entry, if it was announced.
        id: Option<u64>,
        /// The path at the source.
        path: FilePath,
        /// The reason, as a clause that follows the path.
        reason: String,
    },
    /// An entry that is skipped by design, such as a device, a socket or a loop of links.
    Skipped {
        /// The path at the source.
        path: FilePath,
        /// The reason, as a clause that follows the path.
        reason: String,
    },
    /// The [`EntryKind::Stream`] has ended.
    Length {
        /// The id of the entry.
        id: u64,
        /// The total bytes of the stream.
        size_bytes: Bytes,
    },
    /// The last entry has been announced.
    End {
        /// The total number of entries.
        entries: u64,
    },
    /// The source's report; sent after the sink has finished.
    Report(Box<SourceReport>),
    /// A message that shows that the source is alive.
    Alive {
        /// The load of the stages since the previous message.
        stages: StageTimes,
    },
    /// Requests data connections; sent if the client, which opens them, is the sink.
    Streams {
        /// The total number of connections.
        wanted: u32,
    },
    /// The source stops the copy.
    Abort {
        /// True if the connection failed, so that the copy can resume over a new one.
        again: bool,
    },
}

/// The messages from the sink to the source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkMessage {
    /// The progress, sent several times per second. It also shows that the sink is alive.
    Progress {
        /// The bytes written to files, including those of earlier attempts.
        written_bytes: Bytes,
        /// The bytes of earlier attempts.
        #[serde(default)]
        resumed_bytes: Bytes,
        /// The load of the stages since the previous message.
        #[serde(default)]
        stages: StageTimes,
        /// The entries completed since the previous message; the source may release them.
        done: Vec<u64>,
        /// The number of blocks of the [`EntryKind::Stream`] that are written without a gap; the
        /// source may release them.
        #[serde(default)]
        stream_blocks: u64,
        /// The bytes that the sink has read from its disk for comparison, which is progress without
        /// writes.
        #[serde(default)]
        checked_bytes: Bytes,
        /// A lower bound of the bytes that a later attempt can take from the journal.
        #[serde(default)]
        kept_bytes: Bytes,
    },
    /// The wanted entries among those announced so far; sent only if the source waits for this
    /// message.
    Wanted {
        /// The sink has decided on all entries with smaller ids.
        before: u64,
        /// The entries that the sink wants only in part or not at all.
        held: Vec<KeptFile>,
    },
    /// A limit for the rate of all connections together; `None` removes the limit.
    Limit {
        /// The limit.
        rate_bps: Option<Rate>,
    },
    /// Creations, replacements and deletions, done or planned.
    Actions(Vec<Action>),
    /// The digests of complete files.
    Digests(Vec<DigestOf>),
    /// Requests a block that failed verification again.
    Resend {
        /// The id of the file's entry.
        id: u64,
        /// The offset of the block.
        offset: u64,
    },
    /// A file could not be stored; the source may stop sending it.
    Failed {
        /// The id of the entry; `None` for an existing directory that could not be completed.
        id: Option<u64>,
        /// The path at the sink.
        path: FilePath,
        /// The reason, as a clause that follows the path.
        reason: String,
    },
    /// The sink stops the copy.
    Abort {
        /// The reason as one sentence.
        reason: String,
        /// True if the connection failed, so that the copy can resume over a new one.
        again: bool,
        /// The class of the reason, if the sink refuses to continue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<RefusalKind>,
    },
    /// Every announced entry has its final name or has failed.
    Finished(SinkReport),
}

/// The part of a file that the sink already has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// The id of the file's entry.
    pub id: u64,
    /// The blocks at the sink as pairs of first block and count; `None` if no block of the file is
    /// wanted.
    pub blocks: Option<Vec<(u64, u64)>>,
}

/// The report of the source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceReport {
    /// The CPU time and memory of the process.
    pub end: TransferEnd,
    /// The time of the threads in each stage.
    pub stages: StageTimes,
    /// The number of retransmitted TCP segments.
    pub retransmits: u64,
    /// The adaptation to the path.
    #[serde(default)]
    pub path: CopyPathReport,
}

/// The report of the sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// The number of files with their final names.
    pub files: u64,
    /// The bytes in these files.
    pub bytes: Bytes,
    /// The part of these bytes that an earlier attempt wrote.
    #[serde(default)]
    pub resumed_bytes: Bytes,
    /// The number of blocks that failed their check and were sent again.
    pub resent_blocks: u64,
    /// True if every file was synced before it got its name, and its directory after that.
    pub durable: bool,
    /// The CPU time and memory of the process.
    pub end: TransferEnd,
    /// The time of the threads in each stage.
    pub stages: StageTimes,
    /// The attributes of complete files that could not be preserved.
    #[serde(default)]
    pub not_kept: Vec<NotKept>,
    /// The number of files that were up to date.
    #[serde(default)]
    pub unchanged_files: u64,
    /// The number of deleted files and directories.
    #[serde(default)]
    pub deleted: u64,
    /// The path of the manifest, if one was written.
    #[serde(default)]
    pub manifest: Option<FilePath>,
}
