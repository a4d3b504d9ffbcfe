//! The stages that move bytes: readers fill buffers; senders send the buffers, or read and send
//! blocks in pieces.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::units::Bytes;
use longhaul_core::wire::PackEntry;
use longhaul_core::wire::copy::SourceMessage;
use longhaul_sys::tcp::{TcpInfo, tcp_info};

use super::feed::{Next, ReadError};
use super::file::{PieceSource, SourceFile};
use super::shared::{Job, ReadContent, SourceShared};
use crate::copy::data_connection::BlockSender;
use crate::copy::disk::IoMode;
use crate::copy::pool::PACK_BYTES;
use crate::copy::streams::data_failed;

/// Reads until there are no more jobs.
pub(super) fn read_blocks(
    shared: &SourceShared<'_>,
    jobs: &Receiver<Job>,
    filled: &Sender<ReadContent>,
) {
    // Before the first read, because the connections may read everything.
    let joined = OnceCell::new();
    let join = || *joined.get_or_init(|| shared.meters.reading.join());
    for job in jobs {
        let ready = match job {
            Job::Stream(file) => {
                join();
                read_stream(shared, &file, filled);
                continue;
            }
            Job::Block { file, .. } if file.has_failed() => continue,
            Job::Block { file, offset } => read_block(shared, (file, offset), join),
            Job::Pack(files) => {
                let Some(mut buffer) = shared.context.pools.take(PACK_BYTES) else { return };
                join();
                let (files, length) =
                    shared.meters.reading.time(|| read_pack(shared, files, &mut buffer));
                Ok((!files.is_empty()).then_some(ReadContent::Pack { files, length, buffer }))
            }
        };
        match ready {
            Ok(None) => {}
            Ok(Some(ready)) => {
                if filled.send(ready).is_err() {
                    return;
                }
            }
            Err(CopyEnded) => return,
        }
    }
}

/// The copy is over.
struct CopyEnded;

/// Reads a block after a call of `join`, or lets a connection read it; `None` if the file has
/// failed.
fn read_block(
    shared: &SourceShared<'_>,
    (file, offset): (Arc<SourceFile>, u64),
    join: impl Fn(),
) -> Result<Option<ReadContent>, CopyEnded> {
    let context = &shared.context;
    let reading = &shared.meters.reading;
    let pieces = || reading.time(|| file.pieces(offset, &context.disk));
    match if context.in_pieces { pieces() } else { Ok(None) } {
        Ok(Some(from)) => return Ok(Some(ReadContent::Pieces { file, offset, from })),
        Ok(None) => {}
        Err(error) => {
            shared.fail(&file, &error);
            return Ok(None);
        }
    }
    let mut buffer = context.pools.take(context.block_bytes as usize).ok_or(CopyEnded)?;
    join();
    match reading.time(|| file.read(offset, &mut buffer, &context.disk)) {
        Ok(length) => Ok(Some(ReadContent::Block { file, offset, length, buffer })),
        Err(error) => {
            shared.fail(&file, &error);
            Ok(None)
        }
    }
}

/// Reads a stream to its end, and reports its length.
fn read_stream(shared: &SourceShared<'_>, file: &Arc<SourceFile>, filled: &Sender<ReadContent>) {
    let Some(feed) = file.fed_by() else { return };
    let send = |block: u64| {
        let block_bytes = shared.context.block_bytes as usize;
        let Some(mut buffer) = shared.context.pools.take(block_bytes) else { return Ok(false) };
        let length = feed.copy(block, &mut buffer)?;
        let (file, offset) = (file.clone(), block * shared.context.block_bytes);
        Ok(filled.send(ReadContent::Block { file, offset, length, buffer }).is_ok())
    };
    let over = || shared.context.cancel.is_set() || file.has_failed();
    let poured = || -> Result<Option<u64>, ReadError> {
        for block in feed.again(|block| file.leaves_out(block))? {
            if !send(block)? {
                return Ok(None);
            }
        }
        loop {
            let next = shared.meters.reading.time(|| feed.next(shared.context.block_bytes, over));
            match next.map_err(ReadError::Read)? {
                Next::Block(block) if send(block)? => {}
                Next::Block(_) | Next::Over => return Ok(None),
                Next::End(size) => return Ok(Some(size)),
            }
        }
    };
    match poured() {
        Ok(None) => {}
        Ok(Some(size)) => {
            let size_bytes = Bytes::new(size);
            shared.context.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
            shared.context.progress.listed.store(true, Ordering::Relaxed);
            let length = SourceMessage::Length { id: file.id, size_bytes };
            shared.context.cancel.check(shared.context.control.send(&length));
        }
        Err(error) => shared.fail(file, &error),
    }
}

