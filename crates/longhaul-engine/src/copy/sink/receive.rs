//! The first stage: takes blocks off a connection and verifies them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::wire::copy::SinkMessage;
use longhaul_core::wire::{BlockHeader, PackEntry};
use longhaul_sys::tcp::{TcpInfo, tcp_info};

use super::buffered::{BufferedBlock, Outcome};
use super::ledger::{NoEntry, SinkFile};
use super::shared::{Received, ReceivedBuffer, ReceivedContent, SinkShared, broken};
use crate::copy::data_connection::{BlockReceiver, Payload};
use crate::copy::streams::data_failed;
use crate::error::EngineError;

/// Blocks that may fail their check before the copy is ended, besides one in [`RESEND_SHARE`]: a
/// path that corrupts more is broken, and a hostile peer gets no further.
const RESEND_LIMIT: u64 = 256;
const RESEND_SHARE: u64 = 16;
/// The maximum number of blocks by which a block of a stream can be ahead of the first missing one:
/// more than a source keeps for retransmission.
const STREAM_LEAD: u64 = 1 << 16;
/// The reason for ending the connections of a copy to standard output.
const SPOILT: &str = "a block arrived corrupted";

/// The data that a header announces, with their files.
enum Incoming {
    /// A block; `None` if its file has failed, so that the block is dropped.
    Block {
        file: Option<Arc<SinkFile>>,
        id: u64,
        offset: u64,
        length: usize,
    },
    Pack {
        files: Vec<PackEntry>,
        length: usize,
    },
}

