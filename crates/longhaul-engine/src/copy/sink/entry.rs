//! Takes the announced entries: creates directories, links and nodes, and passes files on.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use longhaul_core::result::{Action, ActionKind};
use longhaul_core::units::Bytes;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{Entry, EntryKind, KeptFile, SinkMessage, TOP_DIRECTORY};
use twox_hash::XxHash3_64;

use super::entry_file::{Intake, new_file};
use super::memory::MemoryClaim;
use super::placement::Destination;
use super::shared::{HardLink, SinkShared};
use crate::copy::metadata::Attributes;
use crate::copy::names::{RESERVED, has_reserved};
use crate::copy::requested::Requested;
use crate::error::{EntryViolation, Result};
use crate::lock;

/// The longest path (linux/limits.h).
const PATH_MAX: usize = 4096;
/// The maximum number of spans in one [`SinkMessage::Wanted`]: at about 25 bytes each it stays
/// below the frame limit.
const HELD_SPANS: usize = 16 << 10;

impl Intake<'_, '_> {
    /// Takes a batch of entries, and sends the decisions to a source that waits for them.
    pub(super) fn take_entries(&mut self, entries: Vec<Entry>) -> Result<()> {
        let (mut before, mut spans) = (0, 0);
        self.check_space(&entries)?;
        for entry in entries {
            before = entry.id.saturating_add(1);
            let known = self.decided.held.len();
            self.take_entry(entry)?;
            let new = self.decided.held[known..].iter().filter_map(|held| held.blocks.as_ref());
            spans += new.map(Vec::len).sum::<usize>();
            if spans > HELD_SPANS {
                self.send_decisions(before)?;
                spans = 0;
            }
        }
        if !self.decided.actions.is_empty() {
            self.shared.report_actions(std::mem::take(&mut self.decided.actions))?;
        }
        self.send_decisions(before)
    }

    /// Sends the decisions on the entries below `before`.
    fn send_decisions(&mut self, before: u64) -> Result<()> {
        if self.shared.context.wanted_first {
            let held = std::mem::take(&mut self.decided.held);
            self.shared.context.control.send(&SinkMessage::Wanted { before, held })?;
        }
        // The readers end only when the copy ends.
        let rereads = &self.onward.reread;
        let _ = self.decided.rereads.drain(..).try_for_each(|reread| rereads.send(reread));
        Ok(())
    }

    fn take_entry(&mut self, mut entry: Entry) -> Result<()> {
        let shared = self.shared;
        if entry.path.as_bytes() == TOP_DIRECTORY.as_bytes() && entry.kind == EntryKind::Directory {
            shared.note_name(Path::new(""), &entry.kind);
            return self.take_top(entry);
        }
        if !entry.path.is_plain_relative() {
            return Err(self.invalid(entry.id, EntryViolation::PathOutside));
        }
        let is_requested = |requested: &Requested| requested.contains(as_path(&entry.path));
        if !shared.context.requested.is_none_or(is_requested) {
            return Err(self.invalid(entry.id, EntryViolation::NotRequested));
        }
        let Some(memory) = shared.records.memory.claim(&entry) else {
            return Err(self.invalid(entry.id, EntryViolation::TooMuchMemory));
        };
        let identities = std::mem::take(&mut entry.identities);
        let attributes = Attributes::of(&mut entry);
        let path = shared.store.path(entry.path.as_bytes());
        shared.note_name(&path, &entry.kind);
        if let Some(reason) = refusal(shared, &path, &entry.kind) {
            return self.refuse(entry.id, &path, reason);
        }
        shared.records.extras.note(&entry.path, entry.kind == EntryKind::Directory);
        let tree = &shared.context.options.tree;
        if (tree.asks_first() || tree.list) && self.is_unwanted(&entry, &path, &attributes) {
            return self.announce_without_data(entry.id);
        }
        if shared.is_source(&path, &identities) {
            return self.refuse(entry.id, &path, "the source and the target are the same file");
        }
        match entry.kind {
            EntryKind::File { .. } | EntryKind::Stream => {
                let file = new_file(shared, &entry, path, attributes).holding(memory);
                self.take_file(&entry, file)
            }
            EntryKind::Directory => self.take_directory(entry.id, path, attributes, memory),
            EntryKind::HardLink { first, path: first_path } => {
                self.take_link(entry.id, path, (first, &first_path), memory)
            }
            node => self.take_node(entry.id, &path, &node, &attributes),
        }
    }

