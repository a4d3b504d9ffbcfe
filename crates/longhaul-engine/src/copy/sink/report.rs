//! What the sink tells the source, and the end.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::result::StageTimes;
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{DONE_BATCH, SinkMessage, SinkReport};
use longhaul_core::wire::{RefusalKind, WirePath};

use super::ledger::{SinkFile, Standing};
use super::run::Shared;
use crate::HASTE;
use crate::copy::clock::{Gauge, StageClock};
use crate::copy::tree::wire_path;
use crate::copy::watchdog::{SILENCE_LIMIT, TICK};
use crate::error::{EngineError, Result, WaitsFor};
use crate::lock::lock;

/// Nothing is ever sent: the channel ends, and that is the message.
pub(super) type Never = std::convert::Infallible;

/// The longest time between two checkpoints.
const CHECKPOINT: Duration = Duration::from_millis(1_000 / HASTE);
/// The least time between two checkpoints: 250 MB at 10 Gb/s.
const CHECKPOINT_LOOK: Duration = Duration::from_millis(200 / HASTE);
/// The bytes after which a checkpoint does not wait for [`CHECKPOINT`].
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// Tells the source how far the sink is until the other end of `over` is dropped: also while the
/// last things are put in order, which may take long, since silence ends a session.
pub(super) fn report(shared: &Shared<'_>, over: &Receiver<Never>, stop: &AtomicBool) {
    let mut limited = shared.progress.limit();
    let clocks = [&shared.receiving, &shared.verifying, &shared.writing, &shared.syncing];
    let mut gauge = Gauge::new(clocks);
    while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if shared.cancel.is_set() {
            return;
        }
        if stop.load(Ordering::Relaxed) {
            shared.give_up(EngineError::Interrupted);
            return;
        }
        if let Some(error) = shared.stalled() {
            shared.give_up(error);
            return;
        }
        if let Err(full) = shared.store.space.check_reserve() {
            shared.give_up(full);
            return;
        }
        let done = shared.show_progress();
        let [receive, verify, write, sync] = gauge.look();
        let stages = StageTimes { receive, verify, write, sync, ..StageTimes::default() };
        shared.progress.sink_is(stages);
        let message = SinkMessage::Progress {
            stages,
            written_bytes: shared.progress.moved(),
            resumed_bytes: shared.progress.resumed(),
            done,
            stream_blocks: shared.ledger.stream_blocks(),
            checked_bytes: Bytes::new(shared.store.checked.load(Ordering::Relaxed)),
            kept_bytes: shared.progress.kept(),
        };
        let told = shared.control.send(&message).and_then(|()| {
            let limit = shared.progress.limit();
            if limit == limited {
                return Ok(());
            }
            // Only a sink that is the client is asked to change it.
            limited = limit;
            shared.control.send(&SinkMessage::Limit { rate_bps: limit })
        });
        // A source that has heard of the end may have left.
        if !shared.finished.load(Ordering::Relaxed) {
            shared.cancel.check(told);
        }
    }
}

/// Writes down, until the other end of `over` is dropped, how far the copy is.
pub(super) fn keep_journal(shared: &Shared<'_>, over: &Receiver<Never>) {
    let (mut last, mut bytes) = (Instant::now(), 0);
    while over.recv_timeout(CHECKPOINT_LOOK) == Err(RecvTimeoutError::Timeout) {
        let written = shared.ledger.written_bytes();
        // Less where bytes of an earlier attempt are of no use.
        if written.abs_diff(bytes) >= CHECKPOINT_BYTES || last.elapsed() >= CHECKPOINT {
            shared.checkpoint();
            (last, bytes) = (Instant::now(), written);
        }
    }
}

/// Waits until every entry is settled, puts the last things in order, and tells the source.
pub(super) fn conclude(shared: &Shared<'_>) {
    let Some(standing) = shared.ledger.wait_complete() else { return };
    let concluded = shared.complete(&standing).and_then(|report| {
        shared.show_progress();
        // Before the word is out, upon which the source closes the channel.
        shared.finished.store(true, Ordering::Relaxed);
        shared.control.send(&SinkMessage::Finished(report.clone()))?;
        *lock(&shared.report) = Some((report, Instant::now()));
        Ok(())
    });
    shared.cancel.check(concluded);
}

