//! What becomes of an entry when it is announced.

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
use super::ledger::{SinkFile, Stage, UNKNOWN};
use super::outlet::Outlet;
use super::partial::PartialFile;
use super::placement::Destination;
use super::recorder::Left;
use super::reread::Reread;
use super::run::{Onward, Shared, broken};
use super::space::Need;
use crate::copy::blocks::{BlockSet, joined};
use crate::copy::digest::FileDigest;
use crate::copy::journal::Claim;
use crate::copy::metadata::Attributes;
use crate::copy::names::{RESERVED, has_reserved};
use crate::error::Result;
use crate::lock::lock;

/// Another name of a file, made once all files are in place.
pub(super) struct HardLink {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    /// The entry of the name announced first, and where it is.
    pub(super) first: u64,
    pub(super) first_path: PathBuf,
}

/// Spans in one [`SinkMessage::Wanted`]: some 25 bytes each keep it below the frame limit.
const HELD_SPANS: usize = 16 << 10;

/// The answers to a batch of entries.
#[derive(Default)]
struct Decided {
    held: Vec<Held>,
    actions: Vec<Action>,
    /// What is to be read again once the source knows what it leaves out.
    rereads: Vec<Reread>,
}

/// Takes a batch of entries, and tells a source that asks which of it is wanted.
pub(super) fn take_entries(
    shared: &Shared<'_>,
    entries: Vec<Entry>,
    onward: &Onward,
    peer: &str,
) -> Result<()> {
    let mut decided = Decided::default();
    let (mut before, mut spans) = (0, 0);
    let wanted = |before, decided: &mut Decided| {
        if shared.asks {
            let held = std::mem::take(&mut decided.held);
            shared.control.send(&SinkMessage::Wanted { before, held })?;
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
        shared.tell_actions(std::mem::take(&mut decided.actions))?;
    }
    wanted(before, &mut decided)
}

fn take_entry(
    shared: &Shared<'_>,
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
    let attributes = Attributes::of(&mut entry);
    let id = entry.id;
    let path = shared.store.path(entry.path.as_bytes());
    shared.note_name(&path, &entry.kind);
    if let Some(reason) = refusal(shared, &path, &entry.kind) {
        shared.ledger.note_failed(id);
        decided.held.push(Held { id, blocks: None });
        let reason = std::io::Error::other(reason);
        shared.tell_failed(Some(id), &path, "create", &reason)?;
        return numbered(shared.ledger.announce(id, None), peer);
    }
    shared.extras.note(&entry.path, entry.kind == EntryKind::Directory);
    let options = &shared.options.tree;
    if options.asks_first() {
        let is_file = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Stream);
        let action = shared.store.compare(&path, &entry.kind, &attributes, options.update);
        match action {
            Some(what) if options.dry_run => {
                decided.actions.push(action_of(shared, &path, &entry.kind, what));
            }
            None if is_file => {
                shared.unchanged.fetch_add(1, Ordering::Relaxed);
                shared.digests.unchanged(&path);
            }
            None | Some(_) => {}
        }
        let unwanted = options.dry_run || action.is_none();
        if is_file && unwanted {
            decided.held.push(Held { id, blocks: None });
        }
        if options.dry_run || is_file && unwanted {
            return numbered(shared.ledger.announce(id, None), peer);
        }
    }
    match entry.kind {
        EntryKind::File { size_bytes } => {
            let size = size_bytes.get();
            let file = new_file(shared, &entry, path, size, attributes);
            return take_file(shared, &entry, file, whole, peer, decided);
        }
        EntryKind::Stream => {
            let file = new_file(shared, &entry, path, UNKNOWN, attributes);
            return take_file(shared, &entry, file, whole, peer, decided);
        }
        EntryKind::Directory => match shared.store.make_dir(&path) {
            Ok(dress) => {
                shared.finisher.made_dir(&path);
                if dress {
                    lock(&shared.dirs).push((path, attributes));
                }
            }
            Err(error) => shared.tell_failed(Some(id), &path, "create", &error)?,
        },
        EntryKind::HardLink { first, path: first_path } => {
            let plain = first_path.is_plain_relative();
            let first_path = shared.store.path(first_path.as_bytes());
            if !plain || !shared.has_named(first, &first_path) {
                return Err(broken(peer, "it links to a file that it has not announced"));
            }
            lock(&shared.links).push(HardLink { id, path, first, first_path });
        }
        node => match shared.store.make_node(id, &path, &node, &attributes) {
            Ok(()) => shared.finisher.made_name(&path),
            Err(error) => {
                shared.ledger.note_failed(id);
                shared.tell_failed(Some(id), &path, "create", &error)?;
            }
        },
    }
    numbered(shared.ledger.announce(id, None), peer)
}

