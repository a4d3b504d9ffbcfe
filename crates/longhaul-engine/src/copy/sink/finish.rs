//! The last stage: syncs files, and gives them their final names. Files that become complete
//! together are synced together.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::plan::{CopyOptions, Verify};

use super::ledger::SinkFile;
use super::open_dir::FileSystemSync;
use super::partial::{PartialFile, Temporary};
use super::read_back::read_back;
use super::store::Store;
use crate::copy::journal::FileId;
use crate::copy::metadata::Attributes;

/// The maximum number of files that are synced together, which limits the wait of the first of
/// them.
pub(super) const SYNC_BATCH: usize = 4096;
/// The number of files above which one syncfs(2) is cheaper than an fsync(2) per file: it commits
/// the journal of the file system once. For fewer files it could wait for the writes of other
/// programs.
const SYNCFS_FROM: usize = 8;

/// A file with all its bytes.
pub(super) struct CompleteFile {
    pub(super) file: Arc<SinkFile>,
    pub(super) form: Form,
}

/// The form of a complete file on the disk.
pub(super) enum Form {
    /// No file: the bytes are dropped.
    Dropped,
    /// A small file: written, with its attributes, and closed.
    Closed(Temporary, FileId),
    /// Still open.
    Open(Arc<PartialFile>),
}

