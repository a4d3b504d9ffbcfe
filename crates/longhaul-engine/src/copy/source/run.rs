//! Runs the stages of a source.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, unbounded};
use longhaul_core::plan::{CopyOptions, Protection, SyncLevel};
use longhaul_core::result::{StageTimes, ThreadRole};
use longhaul_core::wire::copy::{CopyKey, SinkReport, SourceMessage, SourceReport};
use longhaul_sys::tcp::TcpInfo;

use super::announce::{announce, queue_announced};
use super::carry::{read_blocks, send_blocks};
use super::follow::{follow_sink, tick};
use super::outstanding::{Outstanding, SinkDecisions};
use super::shared::{
    READERS, ReadContent, SourceContext, SourceMeters, SourceRecords, SourceShared,
};
use super::steer::{Pacemaker, SteeredStreams, StreamController};
use super::{SourcePlan, SourceRoot};
use crate::copy::cancel::Cancel;
use crate::copy::disk::Disk;
use crate::copy::journal::HostFiles;
use crate::copy::pool::pools;
use crate::copy::progress::CopyRun;
use crate::copy::rate_gate::RateGate;
use crate::copy::reports::FileReports;
use crate::copy::streams::{Channels, Growth, Streams, socket_options};
use crate::copy::watchdog::{Watchdog, longest_claim, patience};
use crate::error::Result;
use crate::lock;
use crate::session::ControlReceiver;

/// Blocks that the walk may queue ahead of the readers; bounds the source's memory in a tree of
/// many small files.
const JOB_QUEUE: usize = 1024;
/// Blocks that wait for a ready connection.
const FILLED_QUEUE: usize = 4;
/// The longest time that the stages take to end after the sink has reported the end.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// The interval at which the source checks for that.
const STAGES_CHECK: Duration = Duration::from_millis(1);

/// The outcome of a copy at the source.
pub(in crate::copy) struct SourceOutcome {
    pub(in crate::copy) sink: SinkReport,
    pub(in crate::copy) source: SourceReport,
    pub(in crate::copy) reports: FileReports,
    pub(in crate::copy) tcp: Vec<TcpInfo>,
}

/// The properties of a copy that the source knows before it begins.
#[derive(Debug, Clone, Default)]
pub(in crate::copy) struct SourceTerms {
    /// The sink decides on each file before it is read.
    pub(in crate::copy) wanted_first: bool,
    /// The copy's key, which shows a target within the source.
    pub(in crate::copy) key: Option<CopyKey>,
}

/// Sends everything of `plan` and waits until the sink reports that everything is complete.
pub(in crate::copy) fn run(
    link: Channels,
    plan: &SourcePlan,
    terms: SourceTerms,
    run: CopyRun<'_>,
) -> Result<SourceOutcome> {
    let CopyRun { options, progress, .. } = run;
    let start = Instant::now();
    let cancel = Arc::new(Cancel::default());
    link.arm(&cancel)?;
    let pools = pools(options);
    let outstanding = Arc::new(Outstanding::default());
    let wanted = Arc::new(SinkDecisions::default());
    let gate = Arc::new(RateGate::new(progress.shared_limit()));
    cancel.on_cancel({
        let (pools, outstanding, wanted) = (pools.clone(), outstanding.clone(), wanted.clone());
        let gate = gate.clone();
        move || {
            pools.close();
            outstanding.close();
            wanted.close();
            gate.open();
        }
    });
    progress.begin();
    if options.tree.sync_level == Some(SyncLevel::Checksum) {
        // The sink accepts no messages while it reads a file of its own for the comparison.
        link.sender.set_timeout(longest_claim(options));
    }
    let context = SourceContext {
        control: link.sender,
        cancel: cancel.clone(),
        watchdog: Watchdog::new(patience(options)),
        pools,
        disk: Disk::new(options.direct),
        progress,
        gate,
        block_bytes: options.block_bytes.get(),
        in_pieces: options.protection != Protection::Bare && !options.tree.ordered,
        wanted_first: terms.wanted_first,
        key: terms.key,
        identities: link.streams.is_within_host().then(HostFiles::of_boot).flatten(),
        opens_connections: link.streams.opens_connections(),
        feed: plan.roots.iter().find_map(|root| match root {
            SourceRoot::Feed(feed) => Some(feed.clone()),
            _ => None,
        }),
    };
    let records = SourceRecords::new(outstanding, wanted);
    let (meters, steered) = (SourceMeters::default(), SteeredStreams::default());
    let shared = SourceShared { context, records, meters, steered };
    let mut receiver = link.receiver;
    let (report, tcp) = shared.carry(link.streams, plan, run, &mut receiver);

    let source = shared.report(start.elapsed(), &tcp);
    let reports = std::mem::take(&mut *lock(&shared.records.reports));
    match report {
        Some(sink) => {
            // For a client that is the sink; a client that has disconnected needs no report.
            let _ = shared.context.control.send(&SourceMessage::Report(Box::new(source.clone())));
            Ok(SourceOutcome { sink, source, reports, tcp })
        }
        None => Err(cancel.take_reason()),
    }
}

