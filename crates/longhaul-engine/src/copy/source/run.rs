use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{CopyFailure, StageTimes};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{
    Entry, EntryKind, SinkMessage, SinkReport, SourceMessage, SourceReport,
};
use longhaul_core::wire::{WirePath, copy::Top};
use longhaul_sys::tcp::{TcpInfo, tcp_info};

use super::file::SourceFile;
use super::walk::{Walk, WalkSink};
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::link::{Link, TICK, data_failed, keep, pool, socket_options};
use crate::copy::pool::{Pool, PoolBuffer};
use crate::copy::progress::Progress;
use crate::copy::stream::BlockSender;
use crate::copy::tree::Tree;
use crate::error::{EngineError, Result};
use crate::lock::lock;

/// Blocks that the walk may queue ahead of the readers; bounds the source's memory in a tree of
/// many small files.
const JOB_QUEUE: usize = 1024;
/// Readers, each with one read in flight: enough depth for a striped array of fast disks.
const READERS: usize = 4;
/// How often the source shows that it lives.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

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
    pub(in crate::copy) tcp: Vec<TcpInfo>,
}

struct Job {
    file: Arc<SourceFile>,
    offset: u64,
}

struct Filled {
    file: Arc<SourceFile>,
    offset: u64,
    length: usize,
    buffer: PoolBuffer,
}

/// What the threads of a source share.
struct Shared<'a> {
    control: crate::session::ControlSender,
    cancel: Arc<Cancel>,
    pool: Pool,
    progress: &'a Progress,
    block_bytes: u64,
    /// Files that the sink has not put in place yet: a block of theirs may be asked for again.
    files: Mutex<HashMap<u64, Arc<SourceFile>>>,
    failures: Mutex<Vec<CopyFailure>>,
    skipped: Mutex<Vec<CopyFailure>>,
    reading: StageClock,
    sending: StageClock,
    cpu: CpuMeter,
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
    cancel.on_cancel({
        let pool = pool.clone();
        move || pool.close()
    });
    let shared = Shared {
        control: link.sender,
        cancel: cancel.clone(),
        pool,
        progress,
        block_bytes: options.block_bytes.get(),
        files: Mutex::default(),
        failures: Mutex::default(),
        skipped: Mutex::default(),
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
        let walker = Announcer { shared, jobs: jobs.clone() };
        scope.spawn(move || shared.cpu.run(|| walk(walker, plan, options)));
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

        let report = shared.cpu.run(|| follow_sink(shared, &mut receiver, &jobs));
        let report = report.inspect_err(|_| shared.pool.close());
        let report = match report {
            Ok(report) => Some(report),
            Err(reason) => {
                cancel.fail(reason);
                None
            }
        };
        drop(jobs);
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
            Ok(SourceOutcome { sink, source, failures, skipped, tcp })
        }
        None => Err(cancel.take_reason()),
    }
}

/// Passes what the walk finds to the sink and to the readers.
struct Announcer<'a> {
    shared: &'a Shared<'a>,
    jobs: Sender<Job>,
}

impl WalkSink for Announcer<'_> {
    fn announce(&mut self, entries: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()> {
        let progress = self.shared.progress;
        for entry in &entries {
            if let EntryKind::File { size_bytes } = entry.kind {
                progress.total_bytes.fetch_add(size_bytes.get(), Ordering::Relaxed);
                progress.total_files.fetch_add(1, Ordering::Relaxed);
            }
        }
        lock(&self.shared.files).extend(files.iter().map(|file| (file.id, file.clone())));
        self.shared.control.send(&SourceMessage::Entries(entries))?;
        for file in files {
            for offset in (0..file.size).step_by(self.shared.block_bytes as usize) {
                // The readers leave only when the copy is over.
                self.jobs
                    .send(Job { file: file.clone(), offset })
                    .map_err(|_| EngineError::Interrupted)?;
            }
        }
        Ok(())
    }

    fn failed(&mut self, path: &Path, reason: &str) -> Result<()> {
        self.shared.failed(None, path, reason)
    }

    fn skipped(&mut self, path: &Path, reason: &str) -> Result<()> {
        keep(&mut lock(&self.shared.skipped), path.display().to_string(), reason.to_owned());
        let path = wire_path(path);
        self.shared.control.send(&SourceMessage::Skipped { path, reason: reason.to_owned() })
    }
}

impl Shared<'_> {
    fn failed(&self, id: Option<u64>, path: &Path, reason: &str) -> Result<()> {
        keep(&mut lock(&self.failures), path.display().to_string(), reason.to_owned());
        let path = wire_path(path);
        self.control.send(&SourceMessage::Failed { id, path, reason: reason.to_owned() })
    }
}

