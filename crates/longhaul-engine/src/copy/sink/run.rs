use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{CopyFailure, StageTimes};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{
    DONE_BATCH, Entry, EntryKind, SinkMessage, SinkReport, SourceMessage, SourceReport,
};
use longhaul_core::wire::{BlockHeader, WirePath};
use longhaul_sys::tcp::{TcpInfo, tcp_info};
use std::os::unix::ffi::OsStrExt;

use super::finish::{Finisher, SYNC_BATCH, Whole};
use super::ledger::{Ledger, SinkFile, Stage};
use super::placement::Destination;
use super::store::{Attributes, Store};
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::link::{Link, TICK, data_failed, keep, pool};
use crate::copy::pool::{Pool, PoolBuffer};
use crate::copy::progress::Progress;
use crate::copy::stream::BlockReceiver;
use crate::error::{EngineError, Result};
use crate::lock::lock;
use crate::session::{ControlReceiver, ControlSender};

/// Writers, each with one write in flight: as many as the source has readers.
const WRITERS: usize = 4;
/// Blocks that wait for a writer; the pool bounds them further.
const WRITE_QUEUE: usize = 64;
/// Blocks that may fail their check before the copy is given up: a path that corrupts more than
/// this is broken, and a peer that sends them on purpose gets no further.
const RESEND_LIMIT: u64 = 256;

/// What the sink knows at the end.
pub(in crate::copy) struct SinkOutcome {
    pub(in crate::copy) report: SinkReport,
    pub(in crate::copy) failures: Vec<CopyFailure>,
    pub(in crate::copy) skipped: Vec<CopyFailure>,
    pub(in crate::copy) tcp: Vec<TcpInfo>,
    /// The other end's own account, if it gave one.
    pub(in crate::copy) source: Option<SourceReport>,
    /// When all was in place.
    pub(in crate::copy) completed: Instant,
}

struct Received {
    file: Arc<SinkFile>,
    offset: u64,
    length: usize,
    buffer: PoolBuffer,
}

/// What the threads of a sink share.
struct Shared<'a> {
    control: ControlSender,
    cancel: Arc<Cancel>,
    pool: Pool,
    ledger: Arc<Ledger>,
    store: &'a Store,
    finisher: Finisher<'a>,
    options: &'a CopyOptions,
    progress: &'a Progress,
    resent: AtomicU64,
    dirs: Mutex<Vec<(PathBuf, Attributes)>>,
    failures: Mutex<Vec<CopyFailure>>,
    skipped: Mutex<Vec<CopyFailure>>,
    receiving: StageClock,
    writing: StageClock,
    syncing: StageClock,
    cpu: CpuMeter,
    start: Instant,
    finished: AtomicBool,
    report: Mutex<Option<(SinkReport, Instant)>>,
    source: Mutex<Option<SourceReport>>,
}

