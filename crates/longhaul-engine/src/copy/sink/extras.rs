//! `--delete`: what is in the copied directories and was not announced.
//!
//! Nothing is deleted unless everything was copied, and nothing if there is more to delete than
//! allowed. What the filters leave out is left alone here as well, and with it the directories
//! that hold it. A directory that is reached through a link is not looked into, so that nothing
//! outside the target is ever deleted.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use longhaul_core::plan::{CopyOptions, DeleteOptions, filter::Filters};
use longhaul_core::result::{Action, ActionKind};
use longhaul_core::units::Bytes;
use longhaul_core::wire::WirePath;
use rustix::fs::{AtFlags, FileType, statat, unlinkat};
use twox_hash::XxHash3_128;

use super::placement::Destination;
use super::run::Shared;
use super::store::Store;
use crate::copy::names::is_reserved;
use crate::copy::tree::{self, Tree};
use crate::error::Result;
use crate::lock::lock;

/// Actions in one message at the most: with the longest paths it stays below the frame limit.
const ACTIONS_BATCH: usize = 64;

/// What was announced, as far as deletion and the manifest need it.
pub(super) struct Extras {
    delete: Option<DeleteOptions>,
    dry_run: bool,
    filters: Filters,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The hash of each path announced. A source that made two paths of one hash would keep a
    /// file from being deleted, which it can do in plainer ways.
    paths: HashSet<u128>,
    /// The directories among them, in the source's words.
    dirs: Vec<Vec<u8>>,
    /// The first components; those of directories apart.
    tops: BTreeSet<Vec<u8>>,
    top_dirs: BTreeSet<Vec<u8>>,
}

/// Something to delete, by its path at the sink.
struct Extra {
    path: PathBuf,
    is_dir: bool,
}

impl Extras {
    pub(super) fn new(options: &CopyOptions, destination: &Destination) -> Self {
        let mut state = State::default();
        if matches!(destination, Destination::Directory { contents: true, .. }) {
            state.dirs.push(Vec::new());
        }
        Extras {
            delete: options.tree.delete,
            dry_run: options.tree.dry_run,
            filters: Filters::new(&options.tree.filters),
            state: Mutex::new(state),
        }
    }

    /// Takes note of an entry.
    pub(super) fn note(&self, path: &WirePath, is_dir: bool) {
        let bytes = path.as_bytes();
        let mut state = lock(&self.state);
        if !bytes.contains(&b'/') {
            state.tops.insert(bytes.to_vec());
            if is_dir {
                state.top_dirs.insert(bytes.to_vec());
            }
        }
        if self.delete.is_some() {
            state.paths.insert(XxHash3_128::oneshot(bytes));
            if is_dir {
                state.dirs.push(bytes.to_vec());
            }
        }
    }

    /// The only name at the top level, if there is but one.
    pub(super) fn only_top(&self) -> Option<Vec<u8>> {
        let state = lock(&self.state);
        state.tops.first().filter(|_| state.tops.len() == 1).cloned()
    }

    /// The directories at the top level.
    pub(super) fn top_dirs(&self) -> Vec<Vec<u8>> {
        lock(&self.state).top_dirs.iter().cloned().collect()
    }

    /// Everything to delete, what is in a directory before it.
    fn find(&self, store: &Store, tree: &Tree) -> io::Result<Vec<Extra>> {
        let state = lock(&self.state);
        let mut found = Vec::new();
        for named in &state.dirs {
            let path = store.path(named);
            let dir = match tree.open_real_dir(&path) {
                Ok(dir) => dir,
                // Not made in a dry run, or a link.
                Err(_) => continue,
            };
            for name in tree::list(&dir)? {
                let child = join(named, name.as_os_str());
                if !state.paths.contains(&XxHash3_128::oneshot(&child)) {
                    self.collect(tree, &child, path.join(&name), &mut found)?;
                }
            }
        }
        Ok(found)
    }

    /// Adds `path`, called `named` by the source if it had it, with all that is in it; false if
    /// something in it stays.
    fn collect(
        &self,
        tree: &Tree,
        named: &[u8],
        path: PathBuf,
        found: &mut Vec<Extra>,
    ) -> io::Result<bool> {
        let above = tree.open_real_dir(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        let stat = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // Under a reserved name another copy may be at work, or go on later.
        if self.filters.leaves_out(named, is_dir) || is_reserved(name.as_bytes()) {
            return Ok(false);
        }
        let mut whole = true;
        if is_dir {
            for child in tree::list(tree.open_real_dir(&path)?)? {
                let inner = join(named, child.as_os_str());
                whole &= self.collect(tree, &inner, path.join(child), found)?;
            }
        }
        if whole {
            found.push(Extra { path, is_dir });
        }
        Ok(whole)
    }
}

impl Shared<'_> {
    /// Deletes what is not at the source, or tells what would be; returns how much.
    pub(super) fn delete_extras(&self) -> Result<u64> {
        let Destination::Directory { tree, path: base, .. } = &self.store.destination else {
            return Ok(0);
        };
        let Some(delete) = self.extras.delete else { return Ok(0) };
        let refuse = |reason: &str| self.tell_not_deleted(base, reason).map(|()| 0);
        if !lock(&self.reports).failures.is_empty() {
            return refuse("nothing is deleted in it, since not everything was copied");
        }
        let extras = match self.extras.find(self.store, tree) {
            Ok(extras) => extras,
            Err(error) => return refuse(&format!("cannot look for what to delete: {error}")),
        };
        if let Some(limit) = delete.limit.filter(|limit| extras.len() as u64 > *limit) {
            return refuse(&format!(
                "nothing is deleted in it: {} are not at the source, and --max-delete allows {limit}",
                extras.len()
            ));
        }
        let mut deleted = 0;
        for batch in extras.chunks(ACTIONS_BATCH) {
            let mut actions = Vec::with_capacity(batch.len());
            for Extra { path, is_dir } in batch {
                if !self.extras.dry_run
                    && let Err(error) = remove(tree, path, *is_dir)
                {
                    self.tell_failed(None, path, "delete", &error)?;
                    continue;
                }
                deleted += 1;
                actions.push(Action {
                    what: ActionKind::Delete,
                    path: self.store.shown(path, *is_dir),
                    bytes: Bytes::new(0),
                });
            }
            self.tell_actions(actions)?;
        }
        for Extra { path, .. } in &extras {
            // Names that were in a directory that is gone too need no sync of their own.
            if tree.open_real_dir(path.parent().unwrap_or(Path::new(""))).is_ok() {
                self.finisher.made_name(path);
            }
        }
        Ok(deleted)
    }
}

fn remove(tree: &Tree, path: &Path, is_dir: bool) -> io::Result<()> {
    let above = tree.open_real_dir(path.parent().unwrap_or(Path::new("")))?;
    let name = path.file_name().unwrap_or_default();
    let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    Ok(unlinkat(above, name, flags)?)
}

fn join(dir: &[u8], name: &OsStr) -> Vec<u8> {
    match dir {
        b"" => name.as_bytes().to_vec(),
        dir => [dir, b"/", name.as_bytes()].concat(),
    }
}
