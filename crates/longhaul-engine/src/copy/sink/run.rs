use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded, unbounded};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{Action, CopyFailure, DigestOf, ThreadRole};
use longhaul_core::wire::copy::{CopyKey, SinkReport, SourceReport};
use longhaul_sys::tcp::TcpInfo;

use super::digests::Digests;
use super::entry::HardLink;
use super::extras::Extras;
use super::finish::{CompleteFile, Finisher};
use super::follow::follow_source;
use super::ledger::{Ledger, SinkFile};
use super::placement::Destination;
use super::receive::receive_blocks;
use super::recorder::Recorder;
use super::report::{Never, conclude, keep_journal, report};
use super::reread::{REREADERS, Reread, read_again};
use super::store::{Store, Token};
use super::sweep::Sweep;
use super::write::{finish_files, write_blocks};
use crate::HASTE;
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::journal::{Journal, OpenError};
use crate::copy::link::{Channels, SILENCE_LIMIT, pools};
use crate::copy::metadata::Attributes;
use crate::copy::pool::{PoolBuffer, Pools};
use crate::copy::progress::Progress;
use crate::copy::streams::Streams;
use crate::copy::watchdog::{Watchdog, patience};
use crate::error::{EngineError, Result};
use crate::lock::lock;
use crate::session::ControlSender;

/// Writers, each with one write in flight: as many as the source has readers.
pub(crate) const WRITERS: usize = 4;
/// Blocks that wait for a writer; the pool bounds them further.
const WRITE_QUEUE: usize = 64;
/// Waves of whole files that wait to be synced; beyond, writers wait too.
const FINISH_QUEUE: usize = 256;
/// How long an earlier attempt may take to let go of the journal: its end of a broken connection
/// notices by the silence.
const JOURNAL_PATIENCE: Duration =
    SILENCE_LIMIT.saturating_add(Duration::from_millis(10_000 / HASTE));

/// A place that is ready to receive a copy.
pub(in crate::copy) struct Sink {
    store: Store,
    recorder: Recorder,
    asks: bool,
}

/// Another copy of the same things to the same place does not end.
#[derive(Debug, thiserror::Error)]
#[error("the same copy is under way already; wait for it or end it")]
pub(in crate::copy) struct Busy;

/// What the sink knows at the end.
pub(in crate::copy) struct SinkOutcome {
    pub(in crate::copy) report: SinkReport,
    pub(in crate::copy) failures: Vec<CopyFailure>,
    pub(in crate::copy) skipped: Vec<CopyFailure>,
    pub(in crate::copy) actions: Vec<Action>,
    pub(in crate::copy) digests: Vec<DigestOf>,
    pub(in crate::copy) tcp: Vec<TcpInfo>,
    /// The other end's own account, if it gave one.
    pub(in crate::copy) source: Option<SourceReport>,
    /// When all was in place.
    pub(in crate::copy) completed: Instant,
}

/// What came in one buffer, verified.
pub(super) struct Received {
    pub(super) what: Content,
    pub(super) buffer: PoolBuffer,
}

/// Whose bytes a buffer holds.
pub(super) enum Content {
    Block {
        file: Arc<SinkFile>,
        offset: u64,
        length: usize,
        /// The XXH3-128 of the bytes, if the journal is to have it.
        digest: Option<u128>,
    },
    /// Complete files and where each begins in the buffer.
    Pack(Vec<(Arc<SinkFile>, usize)>),
}

/// Where a file goes from its announcement if no more of it is to come.
pub(super) struct Onward {
    /// To be synced and renamed.
    pub(super) whole: Sender<Vec<CompleteFile>>,
    /// Parts of files that an earlier attempt has written.
    pub(super) reread: Sender<Reread>,
}

