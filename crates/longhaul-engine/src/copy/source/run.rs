use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, unbounded};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{Action, CopyFailure, DigestOf, StageTimes, ThreadRole};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{CopyKey, Top};
use longhaul_core::wire::copy::{SinkReport, SourceMessage, SourceReport};
use longhaul_sys::tcp::TcpInfo;

use super::announce::{announce, queue_announced};
use super::carry::{read_blocks, send_blocks};
use super::feed::Feed;
use super::file::SourceFile;
use super::follow::{follow_sink, tick};
use super::outstanding::{Outstanding, Wanted};
use super::steer::{Helm, Pacemaker, Pilot};
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::disk::Disk;
use crate::copy::link::{Channels, keep, pools, socket_options};
use crate::copy::pool::{PoolBuffer, Pools};
use crate::copy::progress::Progress;
use crate::copy::streams::Streams;
use crate::copy::tree::{Tree, wire_path};
use crate::copy::watchdog::{Watchdog, patience};
use crate::error::Result;
use crate::lock::lock;
use crate::session::ControlReceiver;

/// Blocks that the walk may queue ahead of the readers; bounds the source's memory in a tree of
/// many small files.
const JOB_QUEUE: usize = 1024;
/// Blocks that wait for a connection that is ready.
const FILLED_QUEUE: usize = 4;
/// Readers, each with one read in flight: enough depth for a striped array of fast disks.
pub(super) const READERS: usize = 4;

/// How long the stages may take to end once the sink has said that all is in place.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// How often it is looked whether they have.
const STAGES_CHECK: Duration = Duration::from_millis(1);

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
    /// Whatever comes until it ends; the only root.
    Feed(Arc<Feed>),
    /// These of the things beneath a directory, each with the directories above it; the only
    /// root.
    Listed {
        /// The directory.
        base: PathBuf,
        /// Paths relative to it.
        names: Arc<Vec<PathBuf>>,
    },
}

