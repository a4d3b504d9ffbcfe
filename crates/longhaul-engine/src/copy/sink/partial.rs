//! A file that is received under a temporary name beside its final one.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_sys::memory::DIRECT_ALIGN;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, chmod, fallocate, fstat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::open_dir::{OpenDir, file_id};
use crate::copy::disk::{Disk, IoMode};
use crate::copy::journal::FileId;
use crate::copy::metadata::by_descriptor;
use crate::lock;

/// The size of a stream that has not ended.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A name beside the final one. When this value is dropped, the file is removed unless it was
/// renamed or kept.
pub(super) struct Temporary {
    pub(super) dir: Arc<OpenDir>,
    pub(super) temporary: OsString,
    pub(super) name: OsString,
    /// True if the name now belongs to another session, or must remain for the next attempt.
    released: AtomicBool,
    /// True if the file was synced before it was closed.
    pub(super) synced: AtomicBool,
}

/// A file that is being written under its temporary name.
pub(super) struct PartialFile {
    pub(super) file: File,
    pub(super) temporary: Temporary,
    /// True if pages of zeros are not written, so that holes remain holes.
    pub(super) sparse: bool,
    /// True if writes use direct I/O, which must be aligned: the last write extends beyond the end
    /// of the file, which is truncated later. False if the file system has no direct I/O.
    pub(super) direct: bool,
    /// The final length.
    size: u64,
    /// True if an earlier attempt created the file, so that its holes can contain data.
    pub(super) reopened: bool,
    /// A second handle for cached writes, if `file` uses direct I/O and both are tried.
    cached: OnceLock<File>,
    /// True if the file system has refused direct I/O after all.
    refused: AtomicBool,
    /// The outcome of the final sync, or of an earlier one that failed: the kernel reports a write
    /// error to one fsync(2) only, so that a later one would succeed without the bytes.
    synced: Mutex<Option<Result<(), io::ErrorKind>>>,
}

impl Temporary {
    /// Creates the file `temporary` in `dir`, whose final name is `name`.
    pub(super) fn new(dir: Arc<OpenDir>, temporary: OsString, name: OsString) -> Self {
        let (released, synced) = (AtomicBool::new(false), AtomicBool::new(false));
        Temporary { dir, temporary, name, released, synced }
    }

    /// Syncs the closed file `id`, which has this name, unless it was synced before.
    pub(super) fn sync(&self, id: &FileId) -> io::Result<()> {
        if self.synced.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.dir.faults.tick()?;
        Ok(rustix::fs::fsync(self.open(OFlags::RDONLY, id)?)?)
    }

