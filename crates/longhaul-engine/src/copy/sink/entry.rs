//! Takes the announced entries: creates directories and nodes, and decides on the blocks of files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;
use longhaul_core::plan::Verify;
use longhaul_core::result::{Action, ActionKind};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{Entry, EntryKind, Held, SinkMessage, TOP_DIRECTORY};
use rustix::fs::fstat;
use twox_hash::XxHash3_64;

use super::finish::{CompleteFile, Form};
use super::ledger::{SinkFile, Stage};
use super::outlet::Outlet;
use super::partial::{PartialFile, UNKNOWN};
use super::placement::Destination;
use super::recorder::Leftover;
use super::reread::{Reread, reusable};
use super::shared::{HardLink, SinkShared, broken};
use super::space::Need;
use crate::copy::blocks::BlockSet;
use crate::copy::digest::FileDigest;
use crate::copy::journal::Claim;
use crate::copy::metadata::Attributes;
use crate::copy::names::{RESERVED, has_reserved};
use crate::error::Result;
use crate::lock::lock;

/// The longest path (linux/limits.h).
const PATH_MAX: usize = 4096;
/// Spans in one [`SinkMessage::Wanted`]: some 25 bytes each keep it below the frame limit.
const HELD_SPANS: usize = 16 << 10;

/// The stages after the announcement of a file whose blocks are all present.
pub(super) struct Onward {
    /// To be synced and renamed.
    pub(super) whole: Sender<Vec<CompleteFile>>,
    /// Parts of files that an earlier attempt has written.
    pub(super) reread: Sender<Reread>,
}

/// The answers to a batch of entries.
#[derive(Default)]
struct Decided {
    held: Vec<Held>,
    actions: Vec<Action>,
    /// Extents to read again once the source knows the blocks that it leaves out.
    rereads: Vec<Reread>,
}

/// Takes a batch of entries, and sends the decisions to a source that waits for them.
pub(super) fn take_entries(
    shared: &SinkShared<'_>,
    entries: Vec<Entry>,
    onward: &Onward,
    peer: &str,
) -> Result<()> {
    let mut decided = Decided::default();
    let (mut before, mut spans) = (0, 0);
    let wanted = |before, decided: &mut Decided| {
        if shared.context.wanted_first {
            let held = std::mem::take(&mut decided.held);
            shared.context.control.send(&SinkMessage::Wanted { before, held })?;
        }
        // The readers leave only when the copy is over.
        let _ = decided.rereads.drain(..).try_for_each(|reread| onward.reread.send(reread));
        Ok(())
    };
    fits_together(shared, &entries)?;
    for entry in entries {
        before = entry.id.saturating_add(1);
        let known = decided.held.len();
        take_entry(shared, entry, &onward.whole, peer, &mut decided)?;
        let new = decided.held[known..].iter().filter_map(|held| held.blocks.as_ref());
        spans += new.map(Vec::len).sum::<usize>();
        if spans > HELD_SPANS {
            wanted(before, &mut decided)?;
            spans = 0;
        }
    }
    if !decided.actions.is_empty() {
        shared.report_actions(std::mem::take(&mut decided.actions))?;
    }
    wanted(before, &mut decided)
}

