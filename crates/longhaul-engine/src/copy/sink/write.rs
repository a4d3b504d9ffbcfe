//! The stages after verification: write, then sync and name.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};

use super::finish::{CompleteFile, Form, SYNC_BATCH};
use super::ledger::{FileState, Piece, SinkFile, Stage};
use super::partial::PartialFile;
use super::shared::{ReceivedBuffer, ReceivedContent, SinkShared};
use crate::copy::pool::PoolBuffer;

/// Writes until no more blocks arrive; passes on complete files.
pub(super) fn write_blocks(
    shared: &SinkShared<'_>,
    blocks: &Receiver<ReceivedBuffer>,
    finished: &Sender<Vec<CompleteFile>>,
) {
    let mut writes = false;
    for ReceivedBuffer { what, buffer } in blocks {
        // The connections may already have written everything.
        if !std::mem::replace(&mut writes, true) {
            shared.meters.writing.join();
        }
        let complete = match what {
            ReceivedContent::Block { file, offset, length, digest } => {
                let piece = digest.map(|digest| Piece { offset, length: length as u64, digest });
                write_block(shared, file, (offset, length), piece, buffer).into_iter().collect()
            }
            ReceivedContent::Pack(pieces) => {
                shared.meters.writing.time(|| write_pack(shared, pieces, &buffer))
            }
        };
        if !complete.is_empty() && finished.send(complete).is_err() {
            return;
        }
    }
}

/// Writes one block. Returns the file if the block was its last one.
fn write_block(
    shared: &SinkShared<'_>,
    file: Arc<SinkFile>,
    (offset, length): (u64, usize),
    piece: Option<Piece>,
    mut buffer: PoolBuffer,
) -> Option<CompleteFile> {
    // Other files have claimed their size.
    if file.stream
        && let Err(full) = shared.store.space.claim_quota(length as u64)
    {
        shared.abort(full);
        return None;
    }
    let written = shared.meters.writing.time(|| {
        let Some(partial) = shared.opened(&file).map_err(|error| ("create", error))? else {
            return Ok(false);
        };
        // Another connection writes the same block in pieces; if that fails, it is requested again.
        if file.lock().is_claimed(offset / shared.context.options.block_bytes.get()) {
            return Ok(false);
        }
        if let Some(digest) = &file.digest {
            digest.add(offset, &buffer[..length], file.known_size());
        }
        match (partial, shared.store.outlet()) {
            (Some(partial), _) => {
                partial.write(offset, length, &mut buffer, &shared.store.disk).map(|()| true)
            }
            (None, Some(outlet)) => outlet.put(offset, length, buffer).map(|()| true),
            (None, None) => Ok(true),
        }
        .map_err(|error| ("write", error))
    });
    match written {
        Ok(false) => None,
        Ok(true) => {
            let mut state = file.lock();
            shared.count_written(&mut state, (offset, length), piece);
            let partial = state.take_complete()?;
            drop(state);
            Some(CompleteFile { file, form: partial.map_or(Form::Dropped, Form::Open) })
        }
        Err((operation, error)) => {
            shared.fail(&file, operation, &error);
            None
        }
    }
}

/// Writes whole small files.
fn write_pack(
    shared: &SinkShared<'_>,
    pieces: Vec<(Arc<SinkFile>, usize)>,
    buffer: &[u8],
) -> Vec<CompleteFile> {
    let mut complete = Vec::with_capacity(pieces.len());
    for (file, start) in pieces {
        let before = std::mem::replace(&mut file.lock().partial, Stage::Gone);
        match before {
            Stage::Waiting => {}
            // The complete file replaces blocks of this or an earlier attempt.
            Stage::Open(partial) => shared.take_over(&file, partial.as_deref()),
            // It has failed or was written.
            Stage::Gone => continue,
        }
        let bytes = &buffer[start..start + file.size() as usize];
        if let Some(digest) = &file.digest {
            digest.add(0, bytes, Some(file.size()));
        }
        let durable = shared.context.options.durable;
        let passed_on = shared.store.outlet().map_or(Ok(()), |outlet| outlet.put_all(bytes));
        let created = passed_on.and_then(|()| shared.store.create_small(&file, bytes, durable));
        match created {
            Ok(temporary) => {
                shared.settle_claim(&file);
                shared.records.ledger.add_written(file.size());
                let form = temporary.map_or(Form::Dropped, |(name, id)| Form::Closed(name, id));
                complete.push(CompleteFile { file, form });
            }
            Err(error) => shared.fail(&file, create_or_write(&error), &error),
        }
    }
    complete
}