/// Receives everything that the source announces into `destination`.
pub(in crate::copy) fn run(
    link: Link,
    destination: Destination,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<SinkOutcome> {
    let cancel = Arc::new(Cancel::default());
    link.arm(&cancel)?;
    let pool = pool(options);
    let ledger = Arc::new(Ledger::default());
    cancel.on_cancel({
        let (pool, ledger) = (pool.clone(), ledger.clone());
        move || {
            pool.close();
            ledger.close();
        }
    });
    let mut token = [0; 4];
    token.copy_from_slice(&link.secret.session_id().0[..4]);
    let store = Store::new(destination, options.preserve, u32::from_be_bytes(token));
    let shared = Shared {
        control: link.sender,
        cancel: cancel.clone(),
        pool,
        ledger,
        store: &store,
        finisher: Finisher::new(&store, options.durable),
        options,
        progress,
        resent: AtomicU64::new(0),
        dirs: Mutex::default(),
        failures: Mutex::default(),
        skipped: Mutex::default(),
        receiving: StageClock::default(),
        writing: StageClock::default(),
        syncing: StageClock::default(),
        cpu: CpuMeter::default(),
        start: Instant::now(),
        finished: AtomicBool::new(false),
        report: Mutex::default(),
        source: Mutex::default(),
    };
    let shared = &shared;
    let mut control = link.receiver;
    let receivers: Vec<_> = link
        .sockets
        .into_iter()
        .enumerate()
        .map(|(stream, socket)| {
            let key = link.secret.stream_key(stream as u32);
            BlockReceiver::new(socket, &key, options.protection)
        })
        .collect();

    let tcp = thread::scope(|scope| {
        let (received, to_write) = bounded(WRITE_QUEUE);
        let (whole, to_finish) = bounded(SYNC_BATCH);
        let receiving: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(stream, receiver)| {
                let received = received.clone();
                scope.spawn(move || {
                    shared.cpu.run(|| receive_blocks(shared, stream, receiver, &received))
                })
            })
            .collect();
        for _ in 0..WRITERS {
            let (blocks, whole) = (to_write.clone(), whole.clone());
            scope.spawn(move || shared.cpu.run(|| write_blocks(shared, &blocks, &whole)));
        }
        scope.spawn(move || shared.cpu.run(|| finish_files(shared, &to_finish)));
        scope.spawn(move || shared.cpu.run(|| report_until_complete(shared, stop)));
        drop((received, to_write));

        let followed = shared.cpu.run(|| follow_source(shared, &mut control, &whole));
        drop(whole);
        match followed {
            // The source closes its side once it has read that all is in place.
            Err(_) if shared.finished.load(Ordering::Relaxed) => cancel.release(),
            Err(reason) => shared.give_up(reason),
            Ok(never) => match never {},
        }
        receiving.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });

    match lock(&shared.report).take() {
        Some((report, completed)) => Ok(SinkOutcome {
            report,
            failures: std::mem::take(&mut *lock(&shared.failures)),
            skipped: std::mem::take(&mut *lock(&shared.skipped)),
            tcp,
            source: lock(&shared.source).take(),
            completed,
        }),
        None => Err(cancel.take_reason()),
    }
}

/// Hears the source out; ends only with the channel.
fn follow_source(
    shared: &Shared<'_>,
    control: &mut ControlReceiver,
    whole: &Sender<Whole>,
) -> Result<std::convert::Infallible> {
    let peer = control.peer().to_owned();
    let mut announced = 0;
    loop {
        match control.receive()? {
            SourceMessage::Entries(entries) => {
                announced += entries.len() as u64;
                for entry in entries {
                    take_entry(shared, entry, whole, &peer)?;
                }
            }
            SourceMessage::Failed { id, path, reason } => {
                keep(&mut lock(&shared.failures), path.to_string(), reason);
                if id.is_some_and(|id| shared.ledger.failed(id).is_some()) {
                    shared.ledger.failure_told();
                }
            }
            SourceMessage::Skipped { path, reason } => {
                keep(&mut lock(&shared.skipped), path.to_string(), reason);
            }
            SourceMessage::End { entries } if entries == announced => {
                shared.progress.listed.store(true, Ordering::Relaxed);
                shared.ledger.end(entries);
            }
            SourceMessage::End { .. } => {
                return Err(broken(&peer, "it announced another number of entries"));
            }
            SourceMessage::Report(report) => *lock(&shared.source) = Some(report),
            SourceMessage::Alive => {}
            SourceMessage::Abort => return Err(EngineError::Interrupted),
        }
    }
}

fn take_entry(shared: &Shared<'_>, entry: Entry, whole: &Sender<Whole>, peer: &str) -> Result<()> {
    if !entry.path.is_plain_relative() {
        return Err(broken(peer, "it names a path that leads elsewhere"));
    }
    let Entry { id, path, kind, mode, mtime_seconds, mtime_ns } = entry;
    let path = shared.store.path(path.as_bytes());
    let attributes = Attributes { mode, mtime_seconds, mtime_ns };
    let EntryKind::File { size_bytes } = kind else {
        match shared.store.make_dir(&path) {
            Ok(()) => {
                shared.finisher.made_dir(&path);
                lock(&shared.dirs).push((path, attributes));
            }
            Err(error) => shared.tell_failed(Some(id), &path, "create", &error)?,
        }
        return numbered(shared.ledger.announce(id, None), peer);
    };
    let size = size_bytes.get();
    shared.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    shared.progress.total_files.fetch_add(1, Ordering::Relaxed);
    let block_bytes = shared.options.block_bytes.get();
    let file = Arc::new(SinkFile::new(id, path, size, attributes, block_bytes));
    numbered(shared.ledger.announce(id, Some(file.clone())), peer)?;
    if size == 0 {
        match shared.store.create(id, &file.path, 0) {
            Ok(partial) => {
                let partial = partial.map(Arc::new);
                // The finisher leaves only when the copy is over.
                let _ = whole.send(Whole { file, partial });
            }
            Err(error) => shared.fail(&file, "create", &error),
        }
    }
    Ok(())
}