/// Why an entry is not taken: its name, or what it leads to, is one that longhaul keeps for its own
/// files, or the target is to be a directory.
fn refusal(shared: &Shared<'_>, path: &Path, kind: &EntryKind) -> Option<&'static str> {
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
    let named_dir = matches!(
        &shared.store.destination,
        Destination::Directory { rename: Some(_), only_dir: true, .. }
    );
    let is_top = path.components().nth(1).is_none();
    (named_dir && is_top && *kind != EntryKind::Directory)
        .then_some("the target is a directory that does not exist")
}

/// Takes the directory whose contents come: the target has its attributes in the end.
fn take_top(shared: &Shared<'_>, mut entry: Entry, peer: &str) -> Result<()> {
    if let Destination::Directory { tree, contents, .. } = &shared.store.destination {
        if !contents {
            return Err(broken(peer, "it describes a target that is not its own"));
        }
        if tree.rights().may_replace() && !shared.options.tree.dry_run {
            *lock(&shared.top) = Some(Attributes::of(&mut entry));
        }
    }
    numbered(shared.ledger.announce(entry.id, None), peer)
}

fn action_of(
    shared: &Shared<'_>,
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

/// A file of which nothing has come.
fn new_file(
    shared: &Shared<'_>,
    entry: &Entry,
    path: PathBuf,
    size: u64,
    attributes: Attributes,
) -> SinkFile {
    if size != UNKNOWN {
        shared.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    }
    shared.progress.total_files.fetch_add(1, Ordering::Relaxed);
    let block_bytes = shared.options.block_bytes.get();
    let mut file = SinkFile::new(entry, path, size, attributes, block_bytes);
    let compares = shared.options.verify == Verify::Reread && shared.store.keeps();
    file.digest = (compares || shared.digests.wanted()).then(|| FileDigest::new(block_bytes));
    file
}

/// Takes a file, and decides what there is of it already.
fn take_file(
    shared: &Shared<'_>,
    entry: &Entry,
    file: SinkFile,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    let blocks = file.size().div_ceil(shared.options.block_bytes.get());
    let holes = BlockSet::from_spans(entry.holes.as_deref().unwrap_or_default(), blocks)
        .ok_or_else(|| broken(peer, "it announced a hole that is not in the file"))?;
    if let Some(outlet) = shared.store.outlet() {
        decided.held.extend(take_outlet(shared, outlet, file, whole, peer)?);
        return Ok(());
    }
    let left = match shared.asks {
        true => shared.recorder.left(shared.store, &file),
        false => Left::Nothing,
    };
    match left {
        Left::Placed => return take_placed(shared, file, peer, decided),
        Left::Partial(partial, claims) => {
            let blocks = claimed_blocks(shared, &file, &claims);
            if partial.sparse && partial.clear_around(&bytes_of(shared, &file, &blocks)).is_err() {
                partial.temporary.discard();
            } else {
                let left = (Arc::new(partial), claims, blocks);
                return take_partial(shared, file, left, &holes, (whole, peer), decided);
            }
        }
        Left::Nothing => {}
    }
    let held = holes.count().saturating_mul(shared.options.block_bytes.get());
    claim(shared, &file, file.size().saturating_sub(held), file.size())?;
    file.lock().written = holes;
    announce(shared, Arc::new(file), whole, peer)
}

/// Takes a file that is in place already.
fn take_placed(
    shared: &Shared<'_>,
    file: SinkFile,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    let block_bytes = shared.options.block_bytes.get();
    if file.size() == UNKNOWN {
        let there = shared.store.placed(&file.path).ok().flatten();
        file.end_at(there.map_or(0, |there| there.size), block_bytes);
    }
    let (id, size, blocks) = (file.id, file.size(), file.size().div_ceil(block_bytes));
    file.resumed.store(size, Ordering::Relaxed);
    let file = Arc::new(file);
    numbered(shared.ledger.announce(id, Some(file.clone())), peer)?;
    shared.ledger.add_resumed(size);
    shared.settle(&file);
    let blocks = if blocks > 0 { vec![(0, blocks)] } else { Vec::new() };
    decided.held.push(Held { id, blocks: Some(blocks) });
    Ok(())
}

/// Takes a file that an earlier attempt has begun. What it has written is left out by the source,
/// and counts once it was read again.
fn take_partial(
    shared: &Shared<'_>,
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
    decided.held.push(Held { id: file.id, blocks: Some(held.spans()) });
    decided.rereads.extend(Reread::all(&file, &partial, claims, blocks));
    Ok(())
}

/// The blocks of a file that `claims` cover.
fn claimed_blocks(shared: &Shared<'_>, file: &SinkFile, claims: &[Claim]) -> BlockSet {
    let runs = joined(claims.iter().map(|claim| (claim.offset, claim.length)).collect());
    BlockSet::whole_in(&runs, shared.options.block_bytes.get(), file.size())
}

/// The bytes of `blocks`, each run as its offset and length.
fn bytes_of(shared: &Shared<'_>, file: &SinkFile, blocks: &BlockSet) -> Vec<(u64, u64)> {
    let block_bytes = shared.options.block_bytes.get();
    let extent = |(first, count): (u64, u64)| {
        let end = (first + count).saturating_mul(block_bytes).min(file.size());
        (first * block_bytes, end - first * block_bytes)
    };
    blocks.spans().into_iter().map(extent).collect()
}

/// Fails if the files of a first announcement do not fit together, before any of them is written.
/// What an earlier attempt has left, or need not come, is only known one by one.
fn fits_together(shared: &Shared<'_>, entries: &[Entry]) -> Result<()> {
    if shared.asks {
        return Ok(());
    }
    let sizes = entries.iter().filter_map(|entry| match entry.kind {
        EntryKind::File { size_bytes } => Some(size_bytes.get()),
        _ => None,
    });
    shared.store.space.check_quota(sizes)?;
    let block_bytes = shared.options.block_bytes.get();
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
fn claim(shared: &Shared<'_>, file: &SinkFile, bytes: u64, of_quota: u64) -> Result<()> {
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

/// Announces a file, and passes it on at once if no block of it is to come.
fn announce(
    shared: &Shared<'_>,
    file: Arc<SinkFile>,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
) -> Result<()> {
    numbered(shared.ledger.announce(file.id, Some(file.clone())), peer)?;
    pass_on_whole(shared, file, false, whole);
    Ok(())
}

/// Passes a file on if no block of it is to come any more; `ended` if it is a stream.
fn pass_on_whole(
    shared: &Shared<'_>,
    file: Arc<SinkFile>,
    ended: bool,
    whole: &Sender<Vec<CompleteFile>>,
) {
    let form = {
        let mut state = file.lock();
        // An empty file comes in a pack, an empty stream not at all.
        if file.size() == 0 && !ended || !state.is_whole() {
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
    shared: &Shared<'_>,
    outlet: &Outlet,
    file: SinkFile,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
) -> Result<Option<Held>> {
    let block_bytes = shared.options.block_bytes.get();
    let file = Arc::new(file);
    match outlet.go_on(file.stamp) {
        Some(passed) => {
            let blocks = passed.div_ceil(block_bytes);
            if blocks > 0 {
                file.lock().written.insert(0, blocks);
                shared.ledger.add_resumed(passed);
            }
            let (id, blocks) = (file.id, if blocks > 0 { vec![(0, blocks)] } else { Vec::new() });
            announce(shared, file, whole, peer)?;
            Ok(Some(Held { id, blocks: Some(blocks) }))
        }
        None => {
            numbered(shared.ledger.announce(file.id, Some(file.clone())), peer)?;
            let changed = std::io::Error::other("it changed, and a part of it is out already");
            shared.fail(&file, "go on with", &changed);
            Ok(Some(Held { id: file.id, blocks: None }))
        }
    }
}

/// Takes note of where a stream ends.
pub(super) fn end_stream(
    shared: &Shared<'_>,
    id: u64,
    size: u64,
    whole: &Sender<Vec<CompleteFile>>,
    peer: &str,
) -> Result<()> {
    // One that is in place, or has failed, needs no end.
    let Ok(Some(file)) = shared.ledger.file(id) else { return Ok(()) };
    if size == UNKNOWN || !file.end_at(size, shared.options.block_bytes.get()) {
        return Err(broken(peer, "duplicate end-of-stream for an entry"));
    }
    shared.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    pass_on_whole(shared, file, true, whole);
    Ok(())
}

fn numbered(good: bool, peer: &str) -> Result<()> {
    if good { Ok(()) } else { Err(broken(peer, "its entries are numbered wrongly")) }
}

impl Shared<'_> {
    /// Remembers the path of an entry, if a later one may be another name of it.
    fn note_name(&self, path: &Path, kind: &EntryKind) {
        if self.options.tree.hard_links {
            let hash = match kind {
                EntryKind::Directory | EntryKind::HardLink { .. } => None,
                _ => Some(XxHash3_64::oneshot(path.as_os_str().as_bytes())),
            };
            lock(&self.named).push(hash.unwrap_or(0));
        }
    }

    /// Whether the entry `first` of this session was announced with `path`.
    fn has_named(&self, first: u64, path: &Path) -> bool {
        let named = usize::try_from(first).ok().and_then(|at| lock(&self.named).get(at).copied());
        named == Some(XxHash3_64::oneshot(path.as_os_str().as_bytes()))
    }

    /// Keeps actions for a client at this end, and tells them to one at the other.
    pub(super) fn tell_actions(&self, actions: Vec<Action>) -> Result<()> {
        lock(&self.actions).extend(actions.iter().cloned());
        self.control.send(&SinkMessage::Actions(actions))
    }

    /// Makes the second names of files that are in place.
    pub(super) fn make_hard_links(&self) -> Result<()> {
        for HardLink { id, path, first, first_path } in lock(&self.links).drain(..) {
            let made = if self.ledger.has_failed(first) {
                Err(std::io::Error::other("the file that it is another name of was not copied"))
            } else {
                self.store.make_hard_link(id, &path, &first_path)
            };
            match made {
                Ok(()) => self.finisher.made_name(&path),
                Err(error) => self.tell_failed(Some(id), &path, "link", &error)?,
            }
        }
        Ok(())
    }
}
