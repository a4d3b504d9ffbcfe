//! Reads the extents of an earlier attempt again, while the sink receives the other data.
//!
//! Bytes of an earlier attempt count after they were read and have the digest in the journal. The
//! source omits their blocks in the meantime; the sink requests the blocks of an extent that
//! differs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::wire::copy::SinkMessage;
use longhaul_sys::memory::{AlignedBuffer, DIRECT_ALIGN};
use twox_hash::XxHash3_128;

use super::finish::{CompleteFile, Form};
use super::ledger::SinkFile;
use super::partial::PartialFile;
use super::read_back::drop_pages;
use super::shared::SinkShared;
use crate::copy::blocks::{BlockSet, joined};
use crate::copy::journal::{Claim, Digest};
use crate::lock;

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
    /// The blocks that the source omits because an earlier attempt has written them.
    blocks: BlockSet,
    cached: OnceLock<Option<File>>,
    direct: OnceLock<Option<File>>,
    /// The file is read from the disk, not from the page cache (`--verify=reread`).
    past_cache: bool,
    /// False if the pages of the file cannot be dropped from the cache.
    dropped: OnceLock<bool>,
    state: Mutex<State>,
}

struct State {
    /// Claims that are not decided.
    left: usize,
    /// The bytes that are as the earlier attempt wrote them.
    good: Vec<(u64, u64)>,
    /// Blocks that were requested from the source again.
    requested: BlockSet,
}

impl Reread {
    /// Returns the extents of `file` to read again; the source omits `blocks` in the meantime.
    pub(super) fn all(
        file: &Arc<SinkFile>,
        partial: &Arc<PartialFile>,
        claims: Vec<Claim>,
        blocks: BlockSet,
        past_cache: bool,
    ) -> impl Iterator<Item = Reread> {
        let (file, partial) = (file.clone(), partial.clone());
        let state = State { left: claims.len(), good: Vec::new(), requested: BlockSet::default() };
        let (cached, direct, dropped) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let state = Mutex::new(state);
        let of = Claimed { file, partial, blocks, cached, direct, past_cache, dropped, state };
        let of = Arc::new(of);
        claims.into_iter().map(move |claim| Reread { of: of.clone(), claim })
    }
}

/// Reads again until nothing more is to be read; passes on the complete files.
pub(super) fn read_again(
    shared: &SinkShared<'_>,
    claims: &Receiver<Reread>,
    finished: &Sender<Vec<CompleteFile>>,
) {
    let mut buffer = AlignedBuffer::new(DIRECT_ALIGN);
    for Reread { of, claim } in claims {
        if shared.context.cancel.is_set() {
            return;
        }
        if of.file.lock().is_gone() {
            continue;
        }
        if buffer.len() < claim.piece_bytes as usize {
            buffer = AlignedBuffer::new(claim.piece_bytes as usize);
        }
        let good =
            shared.meters.checking.time(|| of.holds(&claim, &mut buffer, &shared.store.checked));
        if let Some(complete) = of.decide(shared, (claim.offset, claim.length), good)
            && finished.send(vec![complete]).is_err()
        {
            return;
        }
    }
}

impl Claimed {
    /// Returns whether the bytes of `claim` have the digest in the journal. If so, they become part
    /// of the file's digest. Adds the bytes that it reads to `checked`.
    fn holds(&self, claim: &Claim, buffer: &mut [u8], checked: &AtomicU64) -> bool {
        let end = claim.offset + claim.length;
        let mut pieces = Vec::new();
        let digest = self.file.digest.as_ref();
        let mut run = digest.map(|digest| digest.run(claim.offset, self.file.known_size()));
        let mut at = claim.offset;
        while at < end {
            let length = claim.piece_bytes.min(end - at) as usize;
            if self.read(at, length, buffer).is_err() {
                return false;
            }
            pieces.push(XxHash3_128::oneshot(&buffer[..length]));
            if let Some(run) = &mut run {
                run.update(&buffer[..length]);
            }
            checked.fetch_add(length as u64, Ordering::Relaxed);
            at += length as u64;
        }
        let good = Digest::of(pieces.into_iter()) == claim.digest;
        if let (true, Some(digest), Some(run)) = (good, digest, run) {
            digest.take(run);
        }
        good
    }

    /// Bypasses the page cache if the file is written with direct I/O and the bytes are not in the
    /// cache, or if they must come from the disk.
    fn read(&self, offset: u64, length: usize, buffer: &mut [u8]) -> io::Result<()> {
        self.partial.temporary.dir.faults.wait();
        let open = |direct| self.partial.open_to_read(direct).ok();
        let cached = self.cached.get_or_init(|| open(false)).as_ref();
        let cached = cached.ok_or(io::ErrorKind::NotFound)?;
        let past_cache =
            self.past_cache || self.partial.direct && !is_cached(cached, offset, length);
        if past_cache {
            let direct = self.direct.get_or_init(|| open(true)).as_ref();
            if self.past_cache && !self.drop_pages(cached, direct.is_some()) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let aligned = length.next_multiple_of(DIRECT_ALIGN).min(buffer.len());
            let read = direct.map(|direct| read_up_to(direct, offset, &mut buffer[..aligned]));
            if let Some(Ok(read)) = read {
                let short = io::ErrorKind::UnexpectedEof;
                return if read >= length { Ok(()) } else { Err(short.into()) };
            }
            // Some file systems accept O_DIRECT at open(2) and refuse it here.
        }
        cached.read_exact_at(&mut buffer[..length], offset)
    }

    /// Drops the pages of the file from the cache, once; false if they stay there.
    fn drop_pages(&self, cached: &File, direct: bool) -> bool {
        *self.dropped.get_or_init(|| drop_pages(cached, direct).is_ok())
    }

    /// Counts the blocks of an extent that is `good`, or requests them again; returns the file if
    /// it is complete.
    fn decide(
        &self,
        shared: &SinkShared<'_>,
        extent: (u64, u64),
        good: bool,
    ) -> Option<CompleteFile> {
        let block_bytes = shared.context.options.block_bytes.get();
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
            let good = std::mem::take(&mut state.good);
            there = whole_in(&reusable(&self.file, good));
            let undecided = self.blocks.without(&there);
            missing
                .extend(undecided.spans().iter().flat_map(|(first, count)| *first..first + count));
        }
        missing.retain(|block| state.requested.insert(*block, block + 1) > 0);
        let there = there.without(&state.requested);
        drop(state);
        for block in missing {
            let resend = SinkMessage::Resend { id: self.file.id, offset: block * block_bytes };
            shared.context.cancel.check(shared.context.control.send(&resend));
        }
        self.count(shared, &there)
    }

    /// Counts the blocks that exist. Returns the file if it is complete.
    fn count(&self, shared: &SinkShared<'_>, there: &BlockSet) -> Option<CompleteFile> {
        let (file, block_bytes) = (&self.file, shared.context.options.block_bytes.get());
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
        shared.records.ledger.add_resumed(bytes);
        shared.recorder.reused(file, bytes);
        let partial = state.take_complete()?;
        drop(state);
        Some(CompleteFile { file: file.clone(), form: partial.map_or(Form::Dropped, Form::Open) })
    }
}

/// Returns the runs of bytes of these extents of `file` that must cover a block completely if it is
/// to be reused. A file with a digest reuses no block that spans two extents, because its digest
/// has pieces within one extent.
pub(super) fn reusable(file: &SinkFile, extents: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    if file.digest.is_some() { extents } else { joined(extents) }
}

/// Returns whether at least 7/8 of the bytes are in the page cache.
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