fn take_entry(
    shared: &SinkShared<'_>,
    mut entry: Entry,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    if entry.path.as_bytes() == TOP_DIRECTORY.as_bytes() && entry.kind == EntryKind::Directory {
        shared.note_name(Path::new(""), &entry.kind);
        return take_top(shared, entry, peer);
    }
    if !entry.path.is_plain_relative() {
        return Err(broken(peer, "it names a path that leads elsewhere"));
    }
    let Some(memory) = shared.records.memory.claim(&entry) else {
        return Err(broken(peer, "its entries take too much memory"));
    };
    let identities = std::mem::take(&mut entry.identities);
    let attributes = Attributes::of(&mut entry);
    let id = entry.id;
    let path = shared.store.path(entry.path.as_bytes());
    shared.note_name(&path, &entry.kind);
    if let Some(reason) = refusal(shared, &path, &entry.kind) {
        return refuse(shared, id, &path, reason, peer, decided);
    }
    shared.records.extras.note(&entry.path, entry.kind == EntryKind::Directory);
    let options = &shared.context.options.tree;
    if options.asks_first() {
        let is_file = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Stream);
        let action = shared.store.compare(&path, &entry.kind, &attributes, options.update);
        match action {
            Some(what) if options.dry_run => {
                decided.actions.push(action_of(shared, &path, &entry.kind, what));
            }
            None if is_file => {
                shared.records.unchanged.fetch_add(1, Ordering::Relaxed);
                shared.records.digests.unchanged(&path);
            }
            None | Some(_) => {}
        }
        let unwanted = options.dry_run || action.is_none();
        if is_file && unwanted {
            decided.held.push(Held { id, blocks: None });
        }
        if options.dry_run || is_file && unwanted {
            return numbered(shared.records.ledger.announce(id, None), peer);
        }
    }
    if shared.is_source(&path, &identities) {
        return refuse(shared, id, &path, "it and the source are the same file", peer, decided);
    }
    match entry.kind {
        EntryKind::File { size_bytes } => {
            let size = size_bytes.get();
            let file = new_file(shared, &entry, path, size, attributes).holding(memory);
            return take_file(shared, &entry, file, whole, peer, decided);
        }
        EntryKind::Stream => {
            let file = new_file(shared, &entry, path, UNKNOWN, attributes).holding(memory);
            return take_file(shared, &entry, file, whole, peer, decided);
        }
        EntryKind::Directory => match shared.make_dir(&path)? {
            Ok(dress) => {
                shared.finisher.made_dir(&path);
                shared.keep_name(&path);
                if dress {
                    lock(&shared.records.dirs).push((path, attributes, memory));
                }
            }
            Err(error) => shared.report_failure(Some(id), &path, "create", &error)?,
        },
        EntryKind::HardLink { first, path: first_path } => {
            let plain = first_path.is_plain_relative();
            let first_path = shared.store.path(first_path.as_bytes());
            if !plain || !shared.has_named(first, &first_path) {
                return Err(broken(peer, "it links to a file that it has not announced"));
            }
            shared.claim_name(&path)?;
            lock(&shared.records.links).push(HardLink { id, path, first, first_path });
        }
        node => {
            shared.claim_name(&path)?;
            match shared.store.make_node(id, &path, &node, &attributes) {
                Ok(()) => shared.finisher.made_name(&path),
                Err(error) => {
                    shared.records.ledger.note_failed(id);
                    shared.report_failure(Some(id), &path, "create", &error)?;
                }
            }
        }
    }
    numbered(shared.records.ledger.announce(id, None), peer)
}

/// Notes that an entry is not taken, and reports why.
fn refuse(
    shared: &SinkShared<'_>,
    id: u64,
    path: &Path,
    reason: &str,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    shared.records.ledger.note_failed(id);
    decided.held.push(Held { id, blocks: None });
    shared.report_failure(Some(id), path, "create", &std::io::Error::other(reason))?;
    numbered(shared.records.ledger.announce(id, None), peer)
}

