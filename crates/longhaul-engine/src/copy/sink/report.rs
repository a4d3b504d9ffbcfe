//! The reports of the sink to the source, the checkpoints, and the end of the copy.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::result::StageTimes;
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{DONE_BATCH, SinkMessage, SinkReport};

use super::ledger::LedgerProgress;
use super::shared::SinkShared;
use crate::copy::clock::{Gauge, StageClock};
use crate::copy::watchdog::{SILENCE_LIMIT, TICK};
use crate::error::{EngineError, Result, WaitsFor};
use crate::{HASTE, lock};

/// The type of a channel without messages: a receiver only waits until the sender is dropped.
pub(super) type Never = std::convert::Infallible;

/// The longest time between two checkpoints.
const CHECKPOINT: Duration = Duration::from_millis(1_000 / HASTE);
/// The shortest time between two checkpoints. At 10 Gb/s 250 MB arrive in this time.
const CHECKPOINT_CHECK: Duration = Duration::from_millis(200 / HASTE);
/// The number of new bytes from which a checkpoint is written before [`CHECKPOINT`] has passed.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// Reports the progress to the source until the sender of `over` is dropped. The reports continue
/// during the last operations, which can take long, because the source ends a silent session.
pub(super) fn report(shared: &SinkShared<'_>, over: &Receiver<Never>, stop: &AtomicBool) {
    let mut limited = shared.context.progress.limit();
    let clocks = [
        &shared.meters.receiving,
        &shared.meters.verifying,
        &shared.meters.writing,
        &shared.meters.syncing,
    ];
    let mut gauge = Gauge::new(clocks);
    while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if shared.context.cancel.is_set() {
            return;
        }
        if stop.load(Ordering::Relaxed) {
            shared.interrupt(over);
            return;
        }
        if let Some(error) = shared.stalled() {
            shared.abort(error);
            return;
        }
        if let Err(full) = shared.store.space.check_reserve() {
            shared.abort(full);
            return;
        }
        let done = shared.show_progress();
        let [receive, verify, write, sync] = gauge.sample();
        let stages = StageTimes { receive, verify, write, sync, ..StageTimes::default() };
        shared.context.progress.sink_is(stages);
        let message = SinkMessage::Progress {
            stages,
            written_bytes: shared.context.progress.moved(),
            resumed_bytes: shared.context.progress.resumed(),
            done,
            stream_blocks: shared.records.ledger.stream_blocks(),
            checked_bytes: Bytes::new(shared.store.checked.load(Ordering::Relaxed)),
            kept_bytes: shared.context.progress.kept(),
        };
        let sent = shared.context.control.send(&message).and_then(|()| {
            let limit = shared.context.progress.limit();
            if limit == limited {
                return Ok(());
            }
            // Only a client changes the limit: its user sends it SIGUSR1 or SIGUSR2.
            limited = limit;
            shared.context.control.send(&SinkMessage::Limit { rate_bps: limit })
        });
        // After the report of the end the source may disconnect, so an error is not a failure.
        if !shared.records.finished.load(Ordering::Relaxed) {
            shared.context.cancel.check(sent);
        }
    }
}

/// Writes checkpoints until the sender of `over` is dropped.
pub(super) fn keep_journal(shared: &SinkShared<'_>, over: &Receiver<Never>) {
    let (mut last, mut bytes) = (Instant::now(), 0);
    while over.recv_timeout(CHECKPOINT_CHECK) == Err(RecvTimeoutError::Timeout) {
        let written = shared.records.ledger.written_bytes();
        // The number decreases if bytes of an earlier attempt turn out to be unusable.
        if written.abs_diff(bytes) >= CHECKPOINT_BYTES || last.elapsed() >= CHECKPOINT {
            shared.checkpoint();
            (last, bytes) = (Instant::now(), written);
        }
    }
}

/// Waits until every entry is complete or has failed, completes the target, and reports the end.
pub(super) fn conclude(shared: &SinkShared<'_>) {
    let Some(standing) = shared.records.ledger.wait_complete() else { return };
    let concluded = shared.complete(&standing).and_then(|report| {
        shared.show_progress();
        // This must precede the message, because the source closes the channel when it arrives.
        shared.records.finished.store(true, Ordering::Relaxed);
        shared.context.control.send(&SinkMessage::Finished(report.clone()))?;
        *lock(&shared.records.report) = Some((report, Instant::now()));
        Ok(())
    });
    shared.context.cancel.check(concluded);
}