/// The data connections of a source.
#[derive(Clone, Copy)]
struct SourceConnections<'a> {
    streams: &'a Streams,
    options: &'a CopyOptions,
    /// The TCP state of the connections that have ended.
    tcp: &'a Mutex<Vec<TcpInfo>>,
    /// Set when the copy is over.
    over: &'a AtomicBool,
}

impl SourceShared<'_> {
    /// Runs all stages to the end, and returns the report of the sink and the TCP state of the
    /// connections.
    fn carry(
        &self,
        streams: Streams,
        plan: &SourcePlan,
        run: CopyRun<'_>,
        receiver: &mut ControlReceiver,
    ) -> (Option<SinkReport>, Vec<TcpInfo>) {
        let CopyRun { options, stop, .. } = run;
        let tcp: Mutex<Vec<TcpInfo>> = Mutex::default();
        let over = AtomicBool::new(false);
        let (over_all, streams) = (&over, &streams);
        let connections = SourceConnections { streams, options, tcp: &tcp, over: &over };
        let report = thread::scope(|scope| {
            let (jobs, job_queue) = bounded(JOB_QUEUE);
            let (filled, filled_queue) = bounded::<ReadContent>(FILLED_QUEUE);
            // Bounded by the files that may be outstanding.
            let (announced, to_queue) = unbounded();
            let stage = self.stage(ThreadRole::Walk);
            scope.spawn(move || stage.run(|| announce(self, announced, plan, options)));
            let (queued, stage) = (jobs.clone(), self.stage(ThreadRole::Walk));
            scope.spawn(move || stage.run(|| queue_announced(self, &to_queue, &queued)));
            // Several readers would reorder the blocks.
            let readers = if options.tree.ordered { 1 } else { READERS };
            for _ in 0..readers {
                let (jobs, filled) = (job_queue.clone(), filled.clone());
                let stage = self.stage(ThreadRole::Read);
                scope.spawn(move || stage.run(|| read_blocks(self, &jobs, &filled)));
            }
            let more = self.start_senders(scope, connections, filled_queue);
            // The threads hold the ends they need; a stage ends when the one before it has.
            drop((job_queue, filled));
            let controller = StreamController::new(self, options);
            let ticker = scope.spawn(|| tick(self, controller, over_all, stop));
            if !options.nice && !options.dedicated {
                let over = || self.context.cancel.is_set() || over_all.load(Ordering::Relaxed);
                scope.spawn(move || Pacemaker::new(self, options.earlier_bps).run(over));
            }

            let report =
                self.meters.cpu.run(ThreadRole::Control, || follow_sink(self, receiver, &jobs));
            over.store(true, Ordering::Relaxed);
            let report = report.map_err(|reason| self.context.cancel.fail(reason)).ok();
            drop(jobs);
            self.await_stages();
            ticker.thread().unpark();
            more.thread().unpark();
            report
        });
        (report, tcp.into_inner().unwrap_or_default())
    }

    /// Starts a thread per connection that sends blocks, and a thread that opens or accepts further
    /// connections, which it returns.
    fn start_senders<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        connections: SourceConnections<'scope>,
        filled: Receiver<ReadContent>,
    ) -> ScopedJoinHandle<'scope, ()> {
        let SourceConnections { streams, options, tcp, over } = connections;
        let send = move |stream: u32, socket: TcpStream| {
            // Options that the kernel refuses cost only speed.
            let _ = socket_options(options).apply(&socket);
            self.steered.add(&socket, self.context.opens_connections);
            let sender = streams
                .sender(stream, socket, options.protection)
                .with_gate(self.context.gate.clone());
            let (blocks, stage) = (filled.clone(), self.stage(ThreadRole::Send));
            scope.spawn(move || {
                let info = stage.run(|| send_blocks(self, stream, sender, &blocks));
                lock(tcp).extend(info);
            });
        };
        let first = streams.first();
        let opened = first.len() as u32;
        for (stream, socket) in first {
            send(stream, socket);
        }
        scope.spawn(move || {
            let over = || self.context.cancel.is_set() || over.load(Ordering::Relaxed);
            let wanted = || self.steered.wanted();
            let growth = Growth { opened, cancel: &self.context.cancel, over, wanted };
            streams.more(growth, send);
        })
    }

    /// Returns the report of this end after `elapsed`, with the TCP state of all connections.
    fn report(&self, elapsed: Duration, tcp: &[TcpInfo]) -> SourceReport {
        let stages = StageTimes {
            read: self.meters.reading.share(elapsed),
            send: self.meters.sending.share(elapsed),
            seal: self.meters.sealing.share(elapsed),
            ..StageTimes::default()
        };
        SourceReport {
            end: self.context.disk.described(self.meters.cpu.report(elapsed)),
            stages,
            retransmits: tcp.iter().map(|info| info.retransmits).sum(),
            path: self.steered.report(tcp),
        }
    }

    /// Waits until every stage has ended, and ends those that wait for a sink that has reported the
    /// end and takes no more.
    fn await_stages(&self) {
        let deadline = Instant::now() + LAST_WORDS.min(self.context.watchdog.patience());
        while self.records.running.load(Ordering::Relaxed) > 0 {
            if Instant::now() >= deadline {
                self.context.cancel.release();
                return;
            }
            thread::sleep(STAGES_CHECK);
        }
    }
}