/// Receives and verifies the blocks of one connection, and returns what the kernel knows of it.
fn receive_blocks(
    shared: &Shared<'_>,
    stream: usize,
    mut receiver: BlockReceiver,
    received: &Sender<Received>,
) -> Option<TcpInfo> {
    shared.receiving.join();
    loop {
        let header = match shared.receiving.time(|| receiver.header()) {
            Ok(BlockHeader::End) => break,
            Ok(BlockHeader::Block { file, offset, length }) => (file, offset, length as usize),
            // The source is gone, and nothing is missed.
            Err(_) if shared.ledger.is_complete() => break,
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    shared.give_up(EngineError::Data { stream: stream as u32, source: error });
                } else {
                    data_failed(&shared.cancel, stream, error);
                }
                return None;
            }
        };
        let (id, offset, length) = header;
        let Ok(file) = shared.ledger.file(id) else { return None };
        let mut buffer = shared.pool.take()?;
        if !fits(file.as_deref(), offset, length, shared.options.block_bytes.get()) {
            shared.give_up(broken(shared.control.peer(), "it sent a block that does not fit"));
            return None;
        }
        let intact = match shared.receiving.time(|| receiver.payload(&mut buffer, length)) {
            Ok(intact) => intact,
            Err(error) => {
                data_failed(&shared.cancel, stream, error);
                return None;
            }
        };
        // A block of a file that has failed meanwhile is dropped.
        let Some(file) = file else { continue };
        if intact {
            if received.send(Received { file, offset, length, buffer }).is_err() {
                return None;
            }
        } else if shared.resent.fetch_add(1, Ordering::Relaxed) < RESEND_LIMIT {
            shared.cancel.check(shared.control.send(&SinkMessage::Resend { id, offset }));
        } else {
            shared.give_up(broken(shared.control.peer(), "too many blocks arrive corrupted"));
            return None;
        }
    }
    tcp_info(receiver.socket()).ok()
}

/// Whether a block is one of the file's, neither shifted nor short. A file that has failed takes
/// any.
fn fits(file: Option<&SinkFile>, offset: u64, length: usize, block_bytes: u64) -> bool {
    let length = length as u64;
    let Some(file) = file else { return length <= block_bytes };
    offset < file.size
        && offset.is_multiple_of(block_bytes)
        && length == block_bytes.min(file.size - offset)
}

fn write_blocks(shared: &Shared<'_>, blocks: &Receiver<Received>, whole: &Sender<Whole>) {
    shared.writing.join();
    for Received { file, offset, length, mut buffer } in blocks {
        let written = shared.writing.time(|| {
            let partial = {
                let mut state = file.lock();
                match &state.partial {
                    Stage::Gone => return Ok(false),
                    Stage::Open(partial) => partial.clone(),
                    Stage::Waiting => {
                        let made = shared
                            .store
                            .create(file.id, &file.path, file.size)
                            .map_err(|error| ("create", error))?
                            .map(Arc::new);
                        state.partial = Stage::Open(made.clone());
                        made
                    }
                }
            };
            match partial {
                Some(partial) => partial.write(offset, length, &mut buffer).map(|()| true),
                None => Ok(true),
            }
            .map_err(|error| ("write", error))
        });
        drop(buffer);
        match written {
            Ok(false) => {}
            Ok(true) => {
                shared.ledger.add_written(length as u64);
                // The closure above has let go of the file, so the last one here holds it alone.
                let mut state = file.lock();
                let last = state.note_written(offset / shared.options.block_bytes.get());
                if last
                    && let Stage::Open(partial) = std::mem::replace(&mut state.partial, Stage::Gone)
                {
                    drop(state);
                    if whole.send(Whole { file, partial }).is_err() {
                        return;
                    }
                }
            }
            Err((operation, error)) => shared.fail(&file, operation, &error),
        }
    }
}

