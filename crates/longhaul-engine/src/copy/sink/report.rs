//! What the sink tells the source, and the end.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::StageTimes;
use longhaul_core::units::Bytes;
use longhaul_core::wire::WirePath;
use longhaul_core::wire::copy::{DONE_BATCH, SinkMessage, SinkReport};

use super::ledger::{SinkFile, Standing};
use super::run::Shared;
use crate::copy::clock::Gauge;
use crate::copy::link::{TICK, keep};
use crate::copy::tree::wire_path;
use crate::error::{EngineError, Result};
use crate::lock::lock;

/// How often it is written down what an attempt after this one need not do again.
const CHECKPOINT: Duration = Duration::from_secs(1);

/// Tells the source how far the sink is, until all is in place, and then so.
pub(super) fn report_until_complete(shared: &Shared<'_>, stop: &AtomicBool) {
    let mut noted = Instant::now();
    let mut limited = shared.progress.limit();
    let clocks = [&shared.receiving, &shared.verifying, &shared.writing, &shared.syncing];
    let mut gauge = Gauge::new(clocks);
    loop {
        let mut standing = shared.ledger.wait(TICK, DONE_BATCH);
        if shared.cancel.is_set() {
            return;
        }
        if stop.load(Ordering::Relaxed) {
            shared.give_up(EngineError::Interrupted);
            return;
        }
        if noted.elapsed() >= CHECKPOINT && !standing.complete {
            shared.checkpoint();
            noted = Instant::now();
        }
        let (written, resumed) = (shared.ledger.written_bytes(), shared.ledger.resumed_bytes());
        shared.progress.resumed_bytes.store(resumed, Ordering::Relaxed);
        shared.progress.moved_bytes.store(written, Ordering::Relaxed);
        shared.progress.files.store(standing.files, Ordering::Relaxed);
        let [receive, verify, write, sync] = gauge.look();
        let stages = StageTimes { receive, verify, write, sync, ..StageTimes::default() };
        shared.progress.sink_is(stages);
        let message = SinkMessage::Progress {
            stages,
            written_bytes: Bytes::new(written),
            resumed_bytes: Bytes::new(resumed),
            done: std::mem::take(&mut standing.done),
        };
        let told = shared.control.send(&message).and_then(|()| {
            let limit = shared.progress.limit();
            if limit != limited {
                // Only a sink that is the client is asked to change it.
                limited = limit;
                shared.control.send(&SinkMessage::Limit { rate_bps: limit })?;
            }
            if standing.complete {
                let report = shared.complete(&standing)?;
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
    fn complete(&self, standing: &Standing) -> Result<SinkReport> {
        let mut durable = self.options.durable && self.store.keeps();
        let (mut deleted, mut manifest) = (0, None);
        self.syncing.time(|| -> Result<()> {
            self.make_hard_links()?;
            deleted = self.delete_extras()?;
            manifest = self.tell_digests()?;
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
        // Before the source hears of the end, so that nothing is left when its command is over.
        self.recorder.end(true);
        let elapsed = self.start.elapsed();
        Ok(SinkReport {
            files: standing.files,
            bytes: Bytes::new(standing.bytes),
            resumed_bytes: Bytes::new(standing.resumed),
            resent_blocks: self.resent.load(Ordering::Relaxed),
            durable,
            end: self.cpu.report(elapsed),
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
        keep(&mut lock(&self.failures), path.to_string(), reason.clone());
        self.control.send(&SinkMessage::Failed { id, path, reason })
    }

    /// Says why nothing is deleted in the target.
    pub(super) fn tell_not_deleted(&self, path: &Path, reason: &str) -> Result<()> {
        let path = wire_path(path);
        let reason = reason.to_owned();
        keep(&mut lock(&self.failures), path.to_string(), reason.clone());
        self.control.send(&SinkMessage::Failed { id: None, path, reason })
    }

    /// Gives the copy up and tells the source, which may be gone, why.
    pub(super) fn give_up(&self, reason: EngineError) {
        let (words, again) = (reason.to_string(), reason.may_pass());
        self.cancel.fail_saying(reason, || {
            let _ = self.control.send(&SinkMessage::Abort { reason: words, again });
        });
    }
}
