//! The first stage: walks the roots, announces the entries, and queues their blocks for the
//! readers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::PACK_FILES_LIMIT;
use longhaul_core::wire::copy::{Entry, EntryKind, SourceMessage};

use super::file::SourceFile;
use super::shared::{Job, SourceShared};
use super::walk::{Walk, WalkSink};
use super::{SourcePlan, SourceRoot};
use crate::copy::pool::PACK_BYTES;
use crate::copy::tree::wire_path;
use crate::error::{EngineError, Result};
use crate::lock;

/// Passes the findings of a walk to the sink and to the readers.
struct Announcer<'a> {
    shared: &'a SourceShared<'a>,
    announced: Sender<Vec<Arc<SourceFile>>>,
}

/// Walks everything of `plan`.
pub(super) fn announce(
    shared: &SourceShared<'_>,
    announced: Sender<Vec<Arc<SourceFile>>>,
    plan: &SourcePlan,
    options: &CopyOptions,
) {
    let mut announcer = Announcer { shared, announced };
    let walk = Walk::new(&plan.tree, options, &mut announcer)
        .for_copy(shared.context.key.as_ref(), shared.context.identities);
    shared.records.walking.store(true, Ordering::Relaxed);
    let outcome = walk.run(&plan.roots);
    shared.records.walking.store(false, Ordering::Relaxed);
    let outcome = outcome.and_then(|entries| {
        let fed = plan.roots.iter().any(|root| matches!(root, SourceRoot::Feed(_)));
        shared.context.progress.listed.store(!fed, Ordering::Relaxed);
        shared.context.control.send(&SourceMessage::End { entries })
    });
    shared.context.cancel.check(outcome);
}

/// Queues announced files for the readers, if necessary after the decision of the sink. The walk
/// continues meanwhile.
pub(super) fn queue_announced(
    shared: &SourceShared<'_>,
    announced: &Receiver<Vec<Arc<SourceFile>>>,
    jobs: &Sender<Job>,
) {
    for files in announced {
        let files = if shared.context.wanted_first {
            shared.records.wanted.await_decisions(files)
        } else {
            Some(files)
        };
        // The readers end only when the copy ends.
        let Some(Ok(())) = files.map(|files| shared.queue(files, jobs)) else { return };
    }
}

impl WalkSink for Announcer<'_> {
    fn announce(&mut self, entries: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()> {
        self.shared.context.watchdog.step();
        self.shared.records.walking.store(false, Ordering::Relaxed);
        let announced = self.pass_on(entries, files);
        self.shared.records.walking.store(true, Ordering::Relaxed);
        announced
    }

    fn failed(&mut self, path: &Path, reason: &str) -> Result<()> {
        self.shared.failed(None, path, reason)
    }

    fn skipped(&mut self, path: &Path, reason: &str) -> Result<()> {
        lock(&self.shared.records.reports).skip(path.display().to_string(), reason.to_owned());
        let path = wire_path(path);
        self.shared
            .context
            .control
            .send(&SourceMessage::Skipped { path, reason: reason.to_owned() })
    }
}

impl Announcer<'_> {
    fn pass_on(&self, entries: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()> {
        let progress = self.shared.context.progress;
        for entry in &entries {
            let size = match entry.kind {
                EntryKind::File { size_bytes } => size_bytes.get(),
                EntryKind::Stream => 0,
                _ => continue,
            };
            progress.total_bytes.fetch_add(size, Ordering::Relaxed);
            progress.total_files.fetch_add(1, Ordering::Relaxed);
        }
        if !self.shared.records.outstanding.add(&files) {
            return Err(EngineError::Interrupted);
        }
        files.iter().for_each(|file| progress.large_files.add(file));
        let end = entries.last().map_or(0, |entry| entry.id + 1);
        self.shared.records.wanted.announced(end);
        self.shared.context.control.send(&SourceMessage::Entries(entries))?;
        self.announced.send(files).map_err(|_| EngineError::Interrupted)
    }
}

impl SourceShared<'_> {
    /// Queues the blocks of `files`, small files packed together.
    fn queue(&self, files: Vec<Arc<SourceFile>>, jobs: &Sender<Job>) -> Result<()> {
        // The readers end only when the copy ends.
        let send = |job| jobs.send(job).map_err(|_| EngineError::Interrupted);
        let mut pack = Vec::new();
        let mut packed_bytes = 0;
        let most = self.context.block_bytes.min(PACK_BYTES as u64);
        for file in files {
            if file.fed_by().is_some() {
                send(Job::Stream(file))?;
            } else if file.is_small(self.context.block_bytes) {
                if packed_bytes + file.size > most || pack.len() >= PACK_FILES_LIMIT {
                    send(Job::Pack(std::mem::take(&mut pack)))?;
                    packed_bytes = 0;
                }
                packed_bytes += file.size;
                pack.push(file);
            } else {
                for block in file.blocks_to_read() {
                    let offset = block * self.context.block_bytes;
                    send(Job::Block { file: file.clone(), offset })?;
                }
            }
        }
        if pack.is_empty() { Ok(()) } else { send(Job::Pack(pack)) }
    }
}
