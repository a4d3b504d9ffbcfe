//! The messages of a copy. One end is the *source* and one the *sink*; either may be the client.
//!
//! ```text
//! client                                   server
//!   CopyRequest            ->
//!                          <-              CopyReply (Ready, or Refused and closed)
//!   data connections       ->
//! source                                   sink
//!   Entries, Entries, End  ->              (blocks meanwhile on the data connections)
//!                          <-              Wanted, if the source was told to ask
//!                          <-              Progress, Resend, Failed
//!                          <-              Finished: everything is in place, or said to be not
//! ```

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use super::entry::{
    DeviceNumber, Entry, EntryKind, Owner, TOP_DIRECTORY, XATTRS_LIMIT_BYTES, Xattr,
};
use super::{FilePath, RefusalKind};
use crate::plan::CopyOptions;
use crate::result::{Action, CopyFailure, DigestOf, NotKept, PathReport, StageTimes, TransferEnd};
use crate::units::{Bytes, Rate};

/// Most entries in one [`SinkMessage::Progress`], for the same reason.
pub const DONE_BATCH: usize = 16 << 10;

/// Most bytes of paths in one [`SourceMessage::Entries`]; keeps it well below the frame limit.
pub const ENTRIES_BATCH_BYTES: usize = 128 << 10;

/// The client's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyRequest {
    /// The client is the source.
    Receive {
        /// Which copy this is.
        key: CopyKey,
        /// Where the server puts what comes.
        target: FilePath,
        /// What comes at the top level.
        top: Top,
        /// How.
        options: CopyOptions,
    },
    /// The client is the sink.
    Send {
        /// What the server sends.
        paths: Vec<FilePath>,
        /// The source is to wait for [`SinkMessage::Wanted`] before it reads a file.
        asks: bool,
        /// What is sent of the directory that is the only path follows as [`Names`].
        #[serde(default)]
        listed: bool,
        /// Which copy this is: the source walks no directory that has its journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<CopyKey>,
        /// How.
        options: CopyOptions,
    },
    /// The client is neither: the server sends to another, and the client passes on what both
    /// say.
    Forward {
        /// What the server sends.
        paths: Vec<FilePath>,
        /// The source is to wait for [`SinkMessage::Wanted`] before it reads a file.
        asks: bool,
        /// As for [`CopyRequest::Send`].
        #[serde(default)]
        listed: bool,
        /// Which copy this is: the source walks no directory that has its journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<CopyKey>,
        /// How.
        options: CopyOptions,
        /// To whom.
        to: Introduction,
    },
    /// Nothing is copied: the server compares files with a manifest, both beneath its root, and
    /// answers with [`CheckMessage`]s once it is ready.
    Check {
        /// The manifest.
        manifest: FilePath,
        /// Where the files are; beside the manifest if not given.
        dir: Option<FilePath>,
        /// Milliseconds without progress after which an end stops; a client that sends it knows
        /// [`CheckMessage::Progress`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        give_up_ms: Option<u64>,
    },
}

/// What a server tells of a [`CopyRequest::Check`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckMessage {
    /// It is still at work.
    Alive,
    /// It has read more.
    Progress {
        /// Bytes read so far.
        checked_bytes: Bytes,
    },
    /// Recorded files with other bytes.
    Changed(Vec<FilePath>),
    /// Recorded files that are not there.
    Missing(Vec<FilePath>),
    /// Files that the manifest does not list.
    Extra(Vec<FilePath>),
    /// What could not be looked at.
    Failures(Vec<CopyFailure>),
    /// The last message: the check could not be made.
    Failed {
        /// One sentence.
        reason: String,
    },
    /// The last message: all is told.
    Done {
        /// Files that are as recorded.
        unchanged_files: u64,
        /// Bytes in them.
        unchanged_bytes: Bytes,
    },
}

/// What follows a request that is `listed`, as often as it takes (`--files-from`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Paths relative to the request's only path.
    pub names: Vec<FilePath>,
    /// More follow.
    pub more: bool,
}

/// Bytes of names in one [`Names`]: tripled by what their spelling may add, it stays below the
/// frame limit.
pub const NAMES_BATCH_BYTES: usize = 128 << 10;

/// Bytes of names in all that a source takes: some three million.
pub const NAMES_LIMIT_BYTES: usize = 256 << 20;

/// How one end of a copy reaches the other, from the client that knows both.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Where the sink takes data connections; none if the client opens them to the source and
    /// passes the bytes on.
    pub addresses: Vec<SocketAddr>,
    /// The keying material of the client's session with the sink: it opens that session's data
    /// connections, and nothing else.
    keying: [u8; 32],
}

/// Addresses in one [`Introduction`] at the most.
pub const ADDRESSES_LIMIT: usize = 16;

impl Introduction {
    /// For a sink at `addresses`, of which the first few are told.
    pub fn new(addresses: &[SocketAddr], keying: [u8; 32]) -> Self {
        let addresses = addresses.iter().take(ADDRESSES_LIMIT).copied().collect();
        Introduction { addresses, keying }
    }

    /// The keying material.
    pub fn keying(&self) -> &[u8; 32] {
        &self.keying
    }
}

impl fmt::Debug for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introduction").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The name of a copy: the same when the same command is given again, so that it can go on where
/// it was broken off. 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CopyKey(String);

impl CopyKey {
    /// The key of this number.
    pub fn new(number: u128) -> Self {
        CopyKey(format!("{number:032x}"))
    }

    /// Its digits.
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

/// What stands at the top level of a copy, which decides how the target's name is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Top {
    /// One file or directory, which may be given a new name.
    One,
    /// Several, which need a directory to go into.
    Several,
    /// The contents of a directory (`dir/.`).
    Contents,
}