/// The reason why a connection delivers no more blocks.
enum ConnectionEnd {
    /// The source has sent the end, or nothing is missing.
    Well,
    /// The connection broke.
    Broken(io::Error),
    /// The copy is over.
    Over,
    /// The source violates the protocol.
    Hostile(&'static str),
}

impl ConnectionEnd {
    fn no_entry(reason: NoEntry) -> Self {
        match reason {
            NoEntry::Over => ConnectionEnd::Over,
            NoEntry::Never => {
                ConnectionEnd::Hostile("it sent a block of a file that it never announced")
            }
        }
    }
}

/// Receives and verifies the blocks of one connection, and returns its TCP state.
pub(super) fn receive_blocks(
    shared: &SinkShared<'_>,
    stream: u32,
    mut receiver: BlockReceiver,
    onward: &Received,
) -> Option<TcpInfo> {
    shared.meters.receiving.join();
    shared.meters.verifying.join();
    let mut writes = false;
    let ended = loop {
        if let Err(ended) = receive_block(shared, &mut receiver, onward, &mut writes) {
            break ended;
        }
    };
    match ended {
        ConnectionEnd::Well => return tcp_info(receiver.socket()).ok(),
        // The source has disconnected, and no data are missing.
        ConnectionEnd::Broken(_) if shared.records.ledger.is_complete() => {
            return tcp_info(receiver.socket()).ok();
        }
        ConnectionEnd::Broken(source) if source.kind() == io::ErrorKind::InvalidData => {
            shared.abort(EngineError::Data { stream, source });
        }
        ConnectionEnd::Broken(source) => data_failed(&shared.context.cancel, stream, source),
        ConnectionEnd::Over => {}
        ConnectionEnd::Hostile(what) => shared.abort(broken(shared.context.control.peer(), what)),
    }
    None
}

fn receive_block(
    shared: &SinkShared<'_>,
    receiver: &mut BlockReceiver,
    onward: &Received,
    writes: &mut bool,
) -> Result<(), ConnectionEnd> {
    let Some(coming) = coming(shared, receiver)? else { return Err(ConnectionEnd::Well) };
    if let Incoming::Block { file: Some(file), offset, length, .. } = &coming
        && let Some(block) = BufferedBlock::claim(shared, file, (*offset, *length))
    {
        if !std::mem::replace(writes, true) {
            shared.meters.writing.join();
        }
        return match block.receive(receiver).map_err(ConnectionEnd::Broken)? {
            Outcome::Spoilt => ask_again(shared, &coming),
            Outcome::Received(None) => Ok(()),
            Outcome::Received(Some(complete)) => {
                onward.complete.send(vec![complete]).map_err(|_| ConnectionEnd::Over)
            }
        };
    }
    if let (Some(outlet), Incoming::Block { offset, .. }) = (shared.store.outlet(), &coming) {
        outlet.wait_for(*offset).ok_or(ConnectionEnd::Over)?;
    }
    let (Incoming::Block { length, .. } | Incoming::Pack { length, .. }) = coming;
    let mut buffer = shared.context.pools.take(length).ok_or(ConnectionEnd::Over)?;
    // For the journal. A pack holds whole files, which are complete at once.
    let noted = match &coming {
        Incoming::Block { file: Some(file), .. } => shared.is_journalled(file),
        Incoming::Block { file: None, .. } | Incoming::Pack { .. } => false,
    };
    let Payload { intact, digest } = shared
        .meters
        .receiving
        .time(|| receiver.payload(&mut buffer, length, noted))
        .map_err(ConnectionEnd::Broken)?;
    shared.meters.verifying.add(receiver.take_verifying());
    if !intact {
        if shared.store.outlet().is_some() {
            // All later blocks wait for it. It is available only over new connections.
            shared.records.resent.fetch_add(1, Ordering::Relaxed);
            return Err(ConnectionEnd::Broken(io::Error::new(io::ErrorKind::InvalidData, SPOILT)));
        }
        return ask_again(shared, &coming);
    }
    match content(shared, coming, digest.filter(|_| noted))? {
        Some(what) => {
            onward.blocks.send(ReceivedBuffer { what, buffer }).map_err(|_| ConnectionEnd::Over)
        }
        None => Ok(()),
    }
}

/// Returns the content of a verified buffer with its files; `None` if its file has failed.
fn content(
    shared: &SinkShared<'_>,
    coming: Incoming,
    digest: Option<u128>,
) -> Result<Option<ReceivedContent>, ConnectionEnd> {
    let files = match coming {
        Incoming::Block { file, offset, length, .. } => {
            return Ok(file.map(|file| ReceivedContent::Block { file, offset, length, digest }));
        }
        Incoming::Pack { files, .. } => files,
    };
    let mut pieces = Vec::with_capacity(files.len());
    let mut start = 0;
    for PackEntry { file: id, length } in files {
        if let Some(file) = shared.records.ledger.file(id).map_err(ConnectionEnd::no_entry)? {
            if file.size() != u64::from(length) {
                return Err(ConnectionEnd::Hostile("it sent a file of another length"));
            }
            pieces.push((file, start));
        }
        start += length as usize;
    }
    Ok(Some(ReceivedContent::Pack(pieces)))
}

/// Reads the next header and finds its files; `None` at the end of the connection's blocks.
fn coming(
    shared: &SinkShared<'_>,
    receiver: &mut BlockReceiver,
) -> Result<Option<Incoming>, ConnectionEnd> {
    let block_bytes = shared.context.options.block_bytes.get();
    match shared.meters.receiving.time(|| receiver.header()).map_err(ConnectionEnd::Broken)? {
        BlockHeader::End => Ok(None),
        BlockHeader::Block { file: id, offset, length } => {
            let file = shared.records.ledger.file(id).map_err(ConnectionEnd::no_entry)?;
            let length = length as usize;
            if !fits(file.as_deref(), offset, length, block_bytes) {
                return Err(ConnectionEnd::Hostile("it sent a block that does not fit"));
            }
            Ok(Some(Incoming::Block { file, id, offset, length }))
        }
        BlockHeader::Pack { files, length } => {
            if u64::from(length) > block_bytes {
                return Err(ConnectionEnd::Hostile("it sent a pack that does not fit"));
            }
            let files = receiver.table(files, length).map_err(ConnectionEnd::Broken)?;
            Ok(Some(Incoming::Pack { files, length: length as usize }))
        }
    }
}

fn ask_again(shared: &SinkShared<'_>, coming: &Incoming) -> Result<(), ConnectionEnd> {
    if let Incoming::Block { id, .. } = coming
        && shared.records.ledger.file(*id).map_err(ConnectionEnd::no_entry)?.is_none()
    {
        // The source marks the block of a file that it cannot read as invalid.
        return Ok(());
    }
    let good = shared.records.ledger.written_bytes() / shared.context.options.block_bytes.get();
    if shared.records.resent.fetch_add(1, Ordering::Relaxed) >= RESEND_LIMIT + good / RESEND_SHARE {
        return Err(ConnectionEnd::Hostile("too many blocks arrive corrupted"));
    }
    let ask = |id, offset| {
        shared
            .context
            .cancel
            .check(shared.context.control.send(&SinkMessage::Resend { id, offset }));
    };
    match coming {
        Incoming::Block { file: None, .. } => {}
        Incoming::Block { id, offset, .. } => ask(*id, *offset),
        Incoming::Pack { files, .. } => {
            for entry in files {
                let wanted =
                    shared.records.ledger.file(entry.file).map_err(ConnectionEnd::no_entry)?;
                if wanted.is_some() {
                    ask(entry.file, 0);
                }
            }
        }
    }
    Ok(())
}

/// Returns whether the block is a block of the file, with its offset and length. Any block fits a
/// file that has failed.
fn fits(file: Option<&SinkFile>, offset: u64, length: usize, block_bytes: u64) -> bool {
    let length = length as u64;
    let Some(file) = file else { return length <= block_bytes };
    if !offset.is_multiple_of(block_bytes) {
        return false;
    }
    match file.known_size() {
        Some(size) => offset < size && length == block_bytes.min(size - offset),
        // Its blocks arrive in order, except between connections.
        None => {
            let written = file.lock().written.leading();
            length <= block_bytes && offset / block_bytes < written.saturating_add(STREAM_LEAD)
        }
    }
}
