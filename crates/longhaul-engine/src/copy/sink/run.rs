//! Runs the stages of a sink.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::ThreadRole;
use longhaul_core::wire::copy::{CopyKey, SinkReport, SourceReport};
use longhaul_sys::tcp::TcpInfo;

use super::entry_file::NextStages;
use super::finish::{CompleteFile, Finisher};
use super::follow::follow_source;
use super::ledger::Ledger;
use super::placement::Destination;
use super::receive::receive_blocks;
use super::recorder::JournalRecorder;
use super::report::{Never, conclude, keep_journal, report};
use super::reread::{REREADERS, Reread, read_again};
use super::shared::{Received, ReceivedBuffer, SinkContext, SinkMeters, SinkRecords, SinkShared};
use super::store::{Store, Token};
use super::sweep::Sweep;
use super::write::{finish_files, write_blocks};
use crate::copy::cancel::Cancel;
use crate::copy::journal::{CopyTerms, HostFiles, Journal, OpenError, Setting};
use crate::copy::pool::pools;
use crate::copy::progress::CopyRun;
use crate::copy::reports::FileReports;
use crate::copy::requested::Requested;
use crate::copy::streams::{Channels, Growth, Streams};
use crate::copy::watchdog::{SILENCE_LIMIT, Watchdog, patience};
use crate::error::{EngineError, Result};
use crate::session::ControlReceiver;
use crate::{FUZZ_HASTE, lock};

/// The number of writer threads, equal to the number of readers of the source. Each has one write
/// in flight.
pub(crate) const WRITERS: usize = 4;
/// The maximum number of blocks that wait for a writer. The buffers of the pool can be a lower
/// limit.
const WRITE_QUEUE: usize = 64;
/// The maximum number of batches of complete files that wait for a sync. If the queue is full, the
/// writers wait.
const FINISH_QUEUE: usize = 256;
/// The longest wait for an earlier attempt to release the journal. It exceeds [`SILENCE_LIMIT`],
/// because a sink with a broken connection ends only after that time.
const JOURNAL_PATIENCE: Duration =
    SILENCE_LIMIT.saturating_add(Duration::from_millis(10_000 / FUZZ_HASTE));

/// The longest time for receiving the data in flight from a source that has left.
const DRAIN_LIMIT: Duration = Duration::from_millis(1_000 / FUZZ_HASTE);
/// The time without data after which the sink assumes that no data are in flight.
const DRAIN_CHECK: Duration = Duration::from_millis(100 / FUZZ_HASTE);

/// A target that is ready to receive a copy.
pub(in crate::copy) struct Sink {
    store: Store,
    recorder: JournalRecorder,
    wanted_first: bool,
    requested: Option<Requested>,
}

/// The error if the same copy is running already.
#[derive(Debug, thiserror::Error)]
#[error("the same copy is already running; wait for it or stop it")]
pub(in crate::copy) struct Busy;

/// The outcome of a copy at the sink.
pub(in crate::copy) struct SinkOutcome {
    pub(in crate::copy) report: SinkReport,
    pub(in crate::copy) reports: FileReports,
    pub(in crate::copy) tcp: Vec<TcpInfo>,
    /// The report of the source, if it sent one.
    pub(in crate::copy) source: Option<SourceReport>,
    /// The time at which the sink reported the end of the copy.
    pub(in crate::copy) completed: Instant,
}

impl Sink {
    /// Prepares `destination` for the copy `key`, and finds the journal of an earlier attempt.
    pub(in crate::copy) fn open(
        destination: Destination,
        key: &CopyKey,
        options: &CopyOptions,
        is_over: &dyn Fn() -> bool,
    ) -> std::result::Result<Self, Busy> {
        let base = destination.base();
        let again = |base: &OwnedFd| base.try_clone().ok();
        let journal = match base.as_ref().and_then(again) {
            None => None,
            // A dry run leaves no journal.
            Some(_) if options.tree.dry_run => None,
            Some(dir) => {
                let patience = JOURNAL_PATIENCE;
                let terms = CopyTerms::of(options);
                let name = destination.given_name();
                let setting = Setting { durable: options.durable, terms, name };
                match Journal::open(dir, key, setting, patience, is_over) {
                    Ok(opened) => Some(opened),
                    Err(OpenError::Unavailable) => None,
                    Err(OpenError::Busy) => return Err(Busy),
                }
            }
        };
        let token = match &journal {
            Some(_) => Token::of_copy(key),
            None => Token::random(),
        };
        let found = journal.as_ref().filter(|(journal, _)| journal.is_found());
        let sweep = found.map(|(_, past)| Sweep::new(token.number(), past));
        let recorder = JournalRecorder::new(journal, base, options);
        let begun = matches!(&destination, Destination::Outlet(outlet) if outlet.begin(options));
        let wanted_first = begun || recorder.has_past() || options.tree.asks_first();
        let store = Store::new(destination, options, token, sweep);
        Ok(Sink { store, recorder, wanted_first, requested: None })
    }

