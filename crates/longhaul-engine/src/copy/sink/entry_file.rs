//! Takes announced files: finds the blocks that an earlier attempt has left, and claims space.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;
use longhaul_core::plan::Verify;
use longhaul_core::result::Action;
use longhaul_core::wire::copy::{Entry, EntryKind, KeptFile};
use rustix::fs::fstat;

use super::finish::{CompleteFile, Form};
use super::ledger::{SinkFile, Stage};
use super::outlet::Outlet;
use super::partial::{PartialFile, UNKNOWN};
use super::recorder::Leftover;
use super::reread::{Reread, reusable};
use super::shared::SinkShared;
use super::space::Need;
use crate::copy::blocks::BlockSet;
use crate::copy::digest::FileDigest;
use crate::copy::journal::Claim;
use crate::copy::large_files::MovingFile;
use crate::copy::metadata::Attributes;
use crate::error::{EngineError, EntryViolation, Result};

/// The stages after the announcement of a file whose blocks are all present.
pub(super) struct NextStages {
    /// To be synced and renamed.
    pub(super) complete: Sender<Vec<CompleteFile>>,
    /// Parts of files that an earlier attempt has written.
    pub(super) reread: Sender<Reread>,
}

/// The intake of announced entries.
pub(super) struct Intake<'s, 'a> {
    pub(super) shared: &'s SinkShared<'a>,
    pub(super) onward: &'s NextStages,
    pub(super) peer: &'s str,
    pub(super) decided: EntryAnswers,
}

/// The answers to a batch of entries.
#[derive(Default)]
pub(super) struct EntryAnswers {
    pub(super) held: Vec<KeptFile>,
    pub(super) actions: Vec<Action>,
    /// The extents to read again after the source has received the list of blocks to omit.
    pub(super) rereads: Vec<Reread>,
}

impl<'s, 'a> Intake<'s, 'a> {
    pub(super) fn new(shared: &'s SinkShared<'a>, onward: &'s NextStages, peer: &'s str) -> Self {
        Intake { shared, onward, peer, decided: EntryAnswers::default() }
    }

    pub(super) fn check_sequence(&self, id: u64, in_sequence: bool) -> Result<()> {
        if in_sequence { Ok(()) } else { Err(self.invalid(id, EntryViolation::OutOfSequence)) }
    }

    pub(super) fn invalid(&self, entry: u64, violation: EntryViolation) -> EngineError {
        EngineError::InvalidEntry { peer: self.peer.to_owned(), entry, violation }
    }
}

impl MovingFile for SinkFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn total_bytes(&self) -> u64 {
        self.size()
    }

    fn moved_blocks(&self) -> (u64, u64) {
        let state = self.lock();
        (state.written.count(), state.blocks())
    }
}

/// The part of a file that an earlier attempt has written.
struct Resumed {
    partial: Arc<PartialFile>,
    claims: Vec<Claim>,
    /// The blocks that the claims cover.
    blocks: BlockSet,
}

/// Returns a file without data.
pub(super) fn new_file(
    shared: &SinkShared<'_>,
    entry: &Entry,
    path: PathBuf,
    attributes: Attributes,
) -> SinkFile {
    let size = match entry.kind {
        EntryKind::File { size_bytes } => size_bytes.get(),
        _ => UNKNOWN,
    };
    if size != UNKNOWN {
        shared.context.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    }
    shared.context.progress.total_files.fetch_add(1, Ordering::Relaxed);
    let block_bytes = shared.context.options.block_bytes.get();
    let mut file = SinkFile::new(entry, path, size, attributes, block_bytes);
    let compares = shared.context.options.verify == Verify::Reread && shared.store.stores_bytes();
    file.digest =
        (compares || shared.records.digests.wanted()).then(|| FileDigest::new(block_bytes));
    file
}