/// Finishes files, and collects the directories whose new names must be made durable.
pub(super) struct Finisher<'a> {
    store: &'a Store,
    durable: bool,
    verify: Verify,
    touched: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> Finisher<'a> {
    pub(super) fn new(store: &'a Store, options: &CopyOptions) -> Self {
        let (durable, verify) = (options.durable, options.verify);
        Finisher { store, durable, verify, touched: Mutex::default() }
    }

    /// Gives the files of a wave, which became complete together, their final names, and passes the
    /// outcome of each to `report`: the identity of the complete file, or `None` if bytes are
    /// dropped.
    pub(super) fn finish(
        &self,
        wave: Vec<CompleteFile>,
        mut report: impl FnMut(&SinkFile, io::Result<Option<FileId>>),
    ) {
        let mut ready = Vec::with_capacity(wave.len());
        for CompleteFile { file, form } in wave {
            match &form {
                Form::Dropped => report(&file, Ok(None)),
                Form::Closed(_, id) => ready.push((file, *id, form)),
                Form::Open(partial) => match self.apply_attributes(partial, &file) {
                    Ok(id) => ready.push((file, id, form)),
                    Err(error) => report(&file, Err(error)),
                },
            }
        }
        let mut syncs = Syncs::new(ready.len());
        for (file, id, form) in ready {
            let synced = if self.durable { syncs.sync(&form) } else { form.flush() };
            let same = synced.and_then(|()| self.verify(&form, &id, &file));
            let named = same.and_then(|()| form.rename());
            if named.is_ok() && self.durable {
                let above = file.path.parent().unwrap_or(Path::new("")).to_owned();
                self.touched().insert(above);
            }
            report(&file, named.map(|()| form.placed(id)));
        }
    }

    /// Compares a file with the received bytes, if it has to be read back.
    fn verify(&self, form: &Form, id: &FileId, file: &SinkFile) -> io::Result<()> {
        let temporary = match form {
            Form::Dropped => return Ok(()),
            Form::Closed(temporary, _) => temporary,
            Form::Open(partial) => &partial.temporary,
        };
        temporary.dir.faults.damage(&temporary.dir.fd, &temporary.temporary);
        match self.verify {
            Verify::InFlight => Ok(()),
            Verify::Reread => read_back(temporary, id, file, &self.store.checked),
        }
    }

    fn apply_attributes(&self, partial: &PartialFile, file: &SinkFile) -> io::Result<FileId> {
        self.store.apply_attributes(partial, &file.path, file.size(), &file.attributes)?;
        partial.id()
    }

    /// Records that the name `path` is new.
    pub(super) fn made_name(&self, path: &Path) {
        if self.durable {
            self.touched().insert(path.parent().unwrap_or(Path::new("")).to_owned());
        }
    }

    /// Records that the directory at `path` is new.
    pub(super) fn made_dir(&self, path: &Path) {
        if self.durable {
            let mut touched = self.touched();
            touched.insert(path.to_owned());
            touched.insert(path.parent().unwrap_or(Path::new("")).to_owned());
        }
    }

    /// Makes every new name durable.
    pub(super) fn sync_names(&self) -> Result<(), (PathBuf, io::Error)> {
        let touched = std::mem::take(&mut *self.touched());
        if touched.len() >= SYNCFS_FROM && self.store.sync_all() {
            return Ok(());
        }
        for path in touched {
            self.store.sync_dir(&path).map_err(|error| (path, error))?;
        }
        Ok(())
    }

    /// Gives the target itself its attributes.
    pub(super) fn finish_top(&self, attributes: &Attributes) -> io::Result<()> {
        let top = Path::new("");
        self.store.finish_dir(top, attributes)?;
        if self.durable { self.store.sync_dir(top) } else { Ok(()) }
    }

    fn touched(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The syncs of one wave: one per file system where that is possible and cheaper.
struct Syncs {
    together: bool,
    /// The outcome by handle: an error counts for all files, because syncfs(2) does not name one.
    done: HashMap<usize, Result<(), io::ErrorKind>>,
}

impl Syncs {
    fn new(files: usize) -> Self {
        Syncs { together: files >= SYNCFS_FROM, done: HashMap::new() }
    }

    fn sync(&mut self, form: &Form) -> io::Result<()> {
        let temporary = match form {
            Form::Dropped => return Ok(()),
            Form::Closed(temporary, _) => temporary,
            Form::Open(partial) => &partial.temporary,
        };
        match (&temporary.dir.sync, form) {
            (Some(sync), _) if self.together && self.is_reliable(sync) => {
                let run = || sync.sync(&temporary.dir.faults).map_err(|error| error.kind());
                (*self.done.entry(Arc::as_ptr(sync) as usize).or_insert_with(run))?;
                match form {
                    Form::Open(partial) => partial.synced_together(),
                    _ => Ok(()),
                }
            }
            (_, Form::Open(partial)) => partial.sync(),
            (_, Form::Closed(_, id)) => temporary.sync(id),
            (_, Form::Dropped) => Ok(()),
        }
    }

    /// Returns whether one sync of the file system covers the files of this wave: the sync of an
    /// earlier wave can have reported an error of one of them.
    fn is_reliable(&self, sync: &Arc<FileSystemSync>) -> bool {
        self.done.contains_key(&(Arc::as_ptr(sync) as usize)) || !sync.has_failed()
    }
}

impl Form {
    /// Returns the identity after the rename of a file that had the identity `id`.
    fn placed(&self, id: FileId) -> Option<FileId> {
        match self {
            Form::Dropped => None,
            Form::Closed(temporary, _) => Some(temporary.placed(id)),
            Form::Open(partial) => Some(partial.temporary.placed(id)),
        }
    }

    /// Returns the error of writes that a file system reports late. A closed file has none.
    fn flush(&self) -> io::Result<()> {
        match self {
            Form::Dropped | Form::Closed(..) => Ok(()),
            Form::Open(partial) => partial.flush(),
        }
    }

    fn rename(&self) -> io::Result<()> {
        match self {
            Form::Dropped => Ok(()),
            Form::Closed(temporary, _) => temporary.rename(),
            Form::Open(partial) => partial.temporary.rename(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::Ordering;

    use longhaul_core::units::Bytes;
    use longhaul_core::wire::FilePath;
    use longhaul_core::wire::copy::{Entry, EntryKind};

    use super::super::fault::{Countdown, set::fail_at};
    use super::super::open_dir::{OpenDir, file_id};
    use super::super::placement::Destination;
    use super::super::store::Token;
    use super::*;

    /// Returns the file `name` of one byte.
    fn sink_file(id: u64, name: &str) -> Arc<SinkFile> {
        let kind = EntryKind::File { size_bytes: Bytes::new(1) };
        let entry = Entry { id, ..Entry::new(FilePath::new(name).unwrap(), kind, 0o644) };
        Arc::new(SinkFile::new(&entry, name.into(), 1, Attributes::default(), 1 << 20))
    }

    /// Returns a wave of `count` closed files in `dir`.
    fn wave(path: &Path, dir: &Arc<OpenDir>, name: &str, count: u64) -> Vec<CompleteFile> {
        let complete = |id| {
            let (temporary, name) = (format!(".{name}{id}"), format!("{name}{id}"));
            std::fs::write(path.join(&temporary), "x").unwrap();
            let stat = rustix::fs::stat(path.join(&temporary)).unwrap();
            let file = sink_file(id, &name);
            let temporary = Temporary::new(dir.clone(), temporary.into(), name.into());
            CompleteFile { file, form: Form::Closed(temporary, file_id(&stat)) }
        };
        (0..count).map(complete).collect()
    }

    fn open_dir(path: &Path, sync: Option<FileSystemSync>) -> Arc<OpenDir> {
        Arc::new(OpenDir {
            fd: File::open(path).unwrap().into(),
            fresh: false,
            replaces: true,
            faults: Countdown::of(path),
            device: 0,
            sync: sync.map(Arc::new),
        })
    }

    #[test]
    fn a_file_whose_close_fails_gets_no_name() {
        let tempdir = tempfile::tempdir().unwrap();
        let path = tempdir.path();
        let options = CopyOptions { durable: false, ..CopyOptions::default() };
        let store = Store::new(Destination::Null, &options, Token::random(), None);
        let finisher = Finisher::new(&store, &options);
        let named = |failing| {
            fail_at(path, failing);
            let written = File::create(path.join(".f")).unwrap();
            let temporary = Temporary::new(open_dir(path, None), ".f".into(), "f".into());
            let partial = PartialFile::new(written, temporary, 1, false, false);
            let form = Form::Open(Arc::new(partial));
            let mut outcome = None;
            let wave = vec![CompleteFile { file: sink_file(0, "f"), form }];
            finisher.finish(wave, |_, finished| outcome = Some(finished.is_ok()));
            (outcome, path.join("f").exists())
        };
        // A network file system can refuse the writes as late as at close(2).
        assert_eq!(named(1), (Some(false), false));
        assert_eq!(named(i64::MAX), (Some(true), true));
    }

    #[test]
    fn after_a_failed_sync_of_the_file_system_each_file_is_synced() {
        let tempdir = tempfile::tempdir().unwrap();
        let path = tempdir.path();
        let left = fail_at(path, 1);
        let dir = open_dir(path, Some(FileSystemSync::new(File::open(path).unwrap())));
        let store = Store::new(Destination::Null, &CopyOptions::default(), Token::random(), None);
        let finisher = Finisher::new(&store, &CopyOptions::default());
        let named = |wave| {
            let mut named = 0;
            finisher.finish(wave, |_, outcome| named += usize::from(outcome.is_ok()));
            named
        };
        // The files of the second wave are written before the first sync, which can report their
        // errors.
        let count = SYNCFS_FROM as u64;
        let [first, second] = ["a", "b"].map(|name| wave(path, &dir, name, count));
        assert_eq!(named(first), 0);
        left.store(i64::MAX, Ordering::Relaxed);
        assert_eq!(named(second), SYNCFS_FROM);
        let operations = i64::MAX - left.load(Ordering::Relaxed);
        assert_eq!(operations, 2 * count as i64, "a sync and a rename of each file");
    }
}