    /// Refuses a source that announces other names than those that this client has `requested`.
    pub(in crate::copy) fn expecting(self, requested: Option<Requested>) -> Self {
        Sink { requested, ..self }
    }

    /// Returns whether the source has to wait for [`SinkMessage::Wanted`].
    ///
    /// [`SinkMessage::Wanted`]: longhaul_core::wire::copy::SinkMessage::Wanted
    pub(in crate::copy) fn wanted_first(&self) -> bool {
        self.wanted_first
    }

    /// Receives everything that the source announces.
    pub(in crate::copy) fn run(self, link: Channels, run: CopyRun<'_>) -> Result<SinkOutcome> {
        let CopyRun { options, progress, stop } = run;
        let cancel = Arc::new(Cancel::default());
        link.arm(&cancel)?;
        let pools = pools(options);
        let ledger = Arc::new(Ledger::default());
        cancel.on_cancel({
            let (pools, ledger) = (pools.clone(), ledger.clone());
            move || {
                pools.close();
                ledger.close();
            }
        });
        let over = self.store.over.clone();
        cancel.on_cancel(move || over.store(true, Ordering::Relaxed));
        if let Some(outlet) = self.store.outlet().cloned() {
            cancel.on_cancel(move || outlet.close());
        }
        progress.begin();
        let at_server = !link.streams.opens_connections();
        let reports = if at_server { FileReports::of_server() } else { FileReports::default() };
        let context = SinkContext {
            control: link.sender,
            cancel: cancel.clone(),
            watchdog: Watchdog::new(patience(options)),
            arrived: Arc::default(),
            pools,
            options,
            progress,
            wanted_first: self.wanted_first,
            requested: self.requested.as_ref(),
            host_files: HostFiles::of_boot(),
        };
        let shared = SinkShared {
            context,
            records: SinkRecords::new(options, ledger, &self.store.destination, reports),
            meters: SinkMeters::new(),
            store: &self.store,
            recorder: &self.recorder,
            finisher: Finisher::new(&self.store, options),
        };
        let mut control = link.receiver;
        let tcp = shared.carry(link.streams, stop, &mut control);
        let report = lock(&shared.records.report).take();
        if report.is_none() {
            // Keeps the received bytes for the next attempt.
            shared.checkpoint();
            self.recorder.end(false);
        }
        match report {
            Some((report, completed)) => Ok(SinkOutcome {
                report,
                reports: std::mem::take(&mut *lock(&shared.records.reports)),
                tcp,
                source: lock(&shared.records.source).take(),
                completed,
            }),
            None => Err(cancel.take_reason()),
        }
    }
}

/// The data connections of a sink.
#[derive(Clone, Copy)]
struct SinkConnections<'a> {
    streams: &'a Streams,
    /// The TCP state of the connections that have ended.
    tcp: &'a Mutex<Vec<TcpInfo>>,
}

