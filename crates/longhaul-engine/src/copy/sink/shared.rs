//! The state that the stages of a sink share: the context of the copy, its records, and its meters.

use std::convert::Infallible;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::Action;
use longhaul_core::wire::copy::{SinkMessage, SinkReport, SourceReport};
use longhaul_core::wire::{FilePath, RefusalKind};

use super::digests::Digests;
use super::extras::Extras;
use super::finish::{CompleteFile, Finisher};
use super::ledger::{Ledger, SinkFile};
use super::memory::{EntryMemory, MemoryClaim};
use super::placement::Destination;
use super::recorder::JournalRecorder;
use super::store::Store;
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, Lanes, StageClock};
use crate::copy::journal::HostFiles;
use crate::copy::metadata::Attributes;
use crate::copy::pool::{PoolBuffer, Pools};
use crate::copy::progress::CopyProgress;
use crate::copy::reports::FileReports;
use crate::copy::requested::Requested;
use crate::copy::watchdog::Watchdog;
use crate::error::{EngineError, Result};
use crate::session::ControlSender;
use crate::{FUZZ_HASTE, lock};

/// The longest time from the interruption of this end to its exit: the source stops within a round
/// trip, and the data in flight arrive.
const STOP_LIMIT: Duration = Duration::from_millis(3_000 / FUZZ_HASTE);

/// A verified buffer and its content.
pub(super) struct ReceivedBuffer {
    pub(super) what: ReceivedContent,
    pub(super) buffer: PoolBuffer,
}

/// The stages after the connections.
#[derive(Clone)]
pub(super) struct Received {
    /// Buffers to be written.
    pub(super) blocks: Sender<ReceivedBuffer>,
    /// Complete files to be synced and renamed.
    pub(super) complete: Sender<Vec<CompleteFile>>,
}

/// The content of a buffer, and the files that it belongs to.
pub(super) enum ReceivedContent {
    Block {
        file: Arc<SinkFile>,
        offset: u64,
        length: usize,
        /// The XXH3-128 of the bytes, if the journal stores it.
        digest: Option<u128>,
    },
    /// Complete files, with the offset of each in the buffer.
    Pack(Vec<(Arc<SinkFile>, usize)>),
}

/// A hard link, which is made after all files have their final names.
pub(super) struct HardLink {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    /// The entry of the name that was announced first, and its path.
    pub(super) first: u64,
    pub(super) first_path: PathBuf,
    pub(super) _memory: MemoryClaim,
}

/// The state that the threads of a sink share.
pub(super) struct SinkShared<'a> {
    pub(super) context: SinkContext<'a>,
    pub(super) records: SinkRecords,
    pub(super) meters: SinkMeters,
    pub(super) store: &'a Store,
    pub(super) recorder: &'a JournalRecorder,
    pub(super) finisher: Finisher<'a>,
}

/// The parts of a copy that do not change while it runs.
pub(super) struct SinkContext<'a> {
    pub(super) control: ControlSender,
    pub(super) cancel: Arc<Cancel>,
    pub(super) watchdog: Watchdog,
    /// Bytes that have arrived over data connections.
    pub(super) arrived: Arc<Lanes>,
    pub(super) pools: Pools,
    pub(super) options: &'a CopyOptions,
    pub(super) progress: &'a CopyProgress,
    /// True if the source waits for [`SinkMessage::Wanted`].
    pub(super) wanted_first: bool,
    /// The names that this client has requested; `None` if any name is possible.
    pub(super) requested: Option<&'a Requested>,
    /// Recognizes files of a source on this host.
    pub(super) host_files: Option<HostFiles>,
}

/// The state of the entries of a copy.
pub(super) struct SinkRecords {
    pub(super) ledger: Arc<Ledger>,
    pub(super) reports: Mutex<FileReports>,
    /// The memory of entries that are announced ahead of their data.
    pub(super) memory: EntryMemory,
    /// Directories that get their attributes at the end.
    pub(super) dirs: Mutex<Vec<(PathBuf, Attributes, MemoryClaim)>>,
    /// The attributes of the target itself, if the contents of a directory are copied.
    pub(super) top: Mutex<Option<Attributes>>,
    pub(super) links: Mutex<Vec<HardLink>>,
    /// By id, the hash of the path of each entry, if hard links are kept; 0 for an entry that has no
    /// second name.
    pub(super) named: Mutex<Vec<u64>>,
    pub(super) extras: Extras,
    pub(super) digests: Digests,
    /// Files that stay as they are.
    pub(super) unchanged: AtomicU64,
    /// Blocks that were requested again.
    pub(super) resent: AtomicU64,
    /// Data connections that the source requests in all.
    pub(super) wanted: AtomicU32,
    pub(super) finished: AtomicBool,
    /// True after this end was interrupted.
    pub(super) interrupted: AtomicBool,
    pub(super) report: Mutex<Option<(SinkReport, Instant)>>,
    pub(super) source: Mutex<Option<SourceReport>>,
}

