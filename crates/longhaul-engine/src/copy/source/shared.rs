//! The state that the stages of a source share: the context of the copy, its records, and its
//! meters.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::result::ThreadRole;
use longhaul_core::wire::copy::{CopyKey, SourceMessage};

use super::feed::Feed;
use super::file::{PieceSource, SourceFile};
use super::outstanding::{Outstanding, SinkDecisions};
use super::steer::SteeredStreams;
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::disk::Disk;
use crate::copy::journal::HostFiles;
use crate::copy::pool::{PoolBuffer, Pools};
use crate::copy::progress::CopyProgress;
use crate::copy::rate_gate::RateGate;
use crate::copy::reports::FileReports;
use crate::copy::tree::wire_path;
use crate::copy::watchdog::Watchdog;
use crate::error::Result;
use crate::lock;
use crate::session::ControlSender;

/// Readers, each with one read in flight: enough depth for a striped array of fast disks.
pub(super) const READERS: usize = 4;

/// A task of a reader.
pub(super) enum Job {
    /// Read one block.
    Block { file: Arc<SourceFile>, offset: u64 },
    /// Read small files whole, one after the other into one block.
    Pack(Vec<Arc<SourceFile>>),
    /// Read a stream to its end.
    Stream(Arc<SourceFile>),
}

/// Content that is ready to be sent.
pub(super) enum ReadContent {
    /// A block in a buffer.
    Block { file: Arc<SourceFile>, offset: u64, length: usize, buffer: PoolBuffer },
    /// Small files in a buffer.
    Pack { files: Vec<Arc<SourceFile>>, length: usize, buffer: PoolBuffer },
    /// A block that the thread of a connection reads in pieces.
    Pieces { file: Arc<SourceFile>, offset: u64, from: PieceSource },
}

/// The state that the threads of a source share.
pub(super) struct SourceShared<'a> {
    pub(super) context: SourceContext<'a>,
    pub(super) records: SourceRecords,
    pub(super) meters: SourceMeters,
    pub(super) steered: SteeredStreams,
}

/// The parts of a copy that do not change while it runs.
pub(super) struct SourceContext<'a> {
    pub(super) control: ControlSender,
    pub(super) cancel: Arc<Cancel>,
    pub(super) watchdog: Watchdog,
    pub(super) pools: Pools,
    pub(super) disk: Disk,
    pub(super) progress: &'a CopyProgress,
    /// Keeps the connections within the rate limit.
    pub(super) gate: Arc<RateGate>,
    pub(super) block_bytes: u64,
    /// True if connections read blocks in pieces that are not read with direct I/O. They need a
    /// protection that marks a block as invalid: its file can fail after its first piece was sent.
    pub(super) in_pieces: bool,
    /// True if the source waits for the decisions of the sink.
    pub(super) wanted_first: bool,
    /// The key of the copy.
    pub(super) key: Option<CopyKey>,
    /// Names the source's files to a sink on this host.
    pub(super) identities: Option<HostFiles>,
    /// True if this end opens the data connections.
    pub(super) opens_connections: bool,
    /// The copied stream, if the source is a stream.
    pub(super) feed: Option<Arc<Feed>>,
}

/// The state of the entries of a copy.
pub(super) struct SourceRecords {
    pub(super) outstanding: Arc<Outstanding>,
    pub(super) wanted: Arc<SinkDecisions>,
    pub(super) reports: Mutex<FileReports>,
    /// True while the walk is at work and does not wait for the sink.
    pub(super) walking: AtomicBool,
    /// Threads of the stages that have not ended.
    pub(super) running: AtomicU32,
}

/// The times and the CPU time of the stages.
#[derive(Default)]
pub(super) struct SourceMeters {
    pub(super) reading: StageClock,
    pub(super) sending: StageClock,
    pub(super) sealing: StageClock,
    pub(super) cpu: CpuMeter,
}

impl SourceRecords {
    pub(super) fn new(outstanding: Arc<Outstanding>, wanted: Arc<SinkDecisions>) -> Self {
        let (reports, walking) = (Mutex::default(), AtomicBool::new(false));
        SourceRecords { outstanding, wanted, reports, walking, running: AtomicU32::new(0) }
    }
}

/// A thread of a stage, counted as running until it is dropped.
pub(super) struct Stage<'a> {
    running: &'a AtomicU32,
    cpu: &'a CpuMeter,
    role: ThreadRole,
}

impl Stage<'_> {
    /// Runs the complete work of the thread.
    pub(super) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        self.cpu.stage(self.role, work)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SourceShared<'_> {
    /// Counts a thread as running, before it is started.
    pub(super) fn stage(&self, role: ThreadRole) -> Stage<'_> {
        self.records.running.fetch_add(1, Ordering::Relaxed);
        Stage { running: &self.records.running, cpu: &self.meters.cpu, role }
    }

    /// Reports to the sink and the user that a path cannot be sent.
    pub(super) fn failed(&self, id: Option<u64>, path: &Path, reason: &str) -> Result<()> {
        lock(&self.records.reports).fail(path.display().to_string(), reason.to_owned());
        let path = wire_path(path);
        self.context.control.send(&SourceMessage::Failed { id, path, reason: reason.to_owned() })
    }
}
