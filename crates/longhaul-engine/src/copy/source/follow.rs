//! The control channel of a source: handles the sink's messages and reports to the sink.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use longhaul_core::result::StageTimes;
use longhaul_core::wire::copy::{KeptFile, SinkMessage, SinkReport, SourceMessage};

use super::shared::{Job, SourceShared};
use super::steer::StreamController;
use crate::copy::clock::Gauge;
use crate::copy::watchdog::TICK;
use crate::error::{EngineError, Result, WaitsFor};
use crate::session::ControlReceiver;
use crate::{HASTE, lock};

/// The interval between two keepalive messages.
const ALIVE_INTERVAL: Duration = Duration::from_millis(1_000 / HASTE);

/// The longest wait for a sink to accept the reason of the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The share of the time that counts as reading while a walk runs, because the walk measures no
/// time.
const WALK_SHARE: f64 = 0.01;

/// Handles the sink's messages until it reports the end.
pub(super) fn follow_sink(
    shared: &SourceShared<'_>,
    receiver: &mut ControlReceiver,
    jobs: &Sender<Job>,
) -> Result<SinkReport> {
    loop {
        let message = receiver.receive()?;
        shared.context.watchdog.note_message(&message);
        match message {
            SinkMessage::Progress { .. } => note_progress(shared, message),
            SinkMessage::Actions(actions) => lock(&shared.records.reports).peer_acts(actions)?,
            SinkMessage::Digests(digests) => lock(&shared.records.reports).peer_digests(digests)?,
            SinkMessage::Resend { id, offset } => match requested_job(shared, id, offset) {
                Ok(None) => {}
                Ok(Some(job)) => {
                    let _ = jobs.send(job);
                }
                Err(NoSuchBlock) => {
                    return Err(broken(receiver, "it requested a block that does not exist"));
                }
            },
            SinkMessage::Failed { id, path, reason } => {
                if let Some(file) = id.and_then(|id| shared.records.outstanding.remove(id)) {
                    file.fail();
                }
                lock(&shared.records.reports).fail(path.to_string(), reason);
            }
            SinkMessage::Wanted { before, held } => {
                if !note_wanted(shared, before, held) {
                    return Err(broken(receiver, "its decisions are out of sequence"));
                }
            }
            SinkMessage::Limit { rate_bps } => shared.context.progress.set_limit(rate_bps),
            SinkMessage::Abort { reason, again, kind } => {
                return Err(EngineError::aborted(receiver.peer(), reason, again, kind));
            }
            SinkMessage::Finished(report) => {
                shared.context.progress.moved_bytes.store(report.bytes.get(), Ordering::Relaxed);
                shared.context.progress.files.store(report.files, Ordering::Relaxed);
                return Ok(report);
            }
        }
    }
}

/// Takes the figures of [`SinkMessage::Progress`], and releases the entries that are done.
fn note_progress(shared: &SourceShared<'_>, message: SinkMessage) {
    let SinkMessage::Progress {
        written_bytes,
        resumed_bytes,
        stages,
        done,
        stream_blocks,
        kept_bytes,
        ..
    } = message
    else {
        return;
    };
    if let Some(feed) = &shared.context.feed {
        feed.written(stream_blocks);
    }
    let progress = shared.context.progress;
    progress.sink_is(stages);
    progress.moved_bytes.store(written_bytes.get(), Ordering::Relaxed);
    progress.resumed_bytes.store(resumed_bytes.get(), Ordering::Relaxed);
    progress.kept_bytes.store(kept_bytes.get(), Ordering::Relaxed);
    let outstanding = &shared.records.outstanding;
    let done = done.iter().filter(|id| outstanding.remove(**id).is_some()).count();
    progress.files.fetch_add(done as u64, Ordering::Relaxed);
}

/// The sink requested a block that the copy does not have.
struct NoSuchBlock;

