//! What becomes of an entry when it is announced.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::result::{Action, ActionKind};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{Entry, EntryKind, Held, SinkMessage};

use super::ledger::SinkFile;
use super::run::{Shared, broken};
use crate::copy::digest::FileDigest;
use crate::copy::metadata::Attributes;
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

/// The answers to a batch of entries, if the source waits for them.
#[derive(Default)]
struct Decided {
    held: Vec<Held>,
    actions: Vec<Action>,
}

/// Takes a batch of entries and answers it.
pub(super) fn take_entries(shared: &Shared<'_>, entries: Vec<Entry>, peer: &str) -> Result<()> {
    let mut decided = Decided::default();
    let before = entries.last().map_or(0, |entry| entry.id.saturating_add(1));
    for entry in entries {
        take_entry(shared, entry, peer, &mut decided)?;
    }
    let Decided { held, actions } = decided;
    if !actions.is_empty() {
        shared.tell_actions(actions)?;
    }
    match shared.options.tree.asks_first() {
        true => shared.control.send(&SinkMessage::Wanted { before, held }),
        false => Ok(()),
    }
}

fn take_entry(
    shared: &Shared<'_>,
    mut entry: Entry,
    peer: &str,
    decided: &mut Decided,
) -> Result<()> {
    if !entry.path.is_plain_relative() {
        return Err(broken(peer, "it names a path that leads elsewhere"));
    }
    let attributes = Attributes::of(&mut entry);
    let Entry { id, path: named, kind, .. } = entry;
    let path = shared.store.path(named.as_bytes());
    shared.extras.note(&named, kind == EntryKind::Directory);
    let options = &shared.options.tree;
    if options.asks_first() {
        let is_file = matches!(kind, EntryKind::File { .. });
        let action = shared.store.compare(&path, &kind, &attributes, options.update);
        match action {
            Some(what) if options.dry_run => {
                decided.actions.push(action_of(shared, &path, &kind, what));
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
    match kind {
        EntryKind::File { size_bytes } => {
            let size = size_bytes.get();
            shared.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
            shared.progress.total_files.fetch_add(1, Ordering::Relaxed);
            let block_bytes = shared.options.block_bytes.get();
            let mut file = SinkFile::new(id, path, size, attributes, block_bytes);
            file.digest = shared.digests.wanted().then(|| FileDigest::new(block_bytes));
            return numbered(shared.ledger.announce(id, Some(Arc::new(file))), peer);
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
            if !first_path.is_plain_relative() || first >= id {
                return Err(broken(peer, "it names a path that leads elsewhere"));
            }
            let first_path = shared.store.path(first_path.as_bytes());
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

fn numbered(good: bool, peer: &str) -> Result<()> {
    if good { Ok(()) } else { Err(broken(peer, "its entries are numbered wrongly")) }
}

impl Shared<'_> {
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