/// What the threads of a sink share.
pub(super) struct Shared<'a> {
    pub(super) control: ControlSender,
    pub(super) cancel: Arc<Cancel>,
    pub(super) watchdog: Watchdog,
    /// Bytes that have come over data connections.
    pub(super) arrived: Arc<AtomicU64>,
    pub(super) pools: Pools,
    pub(super) ledger: Arc<Ledger>,
    pub(super) store: &'a Store,
    pub(super) recorder: &'a Recorder,
    /// Whether the source waits to hear what is wanted.
    pub(super) asks: bool,
    pub(super) finisher: Finisher<'a>,
    pub(super) options: &'a CopyOptions,
    pub(super) progress: &'a Progress,
    /// Data connections that the source wants in all.
    pub(super) wanted: AtomicU32,
    pub(super) resent: AtomicU64,
    pub(super) dirs: Mutex<Vec<(PathBuf, Attributes)>>,
    /// Those of the target itself, where the contents of a directory come.
    pub(super) top: Mutex<Option<Attributes>>,
    pub(super) links: Mutex<Vec<HardLink>>,
    /// By number, the hash of the path of each entry, where hard links are kept; 0 for one that has
    /// no second name.
    pub(super) named: Mutex<Vec<u64>>,
    pub(super) extras: Extras,
    pub(super) digests: Digests,
    pub(super) unchanged: AtomicU64,
    pub(super) actions: Mutex<Vec<Action>>,
    pub(super) told_digests: Mutex<Vec<DigestOf>>,
    pub(super) failures: Mutex<Vec<CopyFailure>>,
    pub(super) skipped: Mutex<Vec<CopyFailure>>,
    pub(super) receiving: StageClock,
    pub(super) verifying: StageClock,
    pub(super) writing: StageClock,
    pub(super) syncing: StageClock,
    pub(super) cpu: CpuMeter,
    pub(super) start: Instant,
    pub(super) finished: AtomicBool,
    pub(super) report: Mutex<Option<(SinkReport, Instant)>>,
    pub(super) source: Mutex<Option<SourceReport>>,
}