fn finish_files(shared: &Shared<'_>, whole: &Receiver<Whole>) {
    shared.syncing.join();
    while let Ok(first) = whole.recv() {
        let mut batch = vec![first];
        batch.extend(whole.try_iter().take(SYNC_BATCH - 1));
        shared.syncing.time(|| {
            shared.finisher.finish(batch, |file, outcome| match outcome {
                Ok(()) => shared.ledger.done(file),
                Err(error) => shared.fail(file, "finish", &error),
            });
        });
    }
}

/// Tells the source how far the sink is, until all is in place, and then so.
fn report_until_complete(shared: &Shared<'_>, stop: &AtomicBool) {
    loop {
        let standing = shared.ledger.wait(TICK, DONE_BATCH);
        if shared.cancel.is_set() {
            return;
        }
        if stop.load(Ordering::Relaxed) {
            shared.give_up(EngineError::Interrupted);
            return;
        }
        let written = shared.ledger.written_bytes();
        shared.progress.moved_bytes.store(written, Ordering::Relaxed);
        shared.progress.files.store(standing.files, Ordering::Relaxed);
        let message =
            SinkMessage::Progress { written_bytes: Bytes::new(written), done: standing.done };
        let told = shared.control.send(&message).and_then(|()| {
            if standing.complete {
                let report = shared.complete(standing.files, standing.bytes)?;
                shared.control.send(&SinkMessage::Finished(report.clone()))?;
                shared.finished.store(true, Ordering::Relaxed);
                *lock(&shared.report) = Some((report, Instant::now()));
            }
            Ok(())
        });
        if let Err(reason) = told {
            shared.cancel.fail(reason);
            return;
        }
        if standing.complete {
            return;
        }
    }
}

impl Shared<'_> {
    /// Makes names durable, dresses directories, and sums up.
    fn complete(&self, files: u64, bytes: u64) -> Result<SinkReport> {
        let mut durable = self.options.durable && self.store.keeps();
        self.syncing.time(|| -> Result<()> {
            // Deepest first: a directory's time changes when something is made in it.
            for (path, attributes) in lock(&self.dirs).drain(..).rev() {
                if let Err(error) = self.store.finish_dir(&path, &attributes) {
                    self.tell_failed(None, &path, "finish", &error)?;
                }
            }
            if let Err((path, error)) = self.finisher.sync_names() {
                durable = false;
                self.tell_failed(None, &path, "sync", &error)?;
            }
            Ok(())
        })?;
        let elapsed = self.start.elapsed();
        Ok(SinkReport {
            files,
            bytes: Bytes::new(bytes),
            resent_blocks: self.resent.load(Ordering::Relaxed),
            durable,
            end: self.cpu.report(elapsed),
            stages: StageTimes {
                receive: self.receiving.share(elapsed),
                write: self.writing.share(elapsed),
                sync: self.syncing.share(elapsed),
                ..StageTimes::default()
            },
        })
    }

    /// Settles a file as failed, removes what came of it, and tells the source.
    fn fail(&self, file: &SinkFile, operation: &str, error: &io::Error) {
        if self.ledger.failed(file.id).is_some() {
            let told = self.tell_failed(Some(file.id), &file.path, operation, error);
            self.cancel.check(told);
            self.ledger.failure_told();
        }
    }

    fn tell_failed(
        &self,
        id: Option<u64>,
        path: &Path,
        operation: &str,
        error: &io::Error,
    ) -> Result<()> {
        let path = self.store.display(path);
        let path = WirePath::new(path.as_os_str().as_bytes()).ok_or(EngineError::Interrupted)?;
        let reason = format!("cannot {operation} it: {error}");
        keep(&mut lock(&self.failures), path.to_string(), reason.clone());
        self.control.send(&SinkMessage::Failed { id, path, reason })
    }

    /// Gives the copy up and tells the source, which may be gone, why.
    fn give_up(&self, reason: EngineError) {
        let words = reason.to_string();
        self.cancel.fail_saying(reason, || {
            let _ = self.control.send(&SinkMessage::Abort { reason: words });
        });
    }
}

fn numbered(good: bool, peer: &str) -> Result<()> {
    if good { Ok(()) } else { Err(broken(peer, "its entries are numbered wrongly")) }
}

fn broken(peer: &str, what: &'static str) -> EngineError {
    EngineError::Protocol { peer: peer.to_owned(), what }
}
