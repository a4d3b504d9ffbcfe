//! The stages that move bytes: readers fill buffers, senders empty them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::units::Bytes;
use longhaul_core::wire::PackEntry;
use longhaul_core::wire::copy::SourceMessage;
use longhaul_sys::tcp::{TcpInfo, tcp_info};

use super::feed::{Next, ReadError};
use super::file::SourceFile;
use super::shared::{Filled, FilledContent, Job, SourceShared};
use crate::copy::data_connection::BlockSender;
use crate::copy::pool::PACK_BYTES;
use crate::copy::streams::data_failed;

/// Reads until there are no more jobs.
pub(super) fn read_blocks(
    shared: &SourceShared<'_>,
    jobs: &Receiver<Job>,
    filled: &Sender<Filled>,
) {
    shared.meters.reading.join();
    for job in jobs {
        if let Job::Stream(file) = job {
            read_stream(shared, &file, filled);
            continue;
        }
        let most = match &job {
            Job::Pack(_) => PACK_BYTES,
            Job::Block { .. } | Job::Stream(_) => shared.context.block_bytes as usize,
        };
        let Some(mut buffer) = shared.context.pools.take(most) else { return };
        let ready = match job {
            Job::Stream(_) => None,
            Job::Block { file, .. } if file.has_failed() => None,
            Job::Block { file, offset } => {
                match shared
                    .meters
                    .reading
                    .time(|| file.read(offset, &mut buffer, &shared.context.disk))
                {
                    Ok(length) => Some((FilledContent::Block { file, offset }, length)),
                    Err(error) => {
                        shared.fail(&file, &error);
                        None
                    }
                }
            }
            Job::Pack(files) => {
                let (files, length) =
                    shared.meters.reading.time(|| read_pack(shared, files, &mut buffer));
                (!files.is_empty()).then_some((FilledContent::Pack(files), length))
            }
        };
        let Some((what, length)) = ready else { continue };
        if filled.send(Filled { what, length, buffer }).is_err() {
            return;
        }
    }
}

/// Reads a stream to its end, and reports its length.
fn read_stream(shared: &SourceShared<'_>, file: &Arc<SourceFile>, filled: &Sender<Filled>) {
    let Some(feed) = file.fed_by() else { return };
    let send = |block: u64| {
        let block_bytes = shared.context.block_bytes as usize;
        let Some(mut buffer) = shared.context.pools.take(block_bytes) else { return Ok(false) };
        let length = feed.copy(block, &mut buffer)?;
        let what =
            FilledContent::Block { file: file.clone(), offset: block * shared.context.block_bytes };
        Ok(filled.send(Filled { what, length, buffer }).is_ok())
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
    let mut length = 0;
    let mut read = Vec::with_capacity(opened.len());
    for (open, file) in opened {
        let outcome = open.and_then(|open| match open {
            Some(open) => file.read_small(&open, &mut buffer[length..]),
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
    (read, length)
}

/// Sends blocks until there are no more, and returns the TCP state of the connection.
pub(super) fn send_blocks(
    shared: &SourceShared<'_>,
    stream: u32,
    mut sender: BlockSender,
    blocks: &Receiver<Filled>,
) -> Option<TcpInfo> {
    shared.meters.sending.join();
    shared.meters.sealing.join();
    for Filled { what, length, mut buffer } in blocks {
        let payload = &mut buffer[..length];
        let sent = shared.meters.sending.time(|| match &what {
            FilledContent::Block { file, .. } if file.has_failed() => Ok(()),
            FilledContent::Block { file, offset } => sender.send(file.id, *offset, payload),
            FilledContent::Pack(files) => {
                let table: Vec<_> = files
                    .iter()
                    .map(|file| PackEntry { file: file.id, length: file.size as u32 })
                    .collect();
                sender.send_pack(&table, payload)
            }
        });
        shared.meters.sealing.add(sender.take_sealing());
        if let Err(error) = sent {
            data_failed(&shared.context.cancel, stream, error);
            return None;
        }
    }
    if !shared.context.cancel.is_set() {
        // The sink can have left: it has reported the end.
        let _ = sender.finish();
    }
    tcp_info(sender.socket()).ok()
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
