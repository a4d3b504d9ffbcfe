//! Reads again what an earlier attempt has written, while the rest is received.
//!
//! Bytes of an earlier attempt count once they were read and have the digest that the journal has of
//! them. The source leaves their blocks out meanwhile; those that fail are asked for again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::wire::copy::SinkMessage;
use longhaul_sys::memory::{AlignedBuffer, DIRECT_ALIGN};
use twox_hash::XxHash3_128;

use super::finish::{CompleteFile, Form};
use super::ledger::SinkFile;
use super::partial::PartialFile;
use super::run::Shared;
use crate::copy::blocks::{BlockSet, joined};
use crate::copy::journal::{Claim, Digest};
use crate::lock::lock;

/// Threads that read: one reads while the other hashes.
pub(super) const REREADERS: usize = 2;

/// A part of a file to be read again.
pub(super) struct Reread {
    of: Arc<Claimed>,
    claim: Claim,
}

/// A file that an earlier attempt has begun.
struct Claimed {
    file: Arc<SinkFile>,
    partial: Arc<PartialFile>,
    /// The blocks that the source leaves out since an earlier attempt has written them.
    blocks: BlockSet,
    cached: OnceLock<Option<File>>,
    direct: OnceLock<Option<File>>,
    state: Mutex<State>,
}

struct State {
    /// Claims that are not decided.
    left: usize,
    /// Bytes that are as they were written.
    good: Vec<(u64, u64)>,
    /// Blocks that the source was asked for again.
    asked: BlockSet,
}

impl Reread {
    /// What is to be read of `file` for the source to have left out `blocks` rightly.
    pub(super) fn all(
        file: &Arc<SinkFile>,
        partial: &Arc<PartialFile>,
        claims: Vec<Claim>,
        blocks: BlockSet,
    ) -> impl Iterator<Item = Reread> {
        let (file, partial) = (file.clone(), partial.clone());
        let state = State { left: claims.len(), good: Vec::new(), asked: BlockSet::default() };
        let (cached, direct, state) = (OnceLock::new(), OnceLock::new(), Mutex::new(state));
        let of = Arc::new(Claimed { file, partial, blocks, cached, direct, state });
        claims.into_iter().map(move |claim| Reread { of: of.clone(), claim })
    }
}

/// Reads again until nothing more is to be read; passes on the files that are whole.
pub(super) fn read_again(
    shared: &Shared<'_>,
    claims: &Receiver<Reread>,
    whole: &Sender<Vec<CompleteFile>>,
) {
    let mut buffer = AlignedBuffer::new(DIRECT_ALIGN);
    for Reread { of, claim } in claims {
        if shared.cancel.is_set() {
            return;
        }
        if of.file.lock().is_gone() {
            continue;
        }
        if buffer.len() < claim.piece_bytes as usize {
            buffer = AlignedBuffer::new(claim.piece_bytes as usize);
        }
        let good = of.holds(&claim, &mut buffer);
        if let Some(complete) = of.decide(shared, (claim.offset, claim.length), good)
            && whole.send(vec![complete]).is_err()
        {
            return;
        }
    }
}

impl Claimed {
    /// Whether the bytes of `claim` are still those that were written.
    fn holds(&self, claim: &Claim, buffer: &mut [u8]) -> bool {
        let end = claim.offset + claim.length;
        let mut pieces = Vec::new();
        let mut at = claim.offset;
        while at < end {
            let length = claim.piece_bytes.min(end - at) as usize;
            if self.read(at, length, buffer).is_err() {
                return false;
            }
            pieces.push(XxHash3_128::oneshot(&buffer[..length]));
            at += length as u64;
        }
        Digest::of(pieces.into_iter()) == claim.digest
    }

    /// Reads past the page cache where the file is written so and the bytes are not in it.
    fn read(&self, offset: u64, length: usize, buffer: &mut [u8]) -> io::Result<()> {
        let open = |direct| self.partial.open_to_read(direct).ok();
        let cached = self.cached.get_or_init(|| open(false)).as_ref();
        let cached = cached.ok_or(io::ErrorKind::NotFound)?;
        if self.partial.direct && !is_cached(cached, offset, length) {
            let direct = self.direct.get_or_init(|| open(true)).as_ref();
            let aligned = length.next_multiple_of(DIRECT_ALIGN).min(buffer.len());
            let read = direct.map(|direct| read_up_to(direct, offset, &mut buffer[..aligned]));
            if let Some(Ok(read)) = read {
                let short = io::ErrorKind::UnexpectedEof;
                return if read >= length { Ok(()) } else { Err(short.into()) };
            }
            // A file system that takes O_DIRECT at open and refuses it here.
        }
        cached.read_exact_at(&mut buffer[..length], offset)
    }

    /// Counts blocks whose bytes are `good`, or asks for them again; the file, if it is whole.
    fn decide(&self, shared: &Shared<'_>, extent: (u64, u64), good: bool) -> Option<CompleteFile> {
        let block_bytes = shared.options.block_bytes.get();
        let size = self.file.size();
        let whole_in = |extents: &[_]| {
            let there = BlockSet::whole_in(extents, block_bytes, size);
            self.blocks.without(&self.blocks.without(&there))
        };
        let mut state = lock(&self.state);
        state.left -= 1;
        let mut there = BlockSet::default();
        let mut missing = Vec::new();
        if good {
            state.good.push(extent);
            there = whole_in(&[extent]);
        } else {
            missing = self.blocks.touching(extent, block_bytes);
        }
        if state.left == 0 {
            // Blocks in several extents, too, are decided now.
            there = whole_in(&joined(std::mem::take(&mut state.good)));
            let undecided = self.blocks.without(&there);
            missing
                .extend(undecided.spans().iter().flat_map(|(first, count)| *first..first + count));
        }
        missing.retain(|block| state.asked.insert(*block, block + 1) > 0);
        let there = there.without(&state.asked);
        drop(state);
        for block in missing {
            let resend = SinkMessage::Resend { id: self.file.id, offset: block * block_bytes };
            shared.cancel.check(shared.control.send(&resend));
        }
        self.count(shared, &there)
    }

    /// Counts blocks that are there; the file, if it is whole.
    fn count(&self, shared: &Shared<'_>, there: &BlockSet) -> Option<CompleteFile> {
        let (file, block_bytes) = (&self.file, shared.options.block_bytes.get());
        let mut state = file.lock();
        if state.is_gone() {
            return None;
        }
        let new = there.without(&state.written);
        let mut bytes = 0;
        for (first, count) in new.spans() {
            state.written.insert(first, first + count);
            let end = (first + count).saturating_mul(block_bytes).min(file.size());
            bytes += end - first * block_bytes;
        }
        file.resumed.fetch_add(bytes, Ordering::Relaxed);
        shared.ledger.add_resumed(bytes);
        let partial = state.take_whole()?;
        drop(state);
        Some(CompleteFile { file: file.clone(), form: partial.map_or(Form::Dropped, Form::Open) })
    }
}

/// Whether nearly all of the bytes are in the page cache: then they are read from there.
fn is_cached(file: &File, offset: u64, length: usize) -> bool {
    longhaul_sys::file::cached_bytes(file, offset, length as u64)
        .is_ok_and(|cached| cached >= length as u64 / 8 * 7)
}

/// Reads until `buffer` is full or the file ends, and returns how much.
fn read_up_to(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read_at(&mut buffer[have..], offset + have as u64) {
            Ok(0) => break,
            Ok(got) => have += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}
