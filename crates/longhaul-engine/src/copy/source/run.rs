use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{bounded, unbounded};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{Action, CopyFailure, DigestOf, StageTimes};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::Top;
use longhaul_core::wire::copy::{SinkReport, SourceMessage, SourceReport};
use longhaul_sys::tcp::TcpInfo;

use super::announce::{announce, queue_wanted};
use super::carry::{read_blocks, send_blocks};
use super::file::SourceFile;
use super::follow::{follow_sink, tick};
use super::outstanding::Outstanding;
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::link::{Link, keep, pool, socket_options};
use crate::copy::pool::{Pool, PoolBuffer};
use crate::copy::progress::Progress;
use crate::copy::stream::BlockSender;
use crate::copy::tree::{Tree, wire_path};
use crate::error::{EngineError, Result};
use crate::lock::lock;

/// Blocks that the walk may queue ahead of the readers; bounds the source's memory in a tree of
/// many small files.
const JOB_QUEUE: usize = 1024;
/// Readers, each with one read in flight: enough depth for a striped array of fast disks.
const READERS: usize = 4;

/// What is sent.
#[derive(Debug, Clone)]
pub struct SourcePlan {
    /// The files that may be reached.
    pub tree: Tree,
    /// What is copied, all of it to one target.
    pub roots: Vec<SourceRoot>,
}

/// One thing named on the command line.
#[derive(Debug, Clone)]
pub enum SourceRoot {
    /// A file or directory; `dir/.` means the directory's contents.
    Path(PathBuf),
    /// So many zero bytes from memory.
    Zero(Bytes),
}

impl SourcePlan {
    /// What stands at the top level.
    pub fn top(&self) -> Top {
        match self.roots.as_slice() {
            [SourceRoot::Path(path)] if SourceRoot::is_contents(path) => Top::Contents,
            [_] => Top::One,
            _ => Top::Several,
        }
    }
}

/// What the source knows at the end.
pub(in crate::copy) struct SourceOutcome {
    pub(in crate::copy) sink: SinkReport,
    pub(in crate::copy) source: SourceReport,
    pub(in crate::copy) failures: Vec<CopyFailure>,
    pub(in crate::copy) skipped: Vec<CopyFailure>,
    pub(in crate::copy) actions: Vec<Action>,
    pub(in crate::copy) digests: Vec<DigestOf>,
    pub(in crate::copy) tcp: Vec<TcpInfo>,
}

/// What a reader is to do.
pub(super) enum Job {
    /// Read one block.
    Block { file: Arc<SourceFile>, offset: u64 },
    /// Read small files whole, one after the other into one block.
    Pack(Vec<Arc<SourceFile>>),
}

/// A buffer that is ready to be sent.
pub(super) struct Filled {
    pub(super) what: Content,
    pub(super) length: usize,
    pub(super) buffer: PoolBuffer,
}

/// What is in a filled buffer.
pub(super) enum Content {
    Block { file: Arc<SourceFile>, offset: u64 },
    Pack(Vec<Arc<SourceFile>>),
}

/// What the threads of a source share.
pub(super) struct Shared<'a> {
    pub(super) control: crate::session::ControlSender,
    pub(super) cancel: Arc<Cancel>,
    pub(super) pool: Pool,
    pub(super) progress: &'a Progress,
    pub(super) block_bytes: u64,
    /// Files are read once the sink wants them.
    pub(super) asks_first: bool,
    /// Entries announced so far.
    pub(super) announced: AtomicU64,
    pub(super) outstanding: Arc<Outstanding>,
    pub(super) failures: Mutex<Vec<CopyFailure>>,
    pub(super) skipped: Mutex<Vec<CopyFailure>>,
    pub(super) actions: Mutex<Vec<Action>>,
    pub(super) digests: Mutex<Vec<DigestOf>>,
    pub(super) reading: StageClock,
    pub(super) sending: StageClock,
    pub(super) cpu: CpuMeter,
}