impl SinkShared<'_> {
    /// Runs all stages to the end, and returns the TCP state of the connections.
    fn carry(
        &self,
        streams: Streams,
        stop: &AtomicBool,
        control: &mut ControlReceiver,
    ) -> Vec<TcpInfo> {
        let tcp: Mutex<Vec<TcpInfo>> = Mutex::default();
        let connections = SinkConnections { streams: &streams, tcp: &tcp };
        thread::scope(|scope| {
            let (blocks, to_write) = bounded(WRITE_QUEUE);
            let (complete, to_finish) = bounded(FINISH_QUEUE);
            // The journal of the earlier attempt bounds the number of these messages.
            let (reread, to_read) = unbounded();
            let received = Received { blocks, complete: complete.clone() };
            let dialing = self.start_receivers(scope, connections, received);
            self.start_writers(scope, &to_write, &complete);
            self.start_rereaders(scope, &to_read, &complete);
            scope.spawn(move || {
                self.meters.cpu.stage(ThreadRole::Finish, || finish_files(self, &to_finish));
            });
            self.start_control(scope, stop);
            // The threads hold the ends they need; a stage ends when the one before it has.
            drop((to_write, to_read));

            let onward = NextStages { complete, reread };
            let followed =
                self.meters.cpu.run(ThreadRole::Control, || follow_source(self, control, &onward));
            drop(onward);
            dialing.thread().unpark();
            match followed {
                Err(reason) => self.source_left(reason),
                Ok(never) => match never {},
            }
        });
        tcp.into_inner().unwrap_or_default()
    }

    /// Starts a thread per connection that receives blocks, and a thread that opens or accepts
    /// further connections, which it returns.
    fn start_receivers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        connections: SinkConnections<'scope>,
        onward: Received,
    ) -> ScopedJoinHandle<'scope, ()> {
        let SinkConnections { streams, tcp } = connections;
        let receive = move |stream: u32, socket: TcpStream, onward: Received| {
            let mut receiver = streams.receiver(stream, socket, self.context.options.protection);
            receiver.count_into(self.context.arrived.clone());
            scope.spawn(move || {
                let info = self
                    .meters
                    .cpu
                    .stage(ThreadRole::Receive, || receive_blocks(self, stream, receiver, &onward));
                lock(tcp).extend(info);
            });
        };
        let first = streams.first();
        let opened = first.len() as u32;
        for (stream, socket) in first {
            receive(stream, socket, onward.clone());
        }
        scope.spawn(move || {
            let over =
                || self.context.cancel.is_set() || self.records.finished.load(Ordering::Relaxed);
            let wanted = || self.records.wanted.load(Ordering::Relaxed);
            let growth = Growth { opened, cancel: &self.context.cancel, over, wanted };
            streams.more(growth, |stream, socket| receive(stream, socket, onward.clone()));
        })
    }

    /// Starts the threads that write blocks.
    fn start_writers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        blocks: &Receiver<ReceivedBuffer>,
        complete: &Sender<Vec<CompleteFile>>,
    ) {
        for _ in 0..WRITERS {
            let (blocks, complete) = (blocks.clone(), complete.clone());
            scope.spawn(move || {
                self.meters.cpu.stage(ThreadRole::Write, || write_blocks(self, &blocks, &complete));
            });
        }
    }

    /// Starts the threads that verify the data of an earlier attempt, if there was one.
    fn start_rereaders<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        claims: &Receiver<Reread>,
        complete: &Sender<Vec<CompleteFile>>,
    ) {
        let rereaders = if self.recorder.has_past() { REREADERS } else { 0 };
        for _ in 0..rereaders {
            let (claims, complete) = (claims.clone(), complete.clone());
            scope.spawn(move || {
                self.meters.cpu.stage(ThreadRole::Read, || read_again(self, &claims, &complete));
            });
        }
    }

    /// Starts the threads that report to the source, keep the journal and end the copy.
    fn start_control<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stop: &'scope AtomicBool,
    ) {
        let (over, ended) = bounded::<Never>(0);
        let journal = ended.clone();
        scope.spawn(move || {
            self.meters.cpu.stage(ThreadRole::Control, || report(self, &ended, stop));
        });
        scope.spawn(move || {
            self.meters.cpu.stage(ThreadRole::Control, || keep_journal(self, &journal));
        });
        scope.spawn(move || {
            self.meters.cpu.stage(ThreadRole::Control, || conclude(self));
            drop(over);
        });
    }

    /// Ends the copy after the control channel has ended for `reason`.
    fn source_left(&self, reason: EngineError) {
        if self.records.finished.load(Ordering::Relaxed) {
            // The copy is complete, and the source has closed the channel.
            self.context.cancel.release();
            return;
        }
        if !reason.is_violation() {
            self.drain();
        }
        if self.records.interrupted.load(Ordering::Relaxed) {
            self.context.cancel.fail(EngineError::Interrupted);
        } else {
            self.abort(reason);
        }
    }

    /// Receives the data that were in flight when the source disconnected, so that a later attempt
    /// can reuse them.
    fn drain(&self) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        let arrived = || self.context.arrived.sum();
        let mut before = arrived();
        while Instant::now() < deadline && !self.context.cancel.is_set() {
            thread::sleep(DRAIN_CHECK);
            let now = arrived();
            if now == before {
                return;
            }
            before = now;
        }
    }
}