impl SinkShared<'_> {
    /// Returns an error if the copy has made no progress for too long.
    fn stalled(&self) -> Option<EngineError> {
        let working = [&self.meters.writing, &self.meters.syncing, &self.meters.checking]
            .map(StageClock::is_running);
        let working = working.contains(&true);
        let checked = self.store.checked.load(Ordering::Relaxed);
        let moved = self.context.arrived.sum().wrapping_add(checked);
        let stalled = self.context.watchdog.stalled(moved, working);
        self.context.progress.note_idle(self.context.watchdog.idle());
        let time = stalled?;
        let waits_for = match self.records.ledger.open_files() {
            0 => WaitsFor::Announce,
            open => WaitsFor::Send(open),
        };
        Some(EngineError::Stalled { peer: self.context.control.peer().to_owned(), waits_for, time })
    }

    /// Returns whether the copy ended more than [`SILENCE_LIMIT`] ago, or the longest time without
    /// progress if that is shorter. A source that still sends messages then violates the protocol.
    pub(super) fn ended_too_long_ago(&self) -> bool {
        let limit = SILENCE_LIMIT.min(self.context.watchdog.patience());
        lock(&self.records.report).as_ref().is_some_and(|(_, at)| at.elapsed() > limit)
    }

    /// Updates the progress, and returns the entries that got their final name since the last call.
    fn show_progress(&self) -> Vec<u64> {
        let standing = self.records.ledger.standing(DONE_BATCH);
        let progress = self.context.progress;
        progress.resumed_bytes.store(self.records.ledger.resumed_bytes(), Ordering::Relaxed);
        progress.moved_bytes.store(self.records.ledger.written_bytes(), Ordering::Relaxed);
        progress.files.store(standing.files, Ordering::Relaxed);
        progress.kept_bytes.store(self.recorder.kept_bytes(), Ordering::Relaxed);
        standing.done
    }
}

impl SinkShared<'_> {
    /// Makes hard links, deletes extra files, applies the attributes of directories, makes names
    /// durable, and returns the report.
    fn complete(&self, standing: &LedgerProgress) -> Result<SinkReport> {
        let mut durable = self.context.options.durable && self.store.stores_bytes();
        let (mut deleted, mut manifest) = (0, None);
        self.meters.syncing.time(|| -> Result<()> {
            self.make_hard_links()?;
            if self.records.extras.delete.is_some() {
                // An old name is deleted only after the new ones are durable.
                self.sync_names(&mut durable)?;
            }
            deleted = self.delete_extras()?;
            manifest = self.report_digests()?;
            // Deepest first, because a new entry changes the time of its directory.
            for (path, attributes, _) in lock(&self.records.dirs).drain(..).rev() {
                if let Err(error) = self.store.finish_dir(&path, &attributes) {
                    self.report_failure(None, &path, "finish", &error)?;
                }
            }
            self.sync_names(&mut durable)
        })?;
        // This precedes the report of the end, so that no journal remains when the command ends.
        self.recorder.end(true);
        // The removal of the journal was the last change in the target directory, so that its
        // modification time can be set now.
        if let Some(attributes) = lock(&self.records.top).take()
            && let Err(error) = self.meters.syncing.time(|| self.finisher.finish_top(&attributes))
        {
            durable = false;
            self.report_failure(None, Path::new(""), "finish", &error)?;
        }
        let elapsed = self.meters.start.elapsed();
        Ok(SinkReport {
            files: standing.files,
            bytes: Bytes::new(standing.bytes),
            resumed_bytes: Bytes::new(standing.resumed),
            resent_blocks: self.records.resent.load(Ordering::Relaxed),
            durable,
            end: self.store.disk.described(self.meters.cpu.report(elapsed)),
            stages: StageTimes {
                receive: self.meters.receiving.share(elapsed),
                verify: self.meters.verifying.share(elapsed),
                write: self.meters.writing.share(elapsed),
                sync: self.meters.syncing.share(elapsed),
                ..StageTimes::default()
            },
            not_kept: self.store.not_kept(),
            unchanged_files: self.records.unchanged.load(Ordering::Relaxed),
            deleted,
            manifest,
        })
    }
}

impl SinkShared<'_> {
    /// Makes the new names durable; a failure is reported.
    fn sync_names(&self, durable: &mut bool) -> Result<()> {
        let Err((path, error)) = self.finisher.sync_names() else { return Ok(()) };
        *durable = false;
        self.report_failure(None, &path, "sync", &error)
    }

    /// Writes a checkpoint. A file whose bytes cannot be made durable has failed.
    pub(super) fn checkpoint(&self) {
        for (file, error) in self.meters.syncing.time(|| self.recorder.checkpoint()) {
            self.fail(&file, "sync", &error);
        }
    }
}