    /// Opens the file under the name. Does not block on a pipe or device.
    ///
    /// # Errors
    /// `ESTALE` if it is not the regular file `id`: another process has replaced it.
    pub(super) fn open(&self, flags: OFlags, id: &FileId) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.dir.fd, &self.temporary, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || (stat.st_dev, stat.st_ino) != (id.device, id.inode) {
            return Err(Errno::STALE.into());
        }
        Ok(File::from(file))
    }

    /// Opens the file for reading, even if its mode does not allow its owner to read it. The owner
    /// then has this right for the moment of the open(2); nobody else gets it.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or the mode cannot be changed.
    pub(super) fn open_to_read(&self, flags: OFlags, id: &FileId) -> io::Result<File> {
        let open = || self.open(OFlags::RDONLY | flags, id);
        match open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            opened => return opened,
        }
        let node = self.open(OFlags::PATH, id)?;
        let (path, mode) = (by_descriptor(&node), fstat(&node)?.st_mode & 0o7777);
        chmod(&path, Mode::from_raw_mode(mode | 0o400))?;
        let opened = open();
        chmod(&path, Mode::from_raw_mode(mode))?;
        opened
    }

    /// Gives the file its final name.
    pub(super) fn rename(&self) -> io::Result<()> {
        self.dir.faults.tick()?;
        let dir = &self.dir.fd;
        if self.dir.replaces {
            renameat(dir, &self.temporary, dir, &self.name)?;
        } else {
            renameat_with(dir, &self.temporary, dir, &self.name, RenameFlags::NOREPLACE)?;
        }
        self.released.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the identity of the placed file, if it is the file that had the identity `id` before
    /// its rename, which changes the change time.
    pub(super) fn placed(&self, id: FileId) -> FileId {
        let now = statat(&self.dir.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let now = now.map(|stat| file_id(&stat)).ok();
        now.filter(|now| FileId { ctime: None, ..id }.names(now)).unwrap_or(id)
    }

    /// Removes the file now, even if it is in use, so that another file can use the name.
    pub(super) fn discard(&self) {
        self.released.store(true, Ordering::Relaxed);
        let _ = unlinkat(&self.dir.fd, &self.temporary, AtFlags::empty());
    }

    /// Sets whether the file keeps its temporary name when it is dropped.
    pub(super) fn keep(&self, keep: bool) {
        self.released.store(keep, Ordering::Relaxed);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.released.load(Ordering::Relaxed) {
            let _ = unlinkat(&self.dir.fd, &self.temporary, AtFlags::empty());
        }
    }
}

impl PartialFile {
    /// Creates the record of a file that `file` writes. It has `size` bytes and gets the final name
    /// of `temporary`.
    pub(super) fn new(
        file: File,
        temporary: Temporary,
        size: u64,
        sparse: bool,
        direct: bool,
    ) -> Self {
        PartialFile {
            file,
            temporary,
            sparse,
            direct,
            size,
            reopened: false,
            cached: OnceLock::new(),
            refused: AtomicBool::new(false),
            synced: Mutex::default(),
        }
    }

    /// Reserves the space of a file that is not sparse, so that a disk that is too small fails before
    /// any data is sent.
    pub(super) fn reserve(&self) -> io::Result<()> {
        if self.size == 0 || self.size == UNKNOWN || self.sparse {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, self.size) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes holes in a sparse file of an earlier attempt, except in `extents`, which are in order
    /// and do not overlap.
    pub(super) fn clear_around(&self, extents: &[(u64, u64)]) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let mut at = 0;
        for (offset, length) in extents.iter().copied().chain([(self.size, 0)]) {
            if offset > at {
                fallocate(&self.file, flags, at, offset - at)?;
            }
            at = offset + length;
        }
        Ok(())
    }

    /// Opens the file for reading: past the page cache if `direct`.
    pub(super) fn open_to_read(&self, direct: bool) -> io::Result<File> {
        let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
        self.temporary.open(OFlags::RDONLY | direct, &self.id()?)
    }

    /// Writes the first `length` bytes of `buffer` at `offset`. The buffer is aligned, and has
    /// room up to the next multiple of [`DIRECT_ALIGN`], which a direct write fills with zeros.
    pub(super) fn write(
        &self,
        offset: u64,
        length: usize,
        buffer: &mut [u8],
        disk: &Disk,
    ) -> io::Result<()> {
        self.temporary.dir.faults.tick()?;
        if self.sparse && !self.reopened {
            disk.add(if self.is_direct() { IoMode::Direct } else { IoMode::Cached }, length as u64);
            return self.write_sparse(offset, length, buffer);
        }
        if !self.is_direct() {
            disk.add(IoMode::Cached, length as u64);
            return self.write_run(offset, length, buffer);
        }
        let device = self.temporary.dir.device;
        let io = disk.next(device, self.size);
        let cached = match io.mode {
            IoMode::Cached => Some(self.through_cache()?),
            IoMode::Direct => None,
        };
        disk.count(device, io, length, || {
            let Some(file) = cached else { return self.write_run(offset, length, buffer) };
            file.write_all_at(&buffer[..length], offset)?;
            let (wait, start) =
                (longhaul_sys::file::write_back, longhaul_sys::file::begin_writeback);
            // A trial compares the bytes that the disk has accepted. After the trial, early
            // writeback keeps the disk busy and shortens the sync.
            let _ = if io.tried { wait } else { start }(file, offset, length as u64);
            Ok(())
        })
    }

    fn is_direct(&self) -> bool {
        self.direct && !self.refused.load(Ordering::Relaxed)
    }

    /// Returns the handle for a block that is written in pieces through the page cache.
    pub(super) fn for_pieces(&self) -> io::Result<&File> {
        self.temporary.dir.faults.tick()?;
        if self.is_direct() { self.through_cache() } else { Ok(&self.file) }
    }

    /// Returns a second handle, which writes through the cache.
    fn through_cache(&self) -> io::Result<&File> {
        if let Some(file) = self.cached.get() {
            return Ok(file);
        }
        let file = self.temporary.open(OFlags::WRONLY, &self.id()?)?;
        Ok(self.cached.get_or_init(|| file))
    }

    /// Writes the runs of pages that hold more than zeros.
    fn write_sparse(&self, offset: u64, length: usize, buffer: &mut [u8]) -> io::Result<()> {
        let zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
        let mut start = 0;
        while start < length {
            let pages = buffer[start..length].chunks(DIRECT_ALIGN);
            let holes = pages.take_while(|page| zero(page)).count() * DIRECT_ALIGN;
            let begin = length.min(start + holes);
            let pages = buffer[begin..length].chunks(DIRECT_ALIGN);
            let data = pages.take_while(|page| !zero(page)).count() * DIRECT_ALIGN;
            let end = length.min(begin + data);
            if begin < end {
                self.write_run(offset + begin as u64, end - begin, &mut buffer[begin..])?;
            }
            start = end;
        }
        Ok(())
    }

    fn write_run(&self, offset: u64, length: usize, buffer: &mut [u8]) -> io::Result<()> {
        if !self.is_direct() {
            return self.file.write_all_at(&buffer[..length], offset);
        }
        let padded = length.next_multiple_of(DIRECT_ALIGN);
        buffer[length..padded].fill(0);
        match self.file.write_all_at(&buffer[..padded], offset) {
            // Some file systems accept O_DIRECT at open(2) and refuse it here.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let flags = rustix::fs::fcntl_getfl(&self.file)?;
                rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                self.refused.store(true, Ordering::Relaxed);
                self.file.write_all_at(&buffer[..length], offset)
            }
            done => done,
        }
    }

    /// Returns the identity of the file.
    pub(super) fn id(&self) -> io::Result<FileId> {
        Ok(file_id(&rustix::fs::fstat(&self.file)?))
    }

    /// Makes data and metadata of the file durable.
    ///
    /// # Errors
    /// This sync or an earlier one failed.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.temporary.dir.faults.wait();
        self.sync_once(|| self.file.sync_all(), true)
    }

    /// Makes the data durable; unnecessary after [`sync`](Self::sync).
    ///
    /// # Errors
    /// This sync or an earlier one failed.
    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.sync_once(|| self.file.sync_data(), false)
    }

    /// Reports writes that the server of a network file system refused. Only for a file that is not
    /// synced.
    ///
    /// # Errors
    /// The close of a handle of the file failed.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.temporary.dir.faults.tick()?;
        for file in self.cached.get().into_iter().chain([&self.file]) {
            longhaul_sys::file::close(file.try_clone()?)?;
        }
        Ok(())
    }

    /// Runs `sync` unless the outcome is known; keeps the outcome of the `last` sync and of one that
    /// fails.
    fn sync_once(&self, sync: impl FnOnce() -> io::Result<()>, last: bool) -> io::Result<()> {
        let mut synced = lock(&self.synced);
        if let Some(outcome) = *synced {
            return Ok(outcome?);
        }
        let outcome = self.temporary.dir.faults.tick().and_then(|()| sync());
        if last || outcome.is_err() {
            *synced = Some(match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(error.kind()),
            });
        }
        outcome
    }

    /// Records a sync of the whole file system.
    ///
    /// # Errors
    /// An earlier sync of the file failed.
    pub(super) fn synced_together(&self) -> io::Result<()> {
        Ok((*lock(&self.synced).get_or_insert(Ok(())))?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_core::plan::CopyOptions;
    use longhaul_core::units::Bytes;
    use longhaul_core::wire::FilePath;
    use longhaul_core::wire::copy::{Entry, EntryKind};
    use rustix::fs::CWD;

    use super::super::fault::set::fail_at;
    use super::super::ledger::SinkFile;
    use super::super::placement::Destination;
    use super::super::store::{Store, Token};
    use super::*;
    use crate::copy::metadata::Attributes;
    use crate::copy::tree::Tree;

    fn store(path: &Path) -> Store {
        let destination = Destination::Directory {
            tree: Tree::beneath(path).unwrap(),
            path: path.to_owned(),
            rename: None,
            only_dir: false,
            contents: true,
        };
        Store::new(destination, &CopyOptions::default(), Token::random(), None)
    }

    fn open_dir(path: &Path) -> Arc<OpenDir> {
        let store = store(path);
        let (_, open, _) = store.locate(Path::new("f")).unwrap().unwrap();
        open
    }

    #[test]
    fn a_small_file_whose_close_fails_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let kind = EntryKind::File { size_bytes: Bytes::new(1) };
        let entry = Entry::new(FilePath::new("f").unwrap(), kind, 0o644);
        let file = SinkFile::new(&entry, "f".into(), 1, Attributes::default(), 1 << 20);
        // The creation is the first operation on the storage, the close the second one.
        for (failing, left) in [(2, 0), (3, 1)] {
            fail_at(dir.path(), failing);
            let created = store(dir.path()).create_small(&file, b"x", false);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), left);
            assert_eq!(created.is_ok(), left == 1);
        }
    }

    #[test]
    fn a_failed_sync_stays_failed() {
        let dir = tempfile::tempdir().unwrap();
        let open = open_dir(dir.path());
        let partial = || {
            let file = tempfile::tempfile_in(dir.path()).unwrap();
            let temporary = Temporary::new(open.clone(), "temporary".into(), "f".into());
            PartialFile::new(file, temporary, 0, false, false)
        };
        let fail = || Err(Errno::IO.into());
        let failed = partial();
        assert!(failed.sync_once(fail, false).is_err());
        assert!(failed.sync().is_err(), "the kernel would report success");
        assert!(failed.synced_together().is_err());
        let finished = partial();
        finished.sync_data().unwrap();
        finished.sync().unwrap();
        assert!(finished.sync_once(fail, false).is_ok(), "nothing is left to sync");
    }

    #[test]
    fn a_pipe_under_a_temporary_name_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let open = open_dir(dir.path());
        rustix::fs::mkfifoat(CWD, dir.path().join("temporary"), 0o600.into()).unwrap();
        let id = file_id(&rustix::fs::stat(dir.path().join("temporary")).unwrap());
        let temporary = Temporary::new(open, "temporary".into(), "f".into());
        let error = temporary.sync(&id).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()));
    }
}
