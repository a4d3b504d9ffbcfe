//! Blocks that the thread of a connection writes in pieces through the page cache, as they arrive.
//!
//! A block counts after the sink has received, verified and written all of it. Until then neither
//! the ledger nor the journal lists it, and its bytes in the file are undefined. A connection
//! claims the block before it writes: no other connection writes it at the same time, and a written
//! block is not written again. Blocks of a sparse file are not received in pieces: the sink skips
//! pages of zeros, so a rejected block could leave other bytes in a hole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use super::finish::{CompleteFile, Form};
use super::ledger::{Piece, SinkFile};
use super::partial::PartialFile;
use super::shared::SinkShared;
use crate::copy::data_connection::{BlockReceiver, Payload};
use crate::copy::disk::IoMode;

/// A block that is received in pieces.
pub(super) struct BufferedBlock<'a> {
    shared: &'a SinkShared<'a>,
    file: &'a Arc<SinkFile>,
    offset: u64,
    length: usize,
    target: Target,
}

/// The destination of the pieces.
enum Target {
    /// The file on disk.
    File(Arc<PartialFile>),
    /// A target that stores nothing.
    Nothing,
    /// The pieces are dropped and do not count: the file has failed, or the block is already
    /// written.
    Dropped,
}

/// The outcome of a block that has arrived.
pub(super) enum Outcome {
    /// Its check failed.
    Spoilt,
    /// The block was written or dropped. Has the file if the block was its last one.
    Received(Option<CompleteFile>),
}

impl<'a> BufferedBlock<'a> {
    /// Claims the block of `length` bytes at `offset`; `None` if it is not written in pieces.
    pub(super) fn claim(
        shared: &'a SinkShared<'a>,
        file: &'a Arc<SinkFile>,
        (offset, length): (u64, usize),
    ) -> Option<Self> {
        let size = file.known_size().filter(|_| !file.sparse)?;
        // The creation of the file reports this failure again.
        if !shared.store.buffers(&file.path, size).unwrap_or(false) {
            return None;
        }
        let target = match shared.meters.writing.time(|| shared.opened(file)) {
            Ok(None) => Target::Dropped,
            Ok(Some(partial)) => partial.map_or(Target::Nothing, Target::File),
            Err(error) => {
                shared.fail(file, "create", &error);
                Target::Dropped
            }
        };
        let block = offset / shared.context.options.block_bytes.get();
        let target = if file.lock().claim(block) { target } else { Target::Dropped };
        Some(BufferedBlock { shared, file, offset, length, target })
    }

    /// Receives the pieces and writes each one.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn receive(self, receiver: &mut BlockReceiver) -> io::Result<Outcome> {
        let noted = self.shared.is_journalled(self.file);
        let mut run = match (&self.file.digest, &self.target) {
            (Some(digest), Target::File(_) | Target::Nothing) => {
                Some(digest.run(self.offset, self.file.known_size()))
            }
            _ => None,
        };
        let mut write = match &self.target {
            Target::File(partial) => partial.for_pieces().map(Some),
            Target::Nothing | Target::Dropped => Ok(None),
        };
        let meters = &self.shared.meters;
        let payload = meters.receiving.time_without(|other| {
            receiver.receive_in_pieces(self.length, noted, |start, piece| {
                if let Some(run) = &mut run {
                    run.update(piece);
                }
                if let Ok(Some(file)) = write {
                    let (begun, at) = (Instant::now(), self.offset + start as u64);
                    if let Err(error) = meters.writing.time(|| file.write_all_at(piece, at)) {
                        write = Err(error);
                    }
                    *other += begun.elapsed();
                }
            })
        });
        meters.verifying.add(receiver.take_verifying());
        let taken = !matches!(self.target, Target::Dropped);
        match payload {
            Ok(Payload { intact: true, digest }) if taken => match write {
                Ok(file) => {
                    if let (Some(digest), Some(run)) = (&self.file.digest, run) {
                        digest.take(run);
                    }
                    if let Some(file) = file {
                        self.begin_writeback(file);
                    }
                    Ok(Outcome::Received(self.count(digest.filter(|_| noted))))
                }
                Err(error) => {
                    self.release();
                    self.shared.fail(self.file, "write", &error);
                    Ok(Outcome::Received(None))
                }
            },
            Ok(Payload { intact, .. }) => {
                self.release();
                Ok(if intact { Outcome::Received(None) } else { Outcome::Spoilt })
            }
            Err(error) => {
                self.release();
                Err(error)
            }
        }
    }

    /// Lets the kernel write the block to the disk, so that the final sync is short.
    fn begin_writeback(&self, file: &File) {
        let Target::File(partial) = &self.target else { return };
        let disk = &self.shared.store.disk;
        disk.add(IoMode::Cached, self.length as u64);
        if self.shared.context.options.durable
            && !disk.is_in_memory(partial.temporary.dir.device, file)
        {
            // A file system that does not support it writes later.
            let _ = longhaul_sys::file::begin_writeback(file, self.offset, self.length as u64);
        }
    }

    /// Counts the written block. Returns the file if the block was the last one.
    fn count(&self, digest: Option<u128>) -> Option<CompleteFile> {
        let (offset, length) = (self.offset, self.length);
        let piece = digest.map(|digest| Piece { offset, length: length as u64, digest });
        let mut state = self.file.lock();
        state.release(self.block());
        self.shared.count_written(&mut state, (offset, length), piece);
        let partial = state.take_complete()?;
        drop(state);
        let form = partial.map_or(Form::Dropped, Form::Open);
        Some(CompleteFile { file: self.file.clone(), form })
    }

    /// Ends the claim on a block that is not written. If it was written by another thread meanwhile,
    /// its bytes are those of two blocks, and the file fails.
    fn release(&self) {
        if matches!(self.target, Target::Dropped) {
            return;
        }
        let mut state = self.file.lock();
        state.release(self.block());
        let written = state.written.contains(self.block());
        drop(state);
        if written {
            let error = io::Error::other("a block arrived twice at once");
            self.shared.fail(self.file, "write", &error);
        }
    }

    fn block(&self) -> u64 {
        self.offset / self.shared.context.options.block_bytes.get()
    }
}
