use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crossbeam_channel::bounded;
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{Action, CopyFailure, DigestOf};
use longhaul_core::wire::copy::{SinkReport, SourceReport};
use longhaul_sys::tcp::TcpInfo;

use super::digests::Digests;
use super::entry::HardLink;
use super::extras::Extras;
use super::finish::Finisher;
use super::follow::follow_source;
use super::ledger::{Ledger, SinkFile};
use super::placement::Destination;
use super::receive::receive_blocks;
use super::report::report_until_complete;
use super::store::Store;
use super::write::{finish_files, write_blocks};
use crate::copy::cancel::Cancel;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::link::{Link, pool};
use crate::copy::metadata::Attributes;
use crate::copy::pool::{Pool, PoolBuffer};
use crate::copy::progress::Progress;
use crate::copy::stream::BlockReceiver;
use crate::error::{EngineError, Result};
use crate::lock::lock;
use crate::session::ControlSender;

/// Writers, each with one write in flight: as many as the source has readers.
const WRITERS: usize = 4;
/// Blocks that wait for a writer; the pool bounds them further.
const WRITE_QUEUE: usize = 64;
/// Waves of whole files that wait to be synced; beyond, writers wait too.
const FINISH_QUEUE: usize = 256;

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
    },
    /// Whole files and where each begins in the buffer.
    Pack(Vec<(Arc<SinkFile>, usize)>),
}

/// What the threads of a sink share.
pub(super) struct Shared<'a> {
    pub(super) control: ControlSender,
    pub(super) cancel: Arc<Cancel>,
    pub(super) pool: Pool,
    pub(super) ledger: Arc<Ledger>,
    pub(super) store: &'a Store,
    pub(super) finisher: Finisher<'a>,
    pub(super) options: &'a CopyOptions,
    pub(super) progress: &'a Progress,
    pub(super) resent: AtomicU64,
    pub(super) dirs: Mutex<Vec<(PathBuf, Attributes)>>,
    pub(super) links: Mutex<Vec<HardLink>>,
    pub(super) extras: Extras,
    pub(super) digests: Digests,
    pub(super) unchanged: AtomicU64,
    pub(super) actions: Mutex<Vec<Action>>,
    pub(super) told_digests: Mutex<Vec<DigestOf>>,
    pub(super) failures: Mutex<Vec<CopyFailure>>,
    pub(super) skipped: Mutex<Vec<CopyFailure>>,
    pub(super) receiving: StageClock,
    pub(super) writing: StageClock,
    pub(super) syncing: StageClock,
    pub(super) cpu: CpuMeter,
    pub(super) start: Instant,
    pub(super) finished: AtomicBool,
    pub(super) report: Mutex<Option<(SinkReport, Instant)>>,
    pub(super) source: Mutex<Option<SourceReport>>,
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
    let extras = Extras::new(options, &destination);
    let store = Store::new(destination, options, u32::from_be_bytes(token));
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
        links: Mutex::default(),
        extras,
        digests: Digests::new(options),
        unchanged: AtomicU64::new(0),
        actions: Mutex::default(),
        told_digests: Mutex::default(),
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
        let (whole, to_finish) = bounded(FINISH_QUEUE);
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
        drop((received, to_write, whole));

        let followed = shared.cpu.run(|| follow_source(shared, &mut control));
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
            actions: std::mem::take(&mut *lock(&shared.actions)),
            digests: std::mem::take(&mut *lock(&shared.told_digests)),
            tcp,
            source: lock(&shared.source).take(),
            completed,
        }),
        None => Err(cancel.take_reason()),
    }
}

/// The peer did what it must not.
pub(super) fn broken(peer: &str, what: &'static str) -> EngineError {
    EngineError::Protocol { peer: peer.to_owned(), what }
}
