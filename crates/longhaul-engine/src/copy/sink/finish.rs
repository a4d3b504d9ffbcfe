//! The last stage: sync, then name. Files that become complete together are synced together.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::ledger::SinkFile;
use super::store::{PartialFile, Store};

/// Files that are synced together at the most.
pub(super) const SYNC_BATCH: usize = 512;
/// From so many files on, one syncfs(2) for all of them is cheaper than an fsync(2) for each: it
/// commits the file system's journal once.
const SYNCFS_FROM: usize = 8;

/// A file with all its blocks; `None` where bytes are dropped.
pub(super) struct Whole {
    pub(super) file: Arc<SinkFile>,
    pub(super) partial: Option<Arc<PartialFile>>,
}

/// Finishes files, and remembers the directories whose new names must be made durable.
pub(super) struct Finisher<'a> {
    store: &'a Store,
    durable: bool,
    touched: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> Finisher<'a> {
    pub(super) fn new(store: &'a Store, durable: bool) -> Self {
        Finisher { store, durable, touched: Mutex::default() }
    }

    /// Puts a batch in place and tells of each file how it went.
    pub(super) fn finish(
        &self,
        batch: Vec<Whole>,
        mut tell: impl FnMut(&SinkFile, io::Result<()>),
    ) {
        let mut dressed = Vec::with_capacity(batch.len());
        for Whole { file, partial } in batch {
            let Some(partial) = partial else {
                tell(&file, Ok(()));
                continue;
            };
            match self.store.dress(&partial, &file.attributes) {
                Ok(()) => dressed.push((file, partial)),
                Err(error) => tell(&file, Err(error)),
            }
        }
        let together = self.durable && dressed.len() >= SYNCFS_FROM;
        let synced_together = together && sync_together(&dressed);
        for (file, partial) in dressed {
            let synced = if self.durable && !synced_together { partial.sync() } else { Ok(()) };
            let named = synced.and_then(|()| {
                // Every writer has let go of a file before it is whole.
                let partial = Arc::try_unwrap(partial)
                    .map_err(|_| io::Error::other("the file is still being written"))?;
                partial.rename()
            });
            if named.is_ok() && self.durable {
                let above = file.path.parent().unwrap_or(Path::new("")).to_owned();
                self.touched().insert(above);
            }
            tell(&file, named);
        }
    }

    /// Notes that the directory at `path` is new.
    pub(super) fn made_dir(&self, path: &Path) {
        if self.durable {
            let mut touched = self.touched();
            touched.insert(path.to_owned());
            touched.insert(path.parent().unwrap_or(Path::new("")).to_owned());
        }
    }

    /// Makes every new name durable.
    pub(super) fn sync_names(&self) -> Result<(), (PathBuf, io::Error)> {
        for path in std::mem::take(&mut *self.touched()) {
            self.store.sync_dir(&path).map_err(|error| (path, error))?;
        }
        Ok(())
    }

    fn touched(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One sync for every file system that the files are on; false if any of it failed, when the
/// files are synced one by one to learn which.
fn sync_together(files: &[(Arc<SinkFile>, Arc<PartialFile>)]) -> bool {
    let mut synced = HashSet::new();
    files.iter().all(|(_, partial)| {
        partial
            .device()
            .and_then(
                |device| {
                    if synced.insert(device) { partial.sync_file_system() } else { Ok(()) }
                },
            )
            .is_ok()
    })
}