/// Sends everything of `plan` and waits for the sink's word that it is in place.
pub(in crate::copy) fn run(
    link: Link,
    plan: &SourcePlan,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<SourceOutcome> {
    let start = Instant::now();
    let cancel = Arc::new(Cancel::default());
    link.arm(&cancel)?;
    let pool = pool(options);
    let outstanding = Arc::new(Outstanding::default());
    cancel.on_cancel({
        let (pool, outstanding) = (pool.clone(), outstanding.clone());
        move || {
            pool.close();
            outstanding.close();
        }
    });
    let shared = Shared {
        control: link.sender,
        cancel: cancel.clone(),
        pool,
        progress,
        block_bytes: options.block_bytes.get(),
        asks_first: options.tree.asks_first(),
        announced: AtomicU64::new(0),
        outstanding,
        failures: Mutex::default(),
        skipped: Mutex::default(),
        actions: Mutex::default(),
        digests: Mutex::default(),
        reading: StageClock::default(),
        sending: StageClock::default(),
        cpu: CpuMeter::default(),
    };
    let mut senders = Vec::new();
    for (stream, socket) in link.sockets.into_iter().enumerate() {
        let failed = |source: std::io::Error| EngineError::Data { stream: stream as u32, source };
        socket_options(options)
            .apply(&socket)
            .map_err(|error| failed(std::io::Error::other(error)))?;
        let key = link.secret.stream_key(stream as u32);
        senders.push(BlockSender::new(socket, &key, options.protection));
    }
    let mut receiver = link.receiver;
    let over = AtomicBool::new(false);
    let shared = &shared;

    let (report, tcp): (_, Vec<TcpInfo>) = thread::scope(|scope| {
        let (jobs, job_queue) = bounded(JOB_QUEUE);
        let (filled, filled_queue) = bounded::<Filled>(senders.len());
        let (walked, decided) = (jobs.clone(), jobs.clone());
        let (wanted, wanted_queue) = unbounded();
        scope.spawn(move || shared.cpu.run(|| announce(shared, walked, plan, options)));
        scope.spawn(move || queue_wanted(shared, &decided, &wanted_queue));
        for _ in 0..READERS {
            let (jobs, filled) = (job_queue.clone(), filled.clone());
            scope.spawn(move || shared.cpu.run(|| read_blocks(shared, &jobs, &filled)));
        }
        let sending: Vec<_> = senders
            .into_iter()
            .enumerate()
            .map(|(stream, sender)| {
                let blocks = filled_queue.clone();
                scope.spawn(move || shared.cpu.run(|| send_blocks(shared, stream, sender, &blocks)))
            })
            .collect();
        // The threads hold the ends they need; a stage ends when the one before it has.
        drop((job_queue, filled, filled_queue));
        let ticker = scope.spawn(|| tick(shared, &over, stop));

        let report = shared.cpu.run(|| follow_sink(shared, &mut receiver, &jobs, &wanted));
        let report = report.inspect_err(|_| shared.pool.close());
        let report = match report {
            Ok(report) => Some(report),
            Err(reason) => {
                cancel.fail(reason);
                None
            }
        };
        drop((jobs, wanted));
        let tcp = sending.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect();
        over.store(true, Ordering::Relaxed);
        ticker.thread().unpark();
        (report, tcp)
    });

    let elapsed = start.elapsed();
    let stages = StageTimes {
        read: shared.reading.share(elapsed),
        send: shared.sending.share(elapsed),
        ..StageTimes::default()
    };
    let retransmits = tcp.iter().map(|info| info.retransmits).sum();
    let source = SourceReport { end: shared.cpu.report(elapsed), stages, retransmits };
    let failures = std::mem::take(&mut *lock(&shared.failures));
    let skipped = std::mem::take(&mut *lock(&shared.skipped));
    match report {
        Some(sink) => {
            // For a client that is the sink; one that has left knows enough.
            let _ = shared.control.send(&SourceMessage::Report(source.clone()));
            let actions = std::mem::take(&mut *lock(&shared.actions));
            let digests = std::mem::take(&mut *lock(&shared.digests));
            Ok(SourceOutcome { sink, source, failures, skipped, actions, digests, tcp })
        }
        None => Err(cancel.take_reason()),
    }
}

impl Shared<'_> {
    /// Tells the sink and the user that something cannot be sent.
    pub(super) fn failed(&self, id: Option<u64>, path: &Path, reason: &str) -> Result<()> {
        keep(&mut lock(&self.failures), path.display().to_string(), reason.to_owned());
        let path = wire_path(path);
        self.control.send(&SourceMessage::Failed { id, path, reason: reason.to_owned() })
    }
}