/// The times and the CPU time of the stages.
pub(super) struct SinkMeters {
    pub(super) receiving: StageClock,
    pub(super) verifying: StageClock,
    pub(super) writing: StageClock,
    pub(super) syncing: StageClock,
    /// The threads that read again what an earlier attempt has written.
    pub(super) checking: StageClock,
    pub(super) cpu: CpuMeter,
    pub(super) start: Instant,
}

impl SinkRecords {
    pub(super) fn new(
        options: &CopyOptions,
        ledger: Arc<Ledger>,
        destination: &Destination,
        reports: FileReports,
    ) -> Self {
        SinkRecords {
            ledger,
            reports: Mutex::new(reports),
            memory: EntryMemory::default(),
            dirs: Mutex::default(),
            top: Mutex::default(),
            links: Mutex::default(),
            named: Mutex::default(),
            extras: Extras::new(options, destination),
            digests: Digests::new(options),
            unchanged: AtomicU64::new(0),
            resent: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            finished: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            report: Mutex::default(),
            source: Mutex::default(),
        }
    }
}

impl SinkMeters {
    pub(super) fn new() -> Self {
        SinkMeters {
            receiving: StageClock::default(),
            verifying: StageClock::default(),
            writing: StageClock::default(),
            syncing: StageClock::default(),
            checking: StageClock::default(),
            cpu: CpuMeter::default(),
            start: Instant::now(),
        }
    }
}

impl SinkShared<'_> {
    /// Marks a file as failed, removes its temporary file, and reports it to the source.
    pub(super) fn fail(&self, file: &SinkFile, operation: &str, error: &io::Error) {
        if self.records.ledger.failed(file.id).is_some() {
            self.recorder.dropped(file);
            self.settle_claim(file);
            let sent = self.report_failure(Some(file.id), &file.path, operation, error);
            self.context.cancel.check(sent);
            self.records.ledger.failure_reported();
        }
    }

    pub(super) fn report_failure(
        &self,
        id: Option<u64>,
        path: &Path,
        operation: &str,
        error: &io::Error,
    ) -> Result<()> {
        let path = self.store.display(path);
        let path = FilePath::new(path.as_os_str().as_bytes()).ok_or(EngineError::Interrupted)?;
        let reason = format!("cannot {operation} it: {error}");
        lock(&self.records.reports).fail(path.to_string(), reason.clone());
        self.context.control.send(&SinkMessage::Failed { id, path, reason })
    }

    /// Settles the space claim of a file: its bytes are on the disk, or no longer needed.
    pub(super) fn settle_claim(&self, file: &SinkFile) {
        match file.take_claim() {
            0 => {}
            bytes => self.store.space.settle(bytes),
        }
    }

    /// Keeps actions for a client at this end, and reports them to a client at the other end.
    pub(super) fn report_actions(&self, actions: Vec<Action>) -> Result<()> {
        lock(&self.records.reports).own_actions(&actions)?;
        self.context.control.send(&SinkMessage::Actions(actions))
    }

    /// Stops the source, receives the data in flight until the sender of `over` is dropped or a limit
    /// of time has passed, and ends the copy.
    pub(super) fn interrupt(&self, over: &Receiver<Infallible>) {
        self.records.interrupted.store(true, Ordering::Relaxed);
        let reason = EngineError::Interrupted.to_string();
        let stop = SinkMessage::Abort { reason, again: false, kind: None };
        if self.context.control.send(&stop).is_ok() {
            let _ = over.recv_timeout(STOP_LIMIT);
        }
        self.context.cancel.fail(EngineError::Interrupted);
    }

    /// Ends the copy and reports the reason to the source, which can have left.
    pub(super) fn abort(&self, reason: EngineError) {
        let (words, again) = (reason.to_string(), reason.may_pass());
        let full = matches!(reason, EngineError::NoSpace { .. } | EngineError::OverQuota { .. });
        let kind = full.then_some(RefusalKind::Files);
        self.context.cancel.fail_saying(reason, || {
            let _ = self.context.control.send(&SinkMessage::Abort { reason: words, again, kind });
        });
    }
}

/// Returns the error of a peer that violates the protocol.
pub(super) fn broken(peer: &str, what: &'static str) -> EngineError {
    EngineError::Protocol { peer: peer.to_owned(), what }
}