/// Reads small files one after another, and returns those that could be read and their length. All
/// are opened before the first is read, so that the disk has several requests at once.
fn read_pack(
    shared: &SourceShared<'_>,
    files: Vec<Arc<SourceFile>>,
    buffer: &mut [u8],
) -> (Vec<Arc<SourceFile>>, usize) {
    let opened: Vec<_> = files
        .into_iter()
        .filter(|file| !file.has_failed())
        .map(|file| (file.open_small(), file))
        .collect();
    let (mut length, mut moved) = (0, 0);
    let mut read = Vec::with_capacity(opened.len());
    for (open, file) in opened {
        let outcome = open.and_then(|open| match open {
            Some(open) => {
                moved += file.size;
                file.read_small(&open, &mut buffer[length..])
            }
            None => {
                buffer[length..length + file.size as usize].fill(0);
                Ok(())
            }
        });
        match outcome {
            Ok(()) => {
                length += file.size as usize;
                read.push(file);
            }
            Err(error) => shared.fail(&file, &error),
        }
    }
    shared.context.disk.add(IoMode::Cached, moved);
    (read, length)
}

/// Sends blocks until there are no more, and returns the TCP state of the connection.
pub(super) fn send_blocks(
    shared: &SourceShared<'_>,
    stream: u32,
    mut sender: BlockSender,
    blocks: &Receiver<ReadContent>,
) -> Option<TcpInfo> {
    shared.meters.sending.join();
    shared.meters.sealing.join();
    let mut reads = false;
    for filled in blocks {
        let sending = &shared.meters.sending;
        let sent = match filled {
            ReadContent::Block { file, .. } | ReadContent::Pieces { file, .. }
                if file.has_failed() =>
            {
                Ok(())
            }
            ReadContent::Block { file, offset, length, mut buffer } => {
                sending.time(|| sender.send(file.id, offset, &mut buffer[..length]))
            }
            ReadContent::Pack { files, length, mut buffer } => {
                let entry =
                    |file: &Arc<SourceFile>| PackEntry { file: file.id, length: file.size as u32 };
                let table: Vec<_> = files.iter().map(entry).collect();
                sending.time(|| sender.send_pack(&table, &mut buffer[..length]))
            }
            ReadContent::Pieces { file, offset, from } => {
                if !std::mem::replace(&mut reads, true) {
                    shared.meters.reading.join();
                }
                send_in_pieces(shared, &mut sender, &file, (offset, &from))
            }
        };
        shared.meters.sealing.add(sender.take_sealing());
        if let Err(error) = sent {
            data_failed(&shared.context.cancel, stream, error);
            return None;
        }
    }
    if !shared.context.cancel.is_set() {
        // The sink may have disconnected after it reported the end.
        let _ = sender.finish();
    }
    tcp_info(sender.socket()).ok()
}

/// Reads a block in pieces and sends them. If the file fails meanwhile, the sink gets the reason
/// before the rest of the block, which it does not accept.
fn send_in_pieces(
    shared: &SourceShared<'_>,
    sender: &mut BlockSender,
    file: &SourceFile,
    (offset, from): (u64, &PieceSource),
) -> io::Result<()> {
    let length = file.block_length(offset);
    shared.meters.sending.time_without(|reading| {
        let fill = |start: usize, piece: &mut [u8]| {
            let begun = Instant::now();
            let read = shared.meters.reading.time(|| {
                from.read(offset + start as u64, piece)?;
                if start + piece.len() == length { file.finish_block() } else { Ok(()) }
            });
            *reading += begun.elapsed();
            read.inspect_err(|error| shared.fail(file, error)).is_ok()
        };
        sender.send_in_pieces((file.id, offset, length), fill)
    })?;
    if matches!(from, PieceSource::File(_)) {
        shared.context.disk.add(IoMode::Cached, length as u64);
    }
    Ok(())
}

impl SourceShared<'_> {
    /// Marks a file as failed, and reports that to the sink once.
    fn fail(&self, file: &SourceFile, error: &ReadError) {
        if file.fail() {
            let sent = self.failed(Some(file.id), &file.path, &error.to_string());
            self.context.cancel.check(sent);
        }
    }
}