impl Sink {
    /// Makes `destination` ready for the copy `key`, and finds what an earlier attempt has left. The
    /// wait for that attempt to end stops when `gives_up` returns true.
    pub(in crate::copy) fn open(
        destination: Destination,
        key: &CopyKey,
        options: &CopyOptions,
        gives_up: &dyn Fn() -> bool,
    ) -> std::result::Result<Self, Busy> {
        let base = destination.base();
        let again = |base: &OwnedFd| base.try_clone().ok();
        let journal = match base.as_ref().and_then(again) {
            None => None,
            // What changes nothing leaves no journal.
            Some(_) if options.tree.dry_run => None,
            Some(dir) => {
                let patience = JOURNAL_PATIENCE;
                match Journal::open(dir, key, options.durable, patience, gives_up) {
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
        let recorder = Recorder::new(journal, base, options.durable, options.block_bytes.get());
        let begun = matches!(&destination, Destination::Outlet(outlet) if outlet.begin(options));
        let asks = begun || recorder.has_past() || options.tree.asks_first();
        let store = Store::new(destination, options, token, sweep);
        Ok(Sink { store, recorder, asks })
    }

    /// Whether the source is to wait for [`SinkMessage::Wanted`].
    ///
    /// [`SinkMessage::Wanted`]: longhaul_core::wire::copy::SinkMessage::Wanted
    pub(in crate::copy) fn asks(&self) -> bool {
        self.asks
    }

    /// Receives everything that the source announces.
    pub(in crate::copy) fn run(
        self,
        link: Channels,
        options: &CopyOptions,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<SinkOutcome> {
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
        if let Some(outlet) = self.store.outlet().cloned() {
            cancel.on_cancel(move || outlet.close());
        }
        progress.begin();
        let shared = Shared {
            control: link.sender,
            cancel: cancel.clone(),
            watchdog: Watchdog::new(patience(options)),
            arrived: Arc::default(),
            pools,
            ledger,
            store: &self.store,
            recorder: &self.recorder,
            asks: self.asks,
            finisher: Finisher::new(&self.store, options),
            options,
            progress,
            wanted: AtomicU32::new(0),
            resent: AtomicU64::new(0),
            dirs: Mutex::default(),
            top: Mutex::default(),
            links: Mutex::default(),
            named: Mutex::default(),
            extras: Extras::new(options, &self.store.destination),
            digests: Digests::new(options),
            unchanged: AtomicU64::new(0),
            actions: Mutex::default(),
            told_digests: Mutex::default(),
            failures: Mutex::default(),
            skipped: Mutex::default(),
            receiving: StageClock::default(),
            verifying: StageClock::default(),
            writing: StageClock::default(),
            syncing: StageClock::default(),
            cpu: CpuMeter::default(),
            start: Instant::now(),
            finished: AtomicBool::new(false),
            report: Mutex::default(),
            source: Mutex::default(),
        };
        let mut control = link.receiver;
        let tcp = shared.carry(link.streams, stop, &mut control);
        let report = lock(&shared.report).take();
        if report.is_none() {
            // Whatever has come is not to come again.
            shared.checkpoint();
            self.recorder.end(false);
        }
        match report {
            Some((report, completed)) => Ok(SinkOutcome {
                report,
                failures: std::mem::take(&mut *lock(&shared.failures)),
                skipped: std::mem::take(&mut *lock(&shared.skipped)),
                actions: std::mem::take(&mut *lock(&shared.actions)),
                digests: std::mem::take(&mut *lock(&shared.told_digests)),
                tcp,
                source: lock(&shared.source).take(),
                completed,
            }),
            None => Err(cancel.take_reason()),
        }
    }
}

impl Shared<'_> {
    /// Runs all stages to the end, and returns what the kernel knows of the connections.
    fn carry(
        &self,
        streams: Streams,
        stop: &AtomicBool,
        control: &mut crate::session::ControlReceiver,
    ) -> Vec<TcpInfo> {
        let tcp: Mutex<Vec<TcpInfo>> = Mutex::default();
        let (tcp_all, streams) = (&tcp, &streams);
        thread::scope(|scope| {
            let (received, to_write) = bounded(WRITE_QUEUE);
            let (whole, to_finish) = bounded(FINISH_QUEUE);
            // As many as the journal of an earlier attempt names.
            let (reread, to_read) = unbounded();
            let receive = move |stream: u32, socket: TcpStream, received: Sender<Received>| {
                let mut receiver = streams.receiver(stream, socket, self.options.protection);
                receiver.count_into(self.arrived.clone());
                scope.spawn(move || {
                    let info = self.cpu.stage(ThreadRole::Receive, || {
                        receive_blocks(self, stream, receiver, &received)
                    });
                    lock(tcp_all).extend(info);
                });
            };
            let first = streams.first();
            let had = first.len() as u32;
            for (stream, socket) in first {
                receive(stream, socket, received.clone());
            }
            let more = received.clone();
            let dialing = scope.spawn(move || {
                let over = || self.cancel.is_set() || self.finished.load(Ordering::Relaxed);
                let wanted = || self.wanted.load(Ordering::Relaxed);
                streams.more(had, &self.cancel, over, wanted, |stream, socket| {
                    receive(stream, socket, more.clone());
                });
            });
            for _ in 0..WRITERS {
                let (blocks, whole) = (to_write.clone(), whole.clone());
                scope.spawn(move || {
                    self.cpu.stage(ThreadRole::Write, || write_blocks(self, &blocks, &whole));
                });
            }
            scope.spawn(move || {
                self.cpu.stage(ThreadRole::Finish, || finish_files(self, &to_finish));
            });
            let rereaders = if self.recorder.has_past() { REREADERS } else { 0 };
            for _ in 0..rereaders {
                let (claims, whole) = (to_read.clone(), whole.clone());
                scope.spawn(move || {
                    self.cpu.stage(ThreadRole::Read, || read_again(self, &claims, &whole));
                });
            }
            let (over, ended) = bounded::<Never>(0);
            let journal = ended.clone();
            scope.spawn(move || self.cpu.stage(ThreadRole::Control, || report(self, &ended, stop)));
            scope.spawn(move || {
                self.cpu.stage(ThreadRole::Control, || keep_journal(self, &journal));
            });
            scope.spawn(move || {
                self.cpu.stage(ThreadRole::Control, || conclude(self));
                drop(over);
            });
            drop((received, to_write, to_read));

            let onward = Onward { whole, reread };
            let followed =
                self.cpu.run(ThreadRole::Control, || follow_source(self, control, &onward));
            drop(onward);
            dialing.thread().unpark();
            match followed {
                // The source closes its side once it has read that all is in place.
                Err(_) if self.finished.load(Ordering::Relaxed) => self.cancel.release(),
                Err(reason) => self.give_up(reason),
                Ok(never) => match never {},
            }
        });
        tcp.into_inner().unwrap_or_default()
    }

    /// The source asks for so many connections in all.
    pub(super) fn streams_wanted(&self, wanted: u32) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }
}

/// The peer did what it must not.
pub(super) fn broken(peer: &str, what: &'static str) -> EngineError {
    EngineError::Protocol { peer: peer.to_owned(), what }
}