/// Returns the job that sends a block again; `None` if its file is complete or failed meanwhile,
/// because the last messages of both ends can cross.
fn requested_job(
    shared: &SourceShared<'_>,
    id: u64,
    offset: u64,
) -> std::result::Result<Option<Job>, NoSuchBlock> {
    if !shared.records.wanted.is_announced(id) {
        return Err(NoSuchBlock);
    }
    let Some(file) = shared.records.outstanding.get(id).filter(|file| !file.has_failed()) else {
        return Ok(None);
    };
    let block_bytes = shared.context.block_bytes;
    if file.is_small(block_bytes) {
        return if offset == 0 { Ok(Some(Job::Pack(vec![file]))) } else { Err(NoSuchBlock) };
    }
    if offset >= file.size || !offset.is_multiple_of(block_bytes) {
        return Err(NoSuchBlock);
    }
    file.reread();
    Ok(Some(Job::Block { file, offset }))
}

/// Records the sink's decisions on the entries below `before`, and releases the files that it has.
/// Returns `false` if the decisions violate the protocol.
fn note_wanted(shared: &SourceShared<'_>, before: u64, held: Vec<KeptFile>) -> bool {
    for KeptFile { id, .. } in held.iter().filter(|held| held.blocks.is_none()) {
        if let Some(file) = shared.records.outstanding.remove(*id) {
            shared.context.progress.total_bytes.fetch_sub(file.size, Ordering::Relaxed);
            shared.context.progress.total_files.fetch_sub(1, Ordering::Relaxed);
        }
    }
    shared.context.wanted_first && shared.records.wanted.note_decisions(before, held)
}

impl SourceShared<'_> {
    /// Returns the error of a copy without progress for too long; `acked` bytes have arrived.
    fn stalled(&self, acked: u64) -> Option<EngineError> {
        let working =
            self.meters.reading.is_running() || self.records.walking.load(Ordering::Relaxed);
        let stalled = self.context.watchdog.stalled(acked, working);
        self.context.progress.note_idle(self.context.watchdog.idle());
        let time = stalled?;
        let waits_for = if self.context.wanted_first && self.records.wanted.is_awaited() {
            WaitsFor::Wanted
        } else if self.meters.sending.is_running() {
            WaitsFor::TakeData
        } else {
            WaitsFor::Confirm(self.records.outstanding.count())
        };
        Some(EngineError::Stalled { peer: self.context.control.peer().to_owned(), waits_for, time })
    }
}

fn broken(receiver: &ControlReceiver, what: &'static str) -> EngineError {
    EngineError::Protocol { peer: receiver.peer().to_owned(), what }
}

/// Sends keepalive messages, controls the streams, and ends the copy on `stop`.
pub(super) fn tick(
    shared: &SourceShared<'_>,
    mut controller: StreamController<'_>,
    over: &AtomicBool,
    stop: &AtomicBool,
) {
    let mut shown = Instant::now();
    let mut gauge =
        Gauge::new([&shared.meters.reading, &shared.meters.sending, &shared.meters.sealing]);
    while !over.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            shared.context.cancel.fail_saying(EngineError::Interrupted, || {
                let last = SourceMessage::Abort { again: false };
                shared.context.control.send_last(&last, LAST_WORDS);
            });
            return;
        }
        if shown.elapsed() >= ALIVE_INTERVAL {
            shown = Instant::now();
            let [mut read, send, seal] = gauge.sample();
            if shared.records.walking.load(Ordering::Relaxed) {
                read = Some(read.unwrap_or(0.0).max(WALK_SHARE));
            }
            let stages = StageTimes { read, send, seal, ..StageTimes::default() };
            shared.context.progress.source_is(stages);
            let sent = shared.context.control.send_if_idle(&SourceMessage::Alive { stages });
            if !over.load(Ordering::Relaxed) {
                shared.context.cancel.check(sent);
            }
        }
        if let Some(error) = shared.stalled(controller.tick()) {
            shared.context.cancel.fail_saying(error, || {
                let last = SourceMessage::Abort { again: false };
                shared.context.control.send_last(&last, LAST_WORDS);
            });
            return;
        }
        thread::park_timeout(TICK);
    }
}