fn walk(mut announcer: Announcer<'_>, plan: &SourcePlan, options: &CopyOptions) {
    let shared = announcer.shared;
    let walk = Walk::new(&plan.tree, options.recursive, shared.block_bytes, &mut announcer);
    let outcome = walk.run(&plan.roots).and_then(|entries| {
        shared.progress.listed.store(true, Ordering::Relaxed);
        shared.control.send(&SourceMessage::End { entries })
    });
    shared.cancel.check(outcome);
}

fn read_blocks(shared: &Shared<'_>, jobs: &Receiver<Job>, filled: &Sender<Filled>) {
    shared.reading.join();
    for Job { file, offset } in jobs {
        if file.has_failed() {
            continue;
        }
        let Some(mut buffer) = shared.pool.take() else { return };
        let length = shared.block_bytes.min(file.size - offset) as usize;
        match shared.reading.time(|| file.read(offset, length, &mut buffer)) {
            Ok(()) => {
                if filled.send(Filled { file, offset, length, buffer }).is_err() {
                    return;
                }
            }
            Err(error) if file.fail() => {
                let told = shared.failed(Some(file.id), &file.path, &error.to_string());
                shared.cancel.check(told);
            }
            Err(_) => {}
        }
    }
}

/// Sends blocks until there are no more, and returns what the kernel knows of the connection.
fn send_blocks(
    shared: &Shared<'_>,
    stream: usize,
    mut sender: BlockSender,
    blocks: &Receiver<Filled>,
) -> Option<TcpInfo> {
    shared.sending.join();
    for mut block in blocks {
        if block.file.has_failed() {
            continue;
        }
        let payload = &mut block.buffer[..block.length];
        let sent = shared.sending.time(|| sender.send(block.file.id, block.offset, payload));
        if let Err(error) = sent {
            data_failed(&shared.cancel, stream, error);
            return None;
        }
    }
    if !shared.cancel.is_set() {
        // The sink may be gone already: it has said that all is in place.
        let _ = sender.finish();
    }
    tcp_info(sender.socket()).ok()
}

/// Hears the sink out until it has finished.
fn follow_sink(
    shared: &Shared<'_>,
    receiver: &mut crate::session::ControlReceiver,
    jobs: &Sender<Job>,
) -> Result<SinkReport> {
    loop {
        match receiver.receive()? {
            SinkMessage::Progress { written_bytes, done } => {
                shared.progress.moved_bytes.store(written_bytes.get(), Ordering::Relaxed);
                let mut files = lock(&shared.files);
                let done = done.iter().filter(|id| files.remove(id).is_some()).count();
                shared.progress.files.fetch_add(done as u64, Ordering::Relaxed);
            }
            SinkMessage::Resend { id, offset } => {
                let file = lock(&shared.files).get(&id).cloned();
                let Some(file) = file
                    .filter(|file| offset < file.size && offset.is_multiple_of(shared.block_bytes))
                else {
                    return Err(EngineError::Protocol {
                        peer: receiver.peer().to_owned(),
                        what: "it asks for a block that does not exist",
                    });
                };
                file.reread();
                let _ = jobs.send(Job { file, offset });
            }
            SinkMessage::Failed { id, path, reason } => {
                if let Some(file) = id.and_then(|id| lock(&shared.files).remove(&id)) {
                    file.fail();
                }
                keep(&mut lock(&shared.failures), path.to_string(), reason);
            }
            SinkMessage::Abort { reason } => {
                let peer = receiver.peer().to_owned();
                return Err(EngineError::Failed { peer, reason });
            }
            SinkMessage::Finished(report) => {
                shared.progress.moved_bytes.store(report.bytes.get(), Ordering::Relaxed);
                shared.progress.files.store(report.files, Ordering::Relaxed);
                return Ok(report);
            }
        }
    }
}

/// Shows the sink that this end lives, and ends the copy when it is told to.
fn tick(shared: &Shared<'_>, over: &AtomicBool, stop: &AtomicBool) {
    let mut shown = Instant::now();
    while !over.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            shared.cancel.fail_saying(EngineError::Interrupted, || {
                let _ = shared.control.send(&SourceMessage::Abort);
            });
            return;
        }
        if shown.elapsed() >= ALIVE_INTERVAL {
            shown = Instant::now();
            let told = shared.control.send(&SourceMessage::Alive);
            if !over.load(Ordering::Relaxed) {
                shared.cancel.check(told);
            }
        }
        thread::park_timeout(TICK);
    }
}

fn wire_path(path: &Path) -> WirePath {
    // A path that the operating system took holds no NUL; one from a peer was checked.
    WirePath::new(path.as_os_str().as_bytes())
        .or_else(|| WirePath::new("?"))
        .expect("a question mark is a path")
}