/// The reason why an entry is refused: its name or the path that it leads to is reserved or too
/// long, or the target has to be a directory.
fn refusal(shared: &SinkShared<'_>, path: &Path, kind: &EntryKind) -> Option<&'static str> {
    let leads_to = match kind {
        EntryKind::Symlink { target } => {
            has_reserved(Path::new(std::ffi::OsStr::from_bytes(target.as_bytes())))
        }
        EntryKind::HardLink { path, .. } => has_reserved(&shared.store.path(path.as_bytes())),
        _ => false,
    };
    if leads_to || has_reserved(path) {
        return Some(RESERVED);
    }
    if path.as_os_str().len() >= PATH_MAX {
        return Some("its path is too long");
    }
    let named_dir = matches!(
        &shared.store.destination,
        Destination::Directory { rename: Some(_), only_dir: true, .. }
    );
    let is_top = path.components().nth(1).is_none();
    (named_dir && is_top && *kind != EntryKind::Directory)
        .then_some("the target is a directory that does not exist")
}

/// Takes the directory whose contents are copied: the target gets its attributes at the end.
fn take_top(shared: &SinkShared<'_>, mut entry: Entry, peer: &str) -> Result<()> {
    if let Destination::Directory { tree, contents, .. } = &shared.store.destination {
        if !contents {
            return Err(broken(peer, "it describes a target that is not its own"));
        }
        if tree.rights().may_replace() && !shared.context.options.tree.dry_run {
            *lock(&shared.records.top) = Some(Attributes::of(&mut entry));
        }
    }
    numbered(shared.records.ledger.announce(entry.id, None), peer)
}

fn action_of(
    shared: &SinkShared<'_>,
    path: &std::path::Path,
    kind: &EntryKind,
    what: ActionKind,
) -> Action {
    let bytes = match kind {
        EntryKind::File { size_bytes } => *size_bytes,
        _ => Bytes::new(0),
    };
    let path = shared.store.shown(path, *kind == EntryKind::Directory);
    Action { what, path, bytes }
}

/// A file without data.
fn new_file(
    shared: &SinkShared<'_>,
    entry: &Entry,
    path: PathBuf,
    size: u64,
    attributes: Attributes,
) -> SinkFile {
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

/// Takes a file, and decides on its blocks.
fn take_file(
    shared: &SinkShared<'_>,
    entry: &Entry,
    file: SinkFile,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    let blocks = file.size().div_ceil(shared.context.options.block_bytes.get());
    let holes = BlockSet::from_spans(entry.holes.as_deref().unwrap_or_default(), blocks)
        .ok_or_else(|| broken(peer, "it announced a hole that is not in the file"))?;
    if let Some(outlet) = shared.store.outlet() {
        decided.held.extend(take_outlet(shared, outlet, file, whole, peer)?);
        return Ok(());
    }
    let left = match shared.context.wanted_first {
        true => shared.recorder.left(shared.store, &file),
        false => Leftover::Nothing,
    };
    match left {
        Leftover::Placed => return take_placed(shared, file, peer, decided),
        Leftover::Partial(partial, claims) => {
            let blocks = claimed_blocks(shared, &file, &claims);
            if partial.sparse && partial.clear_around(&bytes_of(shared, &file, &blocks)).is_err() {
                partial.temporary.discard();
            } else {
                let left = (Arc::new(partial), claims, blocks);
                return take_partial(shared, file, left, &holes, (whole, peer), decided);
            }
        }
        Leftover::Nothing => {}
    }
    let held = holes.count().saturating_mul(shared.context.options.block_bytes.get());
    claim(shared, &file, file.size().saturating_sub(held), file.size())?;
    file.lock().written = holes;
    announce(shared, Arc::new(file), whole, peer)
}

/// Takes a file that is in place already.
fn take_placed(
    shared: &SinkShared<'_>,
    file: SinkFile,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    let block_bytes = shared.context.options.block_bytes.get();
    if file.size() == UNKNOWN {
        let there = shared.store.placed(&file.path).ok().flatten();
        file.end_at(there.map_or(0, |there| there.size), block_bytes);
    }
    let (id, size, blocks) = (file.id, file.size(), file.size().div_ceil(block_bytes));
    file.resumed.store(size, Ordering::Relaxed);
    let file = Arc::new(file);
    numbered(shared.records.ledger.announce(id, Some(file.clone())), peer)?;
    shared.records.ledger.add_resumed(size);
    shared.recorder.reused(&file, size);
    shared.settle(&file);
    let blocks = if blocks > 0 { vec![(0, blocks)] } else { Vec::new() };
    decided.held.push(Held { id, blocks: Some(blocks) });
    Ok(())
}

/// Takes a file that an earlier attempt has begun. The source leaves out its blocks, which count
/// once they were read again.
fn take_partial(
    shared: &SinkShared<'_>,
    file: SinkFile,
    (partial, claims, blocks): (Arc<PartialFile>, Vec<Claim>, BlockSet),
    holes: &BlockSet,
    (whole, peer): (&Sender<Vec<CompleteFile>>, &str),
    decided: &mut Decided,
) -> Result<()> {
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
    announce(shared, file.clone(), whole, peer)?;
    if let Err(error) = partial.reserve() {
        shared.fail(&file, "write", &error);
    }
    decided.held.push(Held { id: file.id, blocks: Some(held.spans()) });
    let past_cache = shared.context.options.verify == Verify::Reread;
    decided.rereads.extend(Reread::all(&file, &partial, claims, blocks, past_cache));
    Ok(())
}

/// The blocks of a file that `claims` cover.
fn claimed_blocks(shared: &SinkShared<'_>, file: &SinkFile, claims: &[Claim]) -> BlockSet {
    let extents = claims.iter().map(|claim| (claim.offset, claim.length)).collect();
    let runs = reusable(file, extents);
    BlockSet::whole_in(&runs, shared.context.options.block_bytes.get(), file.size())
}

/// The bytes of `blocks`, each run as its offset and length.
fn bytes_of(shared: &SinkShared<'_>, file: &SinkFile, blocks: &BlockSet) -> Vec<(u64, u64)> {
    let block_bytes = shared.context.options.block_bytes.get();
    let extent = |(first, count): (u64, u64)| {
        let end = (first + count).saturating_mul(block_bytes).min(file.size());
        (first * block_bytes, end - first * block_bytes)
    };
    blocks.spans().into_iter().map(extent).collect()
}

/// Fails if the files of a first announcement do not fit together, before any of them is written.
/// Blocks that exist or are not wanted are known only per file.
fn fits_together(shared: &SinkShared<'_>, entries: &[Entry]) -> Result<()> {
    if shared.context.wanted_first {
        return Ok(());
    }
    let sizes = entries.iter().filter_map(|entry| match entry.kind {
        EntryKind::File { size_bytes } => Some(size_bytes.get()),
        _ => None,
    });
    shared.store.space.check_quota(sizes)?;
    let block_bytes = shared.context.options.block_bytes.get();
    let need = |entry: &Entry| {
        let EntryKind::File { size_bytes } = entry.kind else { return Need::default() };
        let spans = entry.holes.iter().flatten();
        let holes = spans.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let bytes = size_bytes.get().saturating_sub(holes.saturating_mul(block_bytes));
        let path = shared.store.path(entry.path.as_bytes());
        match shared.store.replaced_bytes(&path) {
            Ok(replaced) => replaced.map_or(Need::default(), |replaced| Need::of(bytes, replaced)),
            // Its directory is among the entries.
            Err(_) => Need::of(bytes, 0),
        }
    };
    shared.store.space.check(entries.iter().map(need).fold(Need::default(), Need::and))
}

/// Claims the `bytes` that a file needs of the target's file system, and the bytes that it may take
/// of a quota, holes included: the source may fill them. A stream claims one of each.
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

/// Announces a file, and passes it on if it has all blocks.
fn announce(
    shared: &SinkShared<'_>,
    file: Arc<SinkFile>,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
) -> Result<()> {
    numbered(shared.records.ledger.announce(file.id, Some(file.clone())), peer)?;
    pass_on_whole(shared, file, false, whole);
    Ok(())
}

/// Passes a file on if it has all blocks; `ended` if it is a stream.
fn pass_on_whole(
    shared: &SinkShared<'_>,
    file: Arc<SinkFile>,
    ended: bool,
    whole: &Sender<Vec<CompleteFile>>,
) {
    let form = {
        let mut state = file.lock();
        // An empty file arrives in a pack, an empty stream not at all.
        if file.size() == 0 && !ended || !state.is_complete() {
            return;
        }
        match std::mem::replace(&mut state.partial, Stage::Gone) {
            Stage::Open(partial) => Ok(partial),
            Stage::Waiting => shared
                .store
                .create(file.id, &file.path, file.size(), file.sparse)
                .map(|partial| partial.map(Arc::new)),
            Stage::Gone => return,
        }
    };
    match form {
        Ok(partial) => {
            let form = partial.map_or(Form::Dropped, Form::Open);
            // The finisher leaves only when the copy is over.
            let _ = whole.send(vec![CompleteFile { file, form }]);
        }
        Err(error) => shared.fail(&file, "create", &error),
    }
}

/// Takes a file that is passed on, of which an earlier session has passed on the beginning.
fn take_outlet(
    shared: &SinkShared<'_>,
    outlet: &Outlet,
    file: SinkFile,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
) -> Result<Option<Held>> {
    let block_bytes = shared.context.options.block_bytes.get();
    let file = Arc::new(file);
    match outlet.resume_at(file.stamp) {
        Some(passed) => {
            let blocks = passed.div_ceil(block_bytes);
            if blocks > 0 {
                file.lock().written.insert(0, blocks);
                shared.records.ledger.add_resumed(passed);
            }
            let (id, blocks) = (file.id, if blocks > 0 { vec![(0, blocks)] } else { Vec::new() });
            announce(shared, file, whole, peer)?;
            Ok(Some(Held { id, blocks: Some(blocks) }))
        }
        None => {
            numbered(shared.records.ledger.announce(file.id, Some(file.clone())), peer)?;
            let changed = std::io::Error::other("it changed after a part of it was passed on");
            shared.fail(&file, "resume", &changed);
            Ok(Some(Held { id: file.id, blocks: None }))
        }
    }
}

/// Takes note of where a stream ends.
pub(super) fn end_stream(
    shared: &SinkShared<'_>,
    id: u64,
    size: u64,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
) -> Result<()> {
    // One that is in place, or has failed, needs no end.
    let Ok(Some(file)) = shared.records.ledger.file(id) else { return Ok(()) };
    if size == UNKNOWN || !file.end_at(size, shared.context.options.block_bytes.get()) {
        return Err(broken(peer, "duplicate end-of-stream for an entry"));
    }
    shared.context.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    pass_on_whole(shared, file, true, whole);
    Ok(())
}

fn numbered(good: bool, peer: &str) -> Result<()> {
    if good { Ok(()) } else { Err(broken(peer, "its entries are numbered wrongly")) }
}

impl SinkShared<'_> {
    /// Makes a directory; fails if its name does not fit into the quota.
    fn make_dir(&self, path: &Path) -> Result<std::io::Result<bool>> {
        self.claim_name(path)?;
        Ok(self.store.make_dir(path))
    }

    /// Claims what a new name takes of the quota.
    fn claim_name(&self, path: &Path) -> Result<()> {
        let space = &self.store.space;
        let exists = || self.store.placed(path).is_ok_and(|there| there.is_some());
        if !space.has_quota() || exists() { Ok(()) } else { space.claim_quota(0) }
    }

    /// Returns whether the file at `path` is one of those that the source names `identities`: then
    /// the copy would replace its own source.
    fn is_source(&self, path: &Path, identities: &[u64]) -> bool {
        let (Some(files), [_, ..]) = (&self.context.host_files, identities) else { return false };
        let there = self.store.placed(path).ok().flatten();
        there.is_some_and(|there| identities.contains(&files.number((there.device, there.inode))))
    }

    /// Remembers the path of an entry, if a later one may be another name of it.
    fn note_name(&self, path: &Path, kind: &EntryKind) {
        if self.context.options.tree.hard_links {
            let hash = match kind {
                EntryKind::Directory | EntryKind::HardLink { .. } => None,
                _ => Some(XxHash3_64::oneshot(path.as_os_str().as_bytes())),
            };
            lock(&self.records.named).push(hash.unwrap_or(0));
        }
    }

    /// Returns whether the entry `first` of this session was announced with `path`.
    fn has_named(&self, first: u64, path: &Path) -> bool {
        let named =
            usize::try_from(first).ok().and_then(|at| lock(&self.records.named).get(at).copied());
        named == Some(XxHash3_64::oneshot(path.as_os_str().as_bytes()))
    }

    /// Remembers for a later attempt that the only top-level entry has another name here: the
    /// directory at `path` is there from now on.
    fn keep_name(&self, path: &Path) {
        let destination = &self.store.destination;
        let renames = matches!(destination, Destination::Directory { rename: Some(_), .. });
        if renames && path.components().nth(1).is_none() {
            self.recorder.keep_name();
        }
    }

    /// Makes the second names of files that are in place.
    pub(super) fn make_hard_links(&self) -> Result<()> {
        for HardLink { id, path, first, first_path } in lock(&self.records.links).drain(..) {
            let made = if self.records.ledger.has_failed(first) {
                Err(std::io::Error::other("the file that it is another name of was not copied"))
            } else {
                self.store.make_hard_link(id, &path, &first_path)
            };
            match made {
                Ok(()) => self.finisher.made_name(&path),
                Err(error) => self.report_failure(Some(id), &path, "link", &error)?,
            }
        }
        Ok(())
    }
}