/// The server's answer to a [`CopyRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyReply {
    /// Data connections are welcome.
    Ready {
        /// The source is to wait for [`SinkMessage::Wanted`] before it reads a file.
        asks: bool,
        /// The server knows [`Verify::Reread`](crate::plan::Verify).
        #[serde(default)]
        rereads: bool,
    },
    /// The server will not.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// One sentence.
        reason: String,
    },
}

/// From the source to the sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceMessage {
    /// More files and directories.
    Entries(Vec<Entry>),
    /// This cannot be sent (any more); what came of it is to be removed.
    Failed {
        /// Its entry, if it was announced.
        id: Option<u64>,
        /// Its path at the source.
        path: FilePath,
        /// Why, as a clause that follows the path.
        reason: String,
    },
    /// This is not copied by design: a device, a socket, a loop of links.
    Skipped {
        /// Its path at the source.
        path: FilePath,
        /// Why, as a clause that follows the path.
        reason: String,
    },
    /// How long the [`EntryKind::Stream`] is: it has ended.
    Length {
        /// Its entry.
        id: u64,
        /// Its bytes in all.
        size_bytes: Bytes,
    },
    /// Nothing more will be announced.
    End {
        /// Entries in all.
        entries: u64,
    },
    /// What the source used; sent once the sink has finished.
    Report(Box<SourceReport>),
    /// Still here.
    Alive {
        /// How busy its stages were since the last time.
        stages: StageTimes,
    },
    /// The client, being the sink, is to open data connections until there are so many.
    Streams {
        /// Connections in all.
        wanted: u32,
    },
    /// The copy is given up.
    Abort {
        /// The connection is to blame: the copy may go on over another.
        again: bool,
    },
}

/// From the sink to the source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkMessage {
    /// How far it is; sent several times a second, also as a sign of life.
    Progress {
        /// Bytes written to files, now and by earlier attempts.
        written_bytes: Bytes,
        /// Those of earlier attempts.
        #[serde(default)]
        resumed_bytes: Bytes,
        /// How busy its stages were since the last time.
        #[serde(default)]
        stages: StageTimes,
        /// Entries that are in place since the last message; the source may forget them.
        done: Vec<u64>,
        /// Blocks of the [`EntryKind::Stream`] that are written, from its first to before the
        /// first that is not; the source may forget them.
        #[serde(default)]
        stream_blocks: u64,
        /// Bytes that it has read from its disk to compare them: progress while none are written.
        #[serde(default)]
        checked_bytes: Bytes,
        /// The bytes that the journal returns to a later attempt, at least.
        #[serde(default)]
        kept_bytes: Bytes,
    },
    /// Which of the entries announced so far are wanted; only if the source was told to ask.
    Wanted {
        /// All entries with smaller numbers are decided.
        before: u64,
        /// Those that are not wanted, or not all of them.
        held: Vec<Held>,
    },
    /// Send no faster than this from now on, over all connections together; `None` for no limit.
    Limit {
        /// The limit.
        rate_bps: Option<Rate>,
    },
    /// What is done besides, or would be.
    Actions(Vec<Action>),
    /// Digests of files that are in place.
    Digests(Vec<DigestOf>),
    /// A block did not pass its check and is wanted again.
    Resend {
        /// Its file's entry.
        id: u64,
        /// Where it begins.
        offset: u64,
    },
    /// A file could not be stored; the source may stop sending it.
    Failed {
        /// Its entry; `None` for a directory that is there and could not be finished.
        id: Option<u64>,
        /// Its path at the sink.
        path: FilePath,
        /// Why, as a clause that follows the path.
        reason: String,
    },
    /// The copy cannot go on: one sentence says why.
    Abort {
        /// One sentence.
        reason: String,
        /// The connection is to blame: the copy may go on over another.
        again: bool,
        /// The class of the reason, if the sink refuses to go on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<RefusalKind>,
    },
    /// Every announced entry is in place or has failed.
    Finished(SinkReport),
}

/// What the sink has of a file already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The file's entry.
    pub id: u64,
    /// The blocks it has, as first and count; `None` if the file is no part of the copy: it stays
    /// as it is, or nothing is to be changed.
    pub blocks: Option<Vec<(u64, u64)>>,
}

/// What the source used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its CPU and memory.
    pub end: TransferEnd,
    /// Where its threads spent their time.
    pub stages: StageTimes,
    /// TCP segments sent again.
    pub retransmits: u64,
    /// What was done to suit the path.
    #[serde(default)]
    pub path: PathReport,
}

/// What the sink has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Files under their final names.
    pub files: u64,
    /// Bytes in them.
    pub bytes: Bytes,
    /// Those of them that an earlier attempt had left there.
    #[serde(default)]
    pub resumed_bytes: Bytes,
    /// Blocks that did not pass their check and were sent again.
    pub resent_blocks: u64,
    /// Whether every file was synced before it got its name, and its directory after.
    pub durable: bool,
    /// Its CPU and memory.
    pub end: TransferEnd,
    /// Where its threads spent their time.
    pub stages: StageTimes,
    /// What could not be kept of files that are in place.
    #[serde(default)]
    pub not_kept: Vec<NotKept>,
    /// Files that stayed as they were, being as new.
    #[serde(default)]
    pub unchanged_files: u64,
    /// Files and directories deleted.
    #[serde(default)]
    pub deleted: u64,
    /// The manifest's path, if one was written.
    #[serde(default)]
    pub manifest: Option<FilePath>,
}