impl Intake<'_, '_> {
    /// Takes a file, and decides on its blocks.
    pub(super) fn take_file(&mut self, entry: &Entry, file: SinkFile) -> Result<()> {
        let shared = self.shared;
        let block_bytes = shared.context.options.block_bytes.get();
        let blocks = file.size().div_ceil(block_bytes);
        let holes = BlockSet::from_spans(entry.holes.as_deref().unwrap_or_default(), blocks)
            .ok_or_else(|| self.invalid(entry.id, EntryViolation::HoleOutside))?;
        if let Some(outlet) = shared.store.outlet() {
            return self.take_outlet(outlet, file);
        }
        let left = if shared.context.wanted_first {
            shared.recorder.left(shared.store, &file)
        } else {
            Leftover::Nothing
        };
        match left {
            Leftover::Placed => return self.take_placed(file),
            Leftover::Partial(partial, claims) => {
                let blocks = claimed_blocks(shared, &file, &claims);
                let kept = bytes_of(shared, &file, &blocks);
                if partial.sparse && partial.clear_around(&kept).is_err() {
                    partial.temporary.discard();
                } else {
                    let resumed = Resumed { partial: Arc::new(partial), claims, blocks };
                    return self.take_partial(file, resumed, &holes);
                }
            }
            Leftover::Nothing => {}
        }
        let held = holes.count().saturating_mul(block_bytes);
        claim(shared, &file, file.size().saturating_sub(held), file.size())?;
        file.lock().written = holes;
        self.announce(Arc::new(file))
    }

    /// Takes a file that is already complete.
    fn take_placed(&mut self, file: SinkFile) -> Result<()> {
        let shared = self.shared;
        let block_bytes = shared.context.options.block_bytes.get();
        if file.size() == UNKNOWN {
            let there = shared.store.placed(&file.path).ok().flatten();
            file.end_at(there.map_or(0, |there| there.size), block_bytes);
        }
        let (id, size, blocks) = (file.id, file.size(), file.size().div_ceil(block_bytes));
        file.resumed.store(size, Ordering::Relaxed);
        let file = Arc::new(file);
        self.check_sequence(id, shared.records.ledger.announce(id, Some(file.clone())))?;
        shared.records.ledger.add_resumed(size);
        shared.recorder.reused(&file, size);
        shared.settle(&file);
        let blocks = if blocks > 0 { vec![(0, blocks)] } else { Vec::new() };
        self.decided.held.push(KeptFile { id, blocks: Some(blocks) });
        Ok(())
    }

    /// Takes a file that an earlier attempt has begun. The source leaves out its blocks, which
    /// count once they were read again.
    fn take_partial(&mut self, file: SinkFile, resumed: Resumed, holes: &BlockSet) -> Result<()> {
        let shared = self.shared;
        let Resumed { partial, claims, blocks } = resumed;
        let mut held = blocks.clone();
        for (first, count) in holes.spans() {
            held.insert(first, first + count);
        }
        {
            let mut state = file.lock();
            state.written = holes.without(&blocks);
            state.partial = Stage::Open(Some(partial.clone()));
        }
        let there = fstat(&partial.file).map_or(0, |stat| stat.st_blocks as u64 * 512);
        let left = file.size().saturating_sub(there);
        claim(shared, &file, left, left)?;
        let file = Arc::new(file);
        shared.recorder.begun(&file, &partial, true);
        self.announce(file.clone())?;
        if let Err(error) = partial.reserve() {
            shared.fail(&file, "write", &error);
        }
        self.decided.held.push(KeptFile { id: file.id, blocks: Some(held.spans()) });
        let past_cache = shared.context.options.verify == Verify::Reread;
        self.decided.rereads.extend(Reread::all(&file, &partial, claims, blocks, past_cache));
        Ok(())
    }

    /// Takes a file that is passed on, if an earlier session has passed on the beginning.
    fn take_outlet(&mut self, outlet: &Outlet, file: SinkFile) -> Result<()> {
        let shared = self.shared;
        let (id, file) = (file.id, Arc::new(file));
        let Some(passed) = outlet.resume_at(file.stamp) else {
            self.check_sequence(id, shared.records.ledger.announce(id, Some(file.clone())))?;
            let changed = io::Error::other("the file changed after a part of it was passed on");
            shared.fail(&file, "resume", &changed);
            self.decided.held.push(KeptFile { id, blocks: None });
            return Ok(());
        };
        let blocks = passed.div_ceil(shared.context.options.block_bytes.get());
        if blocks > 0 {
            file.lock().written.insert(0, blocks);
            shared.records.ledger.add_resumed(passed);
        }
        let held = if blocks > 0 { vec![(0, blocks)] } else { Vec::new() };
        self.announce(file)?;
        self.decided.held.push(KeptFile { id, blocks: Some(held) });
        Ok(())
    }

    /// Announces a file, and passes it on if it has all blocks.
    fn announce(&self, file: Arc<SinkFile>) -> Result<()> {
        let announced = self.shared.records.ledger.announce(file.id, Some(file.clone()));
        self.check_sequence(file.id, announced)?;
        self.shared.context.progress.large_files.add(&file);
        self.pass_on_complete(file, false);
        Ok(())
    }