impl Shared<'_> {
    /// The error of a copy in which nothing has moved for too long.
    fn stalled(&self) -> Option<EngineError> {
        let working = [&self.writing, &self.syncing, &self.checking].map(StageClock::is_running);
        let working = working.contains(&true);
        let checked = self.store.checked.load(Ordering::Relaxed);
        let moved = self.arrived.load(Ordering::Relaxed).wrapping_add(checked);
        let time = self.watchdog.stalled(moved, working)?;
        let waits_for = match self.ledger.open_files() {
            0 => WaitsFor::Announce,
            open => WaitsFor::Send(open),
        };
        Some(EngineError::Stalled { peer: self.control.peer().to_owned(), waits_for, time })
    }

    /// Whether the source stays although the copy ended long ago.
    pub(super) fn lingers(&self) -> bool {
        lock(&self.report).as_ref().is_some_and(|(_, at)| at.elapsed() > SILENCE_LIMIT)
    }

    /// Brings what is shown up to date; returns the entries put in place since the last time.
    fn show_progress(&self) -> Vec<u64> {
        let standing = self.ledger.standing(DONE_BATCH);
        let progress = self.progress;
        progress.resumed_bytes.store(self.ledger.resumed_bytes(), Ordering::Relaxed);
        progress.moved_bytes.store(self.ledger.written_bytes(), Ordering::Relaxed);
        progress.files.store(standing.files, Ordering::Relaxed);
        progress.kept_bytes.store(self.recorder.kept_bytes(), Ordering::Relaxed);
        standing.done
    }
}

impl Shared<'_> {
    /// Makes names durable, dresses directories, and sums up.
    fn complete(&self, standing: &Standing) -> Result<SinkReport> {
        let mut durable = self.options.durable && self.store.keeps();
        let (mut deleted, mut manifest) = (0, None);
        self.syncing.time(|| -> Result<()> {
            self.make_hard_links()?;
            deleted = self.delete_extras()?;
            manifest = self.tell_digests()?;
            // Deepest first: a directory's time changes when something is made in it.
            for (path, attributes, _) in lock(&self.dirs).drain(..).rev() {
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
        // Before the source hears of the end, so that nothing is left when its command is over.
        self.recorder.end(true);
        // The last name that changes in the target was the journal's.
        if let Some(attributes) = lock(&self.top).take()
            && let Err(error) = self.syncing.time(|| self.finisher.finish_top(&attributes))
        {
            durable = false;
            self.tell_failed(None, Path::new(""), "finish", &error)?;
        }
        let elapsed = self.start.elapsed();
        Ok(SinkReport {
            files: standing.files,
            bytes: Bytes::new(standing.bytes),
            resumed_bytes: Bytes::new(standing.resumed),
            resent_blocks: self.resent.load(Ordering::Relaxed),
            durable,
            end: self.cpu.report(elapsed, self.store.disk.direct_bytes()),
            stages: StageTimes {
                receive: self.receiving.share(elapsed),
                verify: self.verifying.share(elapsed),
                write: self.writing.share(elapsed),
                sync: self.syncing.share(elapsed),
                ..StageTimes::default()
            },
            not_kept: self.store.not_kept(),
            unchanged_files: self.unchanged.load(Ordering::Relaxed),
            deleted,
            manifest,
        })
    }
}

impl Shared<'_> {
    /// Writes down how far the copy is. A file whose bytes cannot be made durable has failed.
    pub(super) fn checkpoint(&self) {
        for (file, error) in self.syncing.time(|| self.recorder.checkpoint()) {
            self.fail(&file, "sync", &error);
        }
    }

    /// Settles a file as failed, removes what came of it, and tells the source.
    pub(super) fn fail(&self, file: &SinkFile, operation: &str, error: &io::Error) {
        if self.ledger.failed(file.id).is_some() {
            self.recorder.dropped(file);
            self.settle_claim(file);
            let told = self.tell_failed(Some(file.id), &file.path, operation, error);
            self.cancel.check(told);
            self.ledger.failure_told();
        }
    }

    pub(super) fn tell_failed(
        &self,
        id: Option<u64>,
        path: &Path,
        operation: &str,
        error: &io::Error,
    ) -> Result<()> {
        let path = self.store.display(path);
        let path = WirePath::new(path.as_os_str().as_bytes()).ok_or(EngineError::Interrupted)?;
        let reason = format!("cannot {operation} it: {error}");
        lock(&self.reports).fail(path.to_string(), reason.clone());
        self.control.send(&SinkMessage::Failed { id, path, reason })
    }

    /// Says why nothing is deleted in the target.
    pub(super) fn tell_not_deleted(&self, path: &Path, reason: &str) -> Result<()> {
        let path = wire_path(path);
        let reason = reason.to_owned();
        lock(&self.reports).fail(path.to_string(), reason.clone());
        self.control.send(&SinkMessage::Failed { id: None, path, reason })
    }

    /// Gives the copy up and tells the source, which may be gone, why.
    pub(super) fn give_up(&self, reason: EngineError) {
        let (words, again) = (reason.to_string(), reason.may_pass());
        let full = matches!(reason, EngineError::NoSpace { .. } | EngineError::OverQuota { .. });
        let kind = full.then_some(RefusalKind::Files);
        self.cancel.fail_saying(reason, || {
            let _ = self.control.send(&SinkMessage::Abort { reason: words, again, kind });
        });
    }
}