    /// Compares an entry with the file at `path`; true if the entry needs no action.
    fn is_unwanted(&mut self, entry: &Entry, path: &Path, attributes: &Attributes) -> bool {
        let (shared, options) = (self.shared, &self.shared.context.options.tree);
        let is_file = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Stream);
        let action = shared.store.compare(path, &entry.kind, attributes, (options, entry.digest));
        match action {
            Some(what) if options.dry_run || options.list => {
                self.decided.actions.push(action_of(shared, path, &entry.kind, what));
            }
            None if is_file => {
                shared.records.unchanged.fetch_add(1, Ordering::Relaxed);
                shared.records.digests.unchanged(path);
            }
            None | Some(_) => {}
        }
        let stays = is_file && options.asks_first() && (options.dry_run || action.is_none());
        if stays {
            self.decided.held.push(KeptFile { id: entry.id, blocks: None });
        }
        options.dry_run || stays
    }

    fn take_directory(
        &mut self,
        id: u64,
        path: PathBuf,
        attributes: Attributes,
        memory: MemoryClaim,
    ) -> Result<()> {
        let shared = self.shared;
        match shared.make_dir(&path)? {
            Ok(gets_attributes) => {
                shared.finisher.made_dir(&path);
                shared.keep_name(&path);
                if gets_attributes {
                    lock(&shared.records.dirs).push((path, attributes, memory));
                }
            }
            Err(error) => shared.report_failure(Some(id), &path, "create", &error)?,
        }
        self.announce_without_data(id)
    }

    fn take_link(
        &mut self,
        id: u64,
        path: PathBuf,
        (first, first_path): (u64, &FilePath),
        memory: MemoryClaim,
    ) -> Result<()> {
        let shared = self.shared;
        let plain = first_path.is_plain_relative();
        let first_path = shared.store.path(first_path.as_bytes());
        if !plain || !shared.has_named(first, &first_path) {
            return Err(self.invalid(id, EntryViolation::LinkToUnannounced));
        }
        shared.claim_name(&path)?;
        let link = HardLink { id, path, first, first_path, _memory: memory };
        lock(&shared.records.links).push(link);
        self.announce_without_data(id)
    }

    fn take_node(
        &mut self,
        id: u64,
        path: &Path,
        node: &EntryKind,
        attributes: &Attributes,
    ) -> Result<()> {
        let shared = self.shared;
        shared.claim_name(path)?;
        match shared.store.make_node(id, path, node, attributes) {
            Ok(()) => shared.finisher.made_name(path),
            Err(error) => {
                shared.records.ledger.note_failed(id);
                shared.report_failure(Some(id), path, "create", &error)?;
            }
        }
        self.announce_without_data(id)
    }

    /// Records that an entry is refused, and reports the reason.
    fn refuse(&mut self, id: u64, path: &Path, reason: &str) -> Result<()> {
        self.shared.records.ledger.note_failed(id);
        self.decided.held.push(KeptFile { id, blocks: None });
        self.shared.report_failure(Some(id), path, "create", &io::Error::other(reason))?;
        self.announce_without_data(id)
    }

    /// Takes the directory whose contents are copied: the target gets its attributes at the end.
    fn take_top(&mut self, mut entry: Entry) -> Result<()> {
        if let Destination::Directory { tree, contents, .. } = &self.shared.store.destination {
            if !contents {
                return Err(self.invalid(entry.id, EntryViolation::NotTheTarget));
            }
            if tree.rights().may_replace() && !self.shared.context.options.tree.dry_run {
                *lock(&self.shared.records.top) = Some(Attributes::of(&mut entry));
            }
        }
        self.announce_without_data(entry.id)
    }

    /// Adds an entry that needs no data to the ledger.
    fn announce_without_data(&self, id: u64) -> Result<()> {
        self.check_sequence(id, self.shared.records.ledger.announce(id, None))
    }
}

/// Returns the reason why an entry is refused: its name or path is reserved or too long, or the
/// target must be a directory.
fn refusal(shared: &SinkShared<'_>, path: &Path, kind: &EntryKind) -> Option<&'static str> {
    let leads_to = match kind {
        EntryKind::Symlink { target } => has_reserved(as_path(target)),
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
        .then_some("the target directory does not exist")
}

fn as_path(path: &FilePath) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

fn action_of(shared: &SinkShared<'_>, path: &Path, kind: &EntryKind, what: ActionKind) -> Action {
    let bytes = match kind {
        EntryKind::File { size_bytes } => *size_bytes,
        _ => Bytes::new(0),
    };
    let path = shared.store.shown(path, *kind == EntryKind::Directory);
    Action { what, path, bytes }
}

impl SinkShared<'_> {
    /// Makes a directory; fails if its name does not fit into the quota.
    fn make_dir(&self, path: &Path) -> Result<std::io::Result<bool>> {
        self.claim_name(path)?;
        Ok(self.store.make_dir(path))
    }

    /// Claims the part of the quota that a new name needs.
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

    /// Stores the path of an entry, if a later entry may be a hard link to it.
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

    /// Records for a later attempt that the only top-level entry has another name here, because the
    /// directory at `path` now exists.
    fn keep_name(&self, path: &Path) {
        let destination = &self.store.destination;
        let renames = matches!(destination, Destination::Directory { rename: Some(_), .. });
        if renames && path.components().nth(1).is_none() {
            self.recorder.keep_name();
        }
    }

    /// Creates the hard links to complete files.
    pub(super) fn make_hard_links(&self) -> Result<()> {
        for HardLink { id, path, first, first_path, .. } in lock(&self.records.links).drain(..) {
            let made = if self.records.ledger.has_failed(first) {
                Err(std::io::Error::other("the first name of the linked file was not copied"))
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