    /// Passes a file on if it has all blocks; `ended` if it is a stream.
    fn pass_on_complete(&self, file: Arc<SinkFile>, ended: bool) {
        let form = {
            let mut state = file.lock();
            // An empty file arrives in a pack; an empty stream sends no block.
            if file.size() == 0 && !ended || !state.is_complete() {
                return;
            }
            match std::mem::replace(&mut state.partial, Stage::Gone) {
                Stage::Open(partial) => Ok(partial),
                Stage::Waiting => self
                    .shared
                    .store
                    .create(file.id, &file.path, file.size(), file.sparse)
                    .map(|partial| partial.map(Arc::new)),
                Stage::Gone => return,
            }
        };
        match form {
            Ok(partial) => {
                let form = partial.map_or(Form::Dropped, Form::Open);
                // The finisher ends only when the copy ends.
                let _ = self.onward.complete.send(vec![CompleteFile { file, form }]);
            }
            Err(error) => self.shared.fail(&file, "create", &error),
        }
    }

    /// Records the length of a stream.
    pub(super) fn end_stream(&self, id: u64, size: u64) -> Result<()> {
        let shared = self.shared;
        // A file that is complete or has failed needs no end.
        let Ok(Some(file)) = shared.records.ledger.file(id) else { return Ok(()) };
        if size == UNKNOWN || !file.end_at(size, shared.context.options.block_bytes.get()) {
            return Err(self.invalid(id, EntryViolation::DuplicateEnd));
        }
        shared.context.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
        self.pass_on_complete(file, true);
        Ok(())
    }

    /// Fails if the files of a first announcement do not fit together, before any of them is
    /// written. Blocks that exist or are not wanted are known only per file.
    pub(super) fn check_space(&self, entries: &[Entry]) -> Result<()> {
        let shared = self.shared;
        if shared.context.wanted_first {
            return Ok(());
        }
        let sizes = entries.iter().filter_map(|entry| match entry.kind {
            EntryKind::File { size_bytes } => Some(size_bytes.get()),
            _ => None,
        });
        shared.store.space.check_quota(sizes)?;
        let need = entries.iter().map(|entry| need(shared, entry));
        shared.store.space.check(need.fold(Need::default(), Need::and))
    }
}

/// Returns the space that an entry of a first announcement needs.
fn need(shared: &SinkShared<'_>, entry: &Entry) -> Need {
    let EntryKind::File { size_bytes } = entry.kind else { return Need::default() };
    let spans = entry.holes.iter().flatten();
    let holes = spans.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let block_bytes = shared.context.options.block_bytes.get();
    let bytes = size_bytes.get().saturating_sub(holes.saturating_mul(block_bytes));
    let path = shared.store.path(entry.path.as_bytes());
    match shared.store.replaced_bytes(&path) {
        Ok(replaced) => replaced.map_or(Need::default(), |replaced| Need::of(bytes, replaced)),
        // Its directory is among the entries.
        Err(_) => Need::of(bytes, 0),
    }
}

/// Returns the blocks of a file that `claims` cover.
fn claimed_blocks(shared: &SinkShared<'_>, file: &SinkFile, claims: &[Claim]) -> BlockSet {
    let extents = claims.iter().map(|claim| (claim.offset, claim.length)).collect();
    let runs = reusable(file, extents);
    BlockSet::whole_in(&runs, shared.context.options.block_bytes.get(), file.size())
}

/// Returns the bytes of `blocks`, each run as its offset and length.
fn bytes_of(shared: &SinkShared<'_>, file: &SinkFile, blocks: &BlockSet) -> Vec<(u64, u64)> {
    let block_bytes = shared.context.options.block_bytes.get();
    let extent = |(first, count): (u64, u64)| {
        let end = (first + count).saturating_mul(block_bytes).min(file.size());
        (first * block_bytes, end - first * block_bytes)
    };
    blocks.spans().into_iter().map(extent).collect()
}

/// Claims the `bytes` that a file needs on the file system of the target, and the bytes that it may
/// need of a quota. The latter include holes, because the source may fill them. A stream claims one
/// of each.
fn claim(shared: &SinkShared<'_>, file: &SinkFile, bytes: u64, of_quota: u64) -> Result<()> {
    let known = |bytes| if file.known_size().is_some() { bytes } else { 1 };
    let bytes = known(bytes);
    shared.store.space.claim_quota(known(of_quota))?;
    if bytes > 0
        && let Ok(Some(replaced)) = shared.store.replaced_bytes(&file.path)
    {
        file.set_claim(shared.store.space.claim(Need::of(bytes, replaced))?);
    }
    Ok(())
}