impl SourcePlan {
    /// What stands at the top level.
    pub fn top(&self) -> Top {
        match self.roots.as_slice() {
            [SourceRoot::Listed { .. }] => Top::Contents,
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
    /// Read what can be read once, to its end.
    Pour(Arc<SourceFile>),
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
    pub(super) watchdog: Watchdog,
    /// Whether the walk is at work, and does not wait for the sink.
    pub(super) walking: AtomicBool,
    /// Blocks of the stream that the sink has reported.
    pub(super) streamed: AtomicU64,
    /// Threads of the stages that have not ended.
    running: AtomicU32,
    pub(super) pools: Pools,
    pub(super) disk: Disk,
    pub(super) progress: &'a Progress,
    pub(super) block_bytes: u64,
    pub(super) outstanding: Arc<Outstanding>,
    /// What can be read once, if anything is.
    pub(super) feed: Option<Arc<Feed>>,
    /// Whether the sink is to be asked what it wants.
    pub(super) asks: bool,
    /// The copy's key.
    pub(super) key: Option<CopyKey>,
    pub(super) wanted: Arc<Wanted>,
    /// Whether this end opens the data connections.
    pub(super) dials: bool,
    pub(super) helm: Helm,
    pub(super) failures: Mutex<Vec<CopyFailure>>,
    pub(super) skipped: Mutex<Vec<CopyFailure>>,
    pub(super) actions: Mutex<Vec<Action>>,
    pub(super) digests: Mutex<Vec<DigestOf>>,
    pub(super) reading: StageClock,
    pub(super) sending: StageClock,
    pub(super) sealing: StageClock,
    pub(super) cpu: CpuMeter,
}

/// What a source knows of the sink before it begins.
#[derive(Debug, Clone, Default)]
pub(in crate::copy) struct Terms {
    /// The sink says first what it wants of each file.
    pub(in crate::copy) asks: bool,
    /// The copy's key, by which a target within the source is noticed.
    pub(in crate::copy) key: Option<CopyKey>,
}

/// Sends everything of `plan` and waits for the sink's word that it is in place.
pub(in crate::copy) fn run(
    link: Channels,
    plan: &SourcePlan,
    terms: Terms,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<SourceOutcome> {
    let start = Instant::now();
    let cancel = Arc::new(Cancel::default());
    link.arm(&cancel)?;
    let pools = pools(options);
    let outstanding = Arc::new(Outstanding::default());
    let wanted = Arc::new(Wanted::default());
    cancel.on_cancel({
        let (pools, outstanding, wanted) = (pools.clone(), outstanding.clone(), wanted.clone());
        move || {
            pools.close();
            outstanding.close();
            wanted.close();
        }
    });
    progress.begin();
    let shared = Shared {
        control: link.sender,
        cancel: cancel.clone(),
        watchdog: Watchdog::new(patience(options)),
        walking: AtomicBool::new(false),
        streamed: AtomicU64::new(0),
        running: AtomicU32::new(0),
        pools,
        disk: Disk::new(options.direct),
        progress,
        block_bytes: options.block_bytes.get(),
        outstanding,
        feed: plan.roots.iter().find_map(|root| match root {
            SourceRoot::Feed(feed) => Some(feed.clone()),
            _ => None,
        }),
        asks: terms.asks,
        key: terms.key,
        wanted,
        dials: link.streams.dials(),
        helm: Helm::default(),
        failures: Mutex::default(),
        skipped: Mutex::default(),
        actions: Mutex::default(),
        digests: Mutex::default(),
        reading: StageClock::default(),
        sending: StageClock::default(),
        sealing: StageClock::default(),
        cpu: CpuMeter::default(),
    };
    let mut receiver = link.receiver;
    let (report, tcp) = shared.carry(link.streams, plan, options, &mut receiver, stop);

    let elapsed = start.elapsed();
    let stages = StageTimes {
        read: shared.reading.share(elapsed),
        send: shared.sending.share(elapsed),
        seal: shared.sealing.share(elapsed),
        ..StageTimes::default()
    };
    let retransmits = tcp.iter().map(|info| info.retransmits).sum();
    let end = shared.cpu.report(elapsed, shared.disk.direct_bytes());
    let path = shared.helm.report(&tcp);
    let source = SourceReport { end, stages, retransmits, path };
    let failures = std::mem::take(&mut *lock(&shared.failures));
    let skipped = std::mem::take(&mut *lock(&shared.skipped));
    match report {
        Some(sink) => {
            // For a client that is the sink; one that has left knows enough.
            let _ = shared.control.send(&SourceMessage::Report(Box::new(source.clone())));
            let actions = std::mem::take(&mut *lock(&shared.actions));
            let digests = std::mem::take(&mut *lock(&shared.digests));
            Ok(SourceOutcome { sink, source, failures, skipped, actions, digests, tcp })
        }
        None => Err(cancel.take_reason()),
    }
}

impl Shared<'_> {
    /// Runs all stages to the end, and returns what the sink says and what the kernel knows of
    /// the connections.
    fn carry(
        &self,
        streams: Streams,
        plan: &SourcePlan,
        options: &CopyOptions,
        receiver: &mut ControlReceiver,
        stop: &AtomicBool,
    ) -> (Option<SinkReport>, Vec<TcpInfo>) {
        let tcp: Mutex<Vec<TcpInfo>> = Mutex::default();
        let over = AtomicBool::new(false);
        let (tcp_all, over_all, streams) = (&tcp, &over, &streams);
        let report = thread::scope(|scope| {
            let (jobs, job_queue) = bounded(JOB_QUEUE);
            let (filled, filled_queue) = bounded::<Filled>(FILLED_QUEUE);
            // Bounded by the files that may be outstanding.
            let (announced, to_queue) = unbounded();
            self.expect_stage();
            scope.spawn(move || {
                self.stage(ThreadRole::Walk, || announce(self, announced, plan, options));
            });
            let queued = jobs.clone();
            self.expect_stage();
            scope.spawn(move || {
                self.stage(ThreadRole::Walk, || queue_announced(self, &to_queue, &queued));
            });
            // Several would overtake each other.
            let readers = if options.tree.ordered { 1 } else { READERS };
            for _ in 0..readers {
                let (jobs, filled) = (job_queue.clone(), filled.clone());
                self.expect_stage();
                scope.spawn(move || {
                    self.stage(ThreadRole::Read, || read_blocks(self, &jobs, &filled));
                });
            }
            let send = move |stream: u32, socket: TcpStream| {
                // What is not granted costs speed at the most.
                let _ = socket_options(options).apply(&socket);
                self.helm.add(&socket, self.dials);
                let sender = streams.sender(stream, socket, options.protection);
                let blocks = filled_queue.clone();
                self.expect_stage();
                scope.spawn(move || {
                    let info =
                        self.stage(ThreadRole::Send, || send_blocks(self, stream, sender, &blocks));
                    lock(tcp_all).extend(info);
                });
            };
            let first = streams.first();
            let had = first.len() as u32;
            for (stream, socket) in first {
                send(stream, socket);
            }
            // The threads hold the ends they need; a stage ends when the one before it has.
            drop((job_queue, filled));
            let more = scope.spawn(move || {
                let over = || self.cancel.is_set() || over_all.load(Ordering::Relaxed);
                streams.more(had, &self.cancel, over, || self.helm.wanted(), send);
            });
            let pilot = Pilot::new(self, options);
            let ticker = scope.spawn(|| tick(self, pilot, over_all, stop));
            if !options.nice && !options.dedicated {
                let over = || self.cancel.is_set() || over_all.load(Ordering::Relaxed);
                scope.spawn(move || Pacemaker::new(self).run(over));
            }

            let report = self.cpu.run(ThreadRole::Control, || follow_sink(self, receiver, &jobs));
            over.store(true, Ordering::Relaxed);
            let report = report.map_err(|reason| self.cancel.fail(reason)).ok();
            drop(jobs);
            self.await_stages();
            ticker.thread().unpark();
            more.thread().unpark();
            report
        });
        (report, tcp.into_inner().unwrap_or_default())
    }
}

impl Shared<'_> {
    /// Counts a thread that is about to start. On a loaded host it may start after
    /// [`await_stages`](Self::await_stages), which would then not wait for it.
    fn expect_stage(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs the whole work of a thread that was [expected](Self::expect_stage).
    fn stage<T>(&self, role: ThreadRole, work: impl FnOnce() -> T) -> T {
        let done = self.cpu.stage(role, work);
        self.running.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Waits until every stage has ended, and ends those that wait for a sink that has said that it
    /// is done and takes no more.
    fn await_stages(&self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.running.load(Ordering::Relaxed) > 0 {
            if Instant::now() >= deadline {
                self.cancel.release();
                return;
            }
            thread::sleep(STAGES_CHECK);
        }
    }

    /// Tells the sink and the user that something cannot be sent.
    pub(super) fn failed(&self, id: Option<u64>, path: &Path, reason: &str) -> Result<()> {
        keep(&mut lock(&self.failures), path.display().to_string(), reason.to_owned());
        let path = wire_path(path);
        self.control.send(&SourceMessage::Failed { id, path, reason: reason.to_owned() })
    }
}
