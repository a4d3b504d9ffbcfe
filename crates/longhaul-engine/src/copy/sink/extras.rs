//! `--delete`: the entries in the copied directories that were not announced.
//!
//! Nothing is deleted if a file was not copied, or if more entries would be deleted than allowed.
//! Entries that the filters exclude remain, and with them their parent directories. A directory
//! that is reached through a link is not entered, so that nothing outside the target is ever
//! deleted.
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use longhaul_core::plan::filter::Filters;
use longhaul_core::plan::{CopyOptions, DeleteOptions};
use longhaul_core::wire::FilePath;
use rustix::fs::{AtFlags, FileType, statat};
use twox_hash::XxHash3_128;

use super::placement::Destination;
use super::store::Store;
use crate::copy::names::is_reserved;
use crate::copy::tree::{self, Tree};
use crate::lock;

/// The announced paths, as far as deletion and the manifest need them.
pub(super) struct Extras {
    pub(super) delete: Option<DeleteOptions>,
    pub(super) dry_run: bool,
    /// True if the sink writes a manifest, which needs the names at the top level.
    manifest: bool,
    filters: Filters,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The hash of each announced path. A source with two paths of equal hash can only prevent the
    /// deletion of a file, which it could also do by announcing the file.
    paths: HashSet<u128>,
    /// The announced directories, by their paths at the source.
    dirs: Vec<Vec<u8>>,
    /// The first components of the paths, for a manifest.
    tops: BTreeSet<Vec<u8>>,
    /// The first components that are directories, for a manifest.
    top_dirs: BTreeSet<Vec<u8>>,
}

/// An entry to delete, by its path at the sink.
pub(super) struct Extra {
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
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
            manifest: options.tree.manifest.is_some(),
            filters: Filters::new(&options.tree.filters),
            state: Mutex::new(state),
        }
    }

    /// Records an announced entry.
    pub(super) fn note(&self, path: &FilePath, is_dir: bool) {
        let bytes = path.as_bytes();
        let mut state = lock(&self.state);
        if self.manifest && !bytes.contains(&b'/') {
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

    /// Returns the name at the top level, if there is only one; for a manifest.
    pub(super) fn only_top(&self) -> Option<Vec<u8>> {
        let state = lock(&self.state);
        state.tops.first().filter(|_| state.tops.len() == 1).cloned()
    }

    /// Returns the directories at the top level, for a manifest.
    pub(super) fn top_dirs(&self) -> Vec<Vec<u8>> {
        lock(&self.state).top_dirs.iter().cloned().collect()
    }

    /// Returns the entries to delete; the contents of a directory precede the directory.
    pub(super) fn find(&self, store: &Store, tree: &Tree) -> io::Result<Vec<Extra>> {
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

    /// Adds `path`, whose path at the source would be `named`, with all of its contents; false if a
    /// part of the contents remains.
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
        // A reserved name can belong to another copy, which runs or resumes later.
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

fn join(dir: &[u8], name: &OsStr) -> Vec<u8> {
    match dir {
        b"" => name.as_bytes().to_vec(),
        dir => [dir, b"/", name.as_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_only_for_a_manifest_or_a_deletion() {
        let name = |text: &str| Some(FilePath::new(text).unwrap());
        for (manifest, kept) in [(None, 0), (name("list"), 2)] {
            let mut options = CopyOptions::default();
            options.tree.manifest = manifest;
            let extras = Extras::new(&options, &Destination::Null);
            for (path, is_dir) in [("a", true), ("b", false), ("a/c", false)] {
                extras.note(&FilePath::new(path).unwrap(), is_dir);
            }
            let state = lock(&extras.state);
            assert_eq!((state.tops.len(), state.top_dirs.len()), (kept, kept / 2));
            assert!(state.paths.is_empty() && state.dirs.is_empty());
        }
    }
}