/// Returns the verb for a small file's failure.
fn create_or_write(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "write",
        _ => "create",
    }
}

/// Finishes complete files in groups: while one group is synced, the next one is collected.
pub(super) fn finish_files(shared: &SinkShared<'_>, finished: &Receiver<Vec<CompleteFile>>) {
    shared.meters.syncing.join();
    while let Ok(mut wave) = finished.recv() {
        while wave.len() < SYNC_BATCH
            && let Ok(more) = finished.try_recv()
        {
            wave.extend(more);
        }
        shared.meters.syncing.time(|| {
            shared.finisher.finish(wave, |file, outcome| match outcome {
                Ok(placed) => {
                    if let Some(id) = placed {
                        shared.recorder.placed(file, id);
                    }
                    shared.settle(file);
                }
                Err(error) => shared.fail(file, "finish", &error),
            });
        });
    }
}

impl SinkShared<'_> {
    /// Drops the blocks of a file that has arrived completely.
    fn take_over(&self, file: &SinkFile, partial: Option<&PartialFile>) {
        self.recorder.dropped(file);
        if let Some(partial) = partial {
            partial.temporary.discard();
        }
        self.records.ledger.take_back(file.resumed.swap(0, Ordering::Relaxed));
    }

    /// Returns the file on disk, which is created with its first block. The outer `None` means that
    /// the file has failed or is complete, the inner one that its bytes are dropped.
    pub(super) fn opened(
        &self,
        file: &Arc<SinkFile>,
    ) -> io::Result<Option<Option<Arc<PartialFile>>>> {
        let mut state = file.lock();
        match &state.partial {
            Stage::Gone => return Ok(None),
            Stage::Open(partial) => return Ok(Some(partial.clone())),
            Stage::Waiting => {}
        }
        let made = self.store.create(file.id, &file.path, file.size(), file.sparse)?;
        let made = made.map(Arc::new);
        // Its space is reserved, or is taken by the writes.
        if !file.sparse && file.known_size().is_some() {
            self.settle_claim(file);
        }
        if let Some(partial) = &made {
            self.recorder.begun(file, partial, false);
        }
        state.partial = Stage::Open(made.clone());
        Ok(Some(made))
    }

    /// Counts a block that was verified and written; `piece` is for the journal.
    pub(super) fn count_written(
        &self,
        state: &mut FileState,
        (offset, length): (u64, usize),
        piece: Option<Piece>,
    ) {
        self.records.ledger.add_written(length as u64);
        if !state.note_written(offset / self.context.options.block_bytes.get()) {
            state.fresh.extend(piece);
        }
    }

    /// Returns whether the journal gets records of the blocks of `file`. A pack holds whole files,
    /// which are complete at once.
    pub(super) fn is_journalled(&self, file: &SinkFile) -> bool {
        self.recorder.has_journal() && file.has_several(self.context.options.block_bytes.get())
    }

    /// Settles a complete file.
    pub(super) fn settle(&self, file: &SinkFile) {
        if let Err(error) = self.note_digest(file) {
            let sent = self.report_failure(None, &file.path, "read", &error);
            self.context.cancel.check(sent);
        }
        self.settle_claim(file);
        self.records.ledger.done(file);
    }
}
