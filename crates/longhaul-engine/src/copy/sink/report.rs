//! What the sink tells the source, and the end.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use longhaul_core::result::StageTimes;
use longhaul_core::units::Bytes;
use longhaul_core::wire::WirePath;
use longhaul_core::wire::copy::{DONE_BATCH, SinkMessage, SinkReport};

use super::ledger::SinkFile;
use super::run::Shared;
use crate::copy::link::{TICK, keep};
use crate::copy::tree::wire_path;
use crate::error::{EngineError, Result};
use crate::lock::lock;

/// Tells the source how far the sink is, until all is in place, and then so.
pub(super) fn report_until_complete(shared: &Shared<'_>, stop: &AtomicBool) {
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
            not_kept: self.store.not_kept(),
            unchanged_files: self.unchanged.load(Ordering::Relaxed),
            deleted,
            manifest,
        })
    }
}

impl Shared<'_> {
    /// Settles a file as failed, removes what came of it, and tells the source.
    pub(super) fn fail(&self, file: &SinkFile, operation: &str, error: &io::Error) {
        if self.ledger.failed(file.id).is_some() {
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
        let words = reason.to_string();
        self.cancel.fail_saying(reason, || {
            let _ = self.control.send(&SinkMessage::Abort { reason: words });
        });
    }
}
