//! The messages of a copy. One end is the *source* and one the *sink*; either may be the client.
//!
//! ```text
//! client                                   server
//!   CopyRequest            ->
//!                          <-              CopyReply (Ready, or Refused and closed)
//!   data connections       ->
//! source                                   sink
//!   Entries, Entries, End  ->              (blocks meanwhile on the data connections)
//!                          <-              Progress, Resend, Failed
//!                          <-              Finished: everything is in place, or said to be not
//! ```

use serde::{Deserialize, Serialize};

pub use super::entry::{DeviceNumber, Entry, EntryKind, Owner, XATTRS_LIMIT_BYTES, Xattr};
use super::{RefusalKind, WirePath};
use crate::plan::CopyOptions;
use crate::result::{Action, DigestOf, NotKept, StageTimes, TransferEnd};
use crate::units::Bytes;

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
        /// Where the server puts what comes.
        target: WirePath,
        /// What comes at the top level.
        top: Top,
        /// How.
        options: CopyOptions,
    },
    /// The client is the sink.
    Send {
        /// What the server sends.
        paths: Vec<WirePath>,
        /// How.
        options: CopyOptions,
    },
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
    Ready,
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
        path: WirePath,
        /// Why, as a clause that follows the path.
        reason: String,
    },
    /// This is not copied by design: a device, a socket, a loop of links.
    Skipped {
        /// Its path at the source.
        path: WirePath,
        /// Why, as a clause that follows the path.
        reason: String,
    },
    /// Nothing more will be announced.
    End {
        /// Entries in all.
        entries: u64,
    },
    /// What the source used; sent once the sink has finished.
    Report(SourceReport),
    /// Still here.
    Alive,
    /// The copy is given up; files that are not complete are to be removed.
    Abort,
}

/// From the sink to the source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkMessage {
    /// How far it is; sent several times a second, also as a sign of life.
    Progress {
        /// Bytes written to files.
        written_bytes: Bytes,
        /// Entries that are in place since the last message; the source may forget them.
        done: Vec<u64>,
    },
    /// Which of the entries announced so far are wanted; only if the source was told to ask.
    Wanted {
        /// All entries with smaller numbers are decided.
        before: u64,
        /// Those that are not wanted, or not all of them.
        held: Vec<Held>,
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
        path: WirePath,
        /// Why, as a clause that follows the path.
        reason: String,
    },
    /// The copy cannot go on: one sentence says why.
    Abort {
        /// One sentence.
        reason: String,
    },
    /// Every announced entry is in place or has failed.
    Finished(SinkReport),
}

/// What the sink has of a file already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The file's entry.
    pub id: u64,
    /// The blocks it has, as first and count; `None` if it wants nothing of the file.
    pub blocks: Option<Vec<(u64, u64)>>,
}

/// What the source used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its CPU and memory.
    pub end: TransferEnd,
    /// Where its threads spent their time.
    pub stages: StageTimes,
    /// TCP segments sent again.
    pub retransmits: u64,
}

/// What the sink has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Files under their final names.
    pub files: u64,
    /// Bytes in them.
    pub bytes: Bytes,
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
    pub manifest: Option<WirePath>,
}
