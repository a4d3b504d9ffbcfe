//! The storage that entries are written to: directories, temporary files and their final names.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::NotKept;
use longhaul_core::wire::copy::CopyKey;
use longhaul_sys::memory::DIRECT_ALIGN;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, fstatfs, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::fault::Countdown;
use super::ledger::SinkFile;
use super::open_dir::{FileSystemSync, OpenDir, existing_mode, file_id};
use super::outlet::Outlet;
use super::partial::{PartialFile, Temporary};
use super::placement::Destination;
use super::space::Space;
use super::sweep::Sweep;
use crate::copy::disk::{Disk, IoMode};
use crate::copy::journal::{FileId, is_own};
use crate::copy::metadata::{Attributes, Keeper};
use crate::copy::temporary::{hold, is_held, is_temporary_of, temporary_name};
use crate::copy::tree::Tree;
use crate::lock;
use crate::session::random_keying_material;

/// Directories that are kept open; a tree is mostly written a directory at a time.
const OPEN_DIRS: usize = 64;
/// The file systems on which syncfs(2) makes data durable: ext2 to 4, XFS, btrfs, f2fs, and tmpfs,
/// where nothing is durable (linux/magic.h). On others, such as FUSE, the data may not reach the
/// server.
const SYNCFS_HOLDS: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// The storage that entries are written to.
pub(super) struct Store {
    pub(super) destination: Destination,
    pub(super) keeper: Keeper,
    pub(super) disk: Disk,
    pub(super) space: Space,
    /// Bytes that were read to compare them.
    pub(super) checked: AtomicU64,
    /// True when the copy is over, which ends the comparisons.
    pub(super) over: Arc<AtomicBool>,
    dirs: Mutex<HashMap<PathBuf, Arc<OpenDir>>>,
    /// Directories that this copy has made: they hold no earlier files.
    made: Mutex<HashSet<PathBuf>>,
    /// By device, the sync of the file system.
    syncs: Mutex<HashMap<u64, Option<Arc<FileSystemSync>>>>,
    token: Token,
    /// Set if an earlier attempt has left a journal.
    sweep: Option<Sweep>,
}

/// The part of temporary names that differs between two copies into one directory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token {
    /// Derived from the key of this copy, whose lock is held. A file of this user with this token
    /// was left by an attempt that was killed.
    OfCopy(u32),
    /// A token of this session only.
    Random(u32),
}

impl Token {
    /// Returns the token of the copy `key`.
    pub(super) fn of_copy(key: &CopyKey) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 temporary names");
        hasher.update(key.as_str().as_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        Token::OfCopy(u32::from_be_bytes([a, b, c, d]))
    }

    pub(super) fn random() -> Self {
        let [a, b, c, d, ..] = random_keying_material();
        Token::Random(u32::from_be_bytes([a, b, c, d]))
    }

    /// Returns the number in the names.
    pub(super) fn number(self) -> u32 {
        match self {
            Token::OfCopy(number) | Token::Random(number) => number,
        }
    }
}

impl Store {
    pub(super) fn new(
        destination: Destination,
        options: &CopyOptions,
        token: Token,
        sweep: Option<Sweep>,
    ) -> Self {
        Store {
            space: Space::of(&destination),
            keeper: Keeper::new(options, destination.may_own()),
            destination,
            disk: Disk::new(options.direct),
            checked: AtomicU64::new(0),
            over: Arc::default(),
            token,
            sweep,
            dirs: Mutex::default(),
            made: Mutex::default(),
            syncs: Mutex::default(),
        }
    }

    /// Returns whether written bytes are stored. False if they are dropped or passed on.
    pub(super) fn stores_bytes(&self) -> bool {
        !matches!(self.destination, Destination::Null | Destination::Outlet(_))
    }

    /// Returns the outlet, if bytes are passed on instead of stored.
    pub(super) fn outlet(&self) -> Option<&Arc<Outlet>> {
        match &self.destination {
            Destination::Outlet(outlet) => Some(outlet),
            _ => None,
        }
    }

    /// Returns the path at the sink of the entry that the source calls `path`, a plain relative
    /// path.
    pub(super) fn path(&self, path: &[u8]) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(path));
        match &self.destination {
            Destination::Directory { rename: Some(name), .. } => {
                // Part by part: joining an empty path would append a slash.
                Path::new(name).components().chain(path.components().skip(1)).collect()
            }
            _ => path.to_owned(),
        }
    }

    /// Returns the path of an entry for messages.
    pub(super) fn display(&self, path: &Path) -> PathBuf {
        match &self.destination {
            Destination::Directory { path: base, .. } => base.join(path),
            Destination::Planned(base) => base.join(path),
            Destination::Null => "/dev/null".into(),
            Destination::Outlet(_) => "-".into(),
        }
    }

    /// Counts bytes that were read to compare them; false when the copy is over.
    pub(super) fn count_checked(&self, bytes: u64) -> bool {
        self.checked.fetch_add(bytes, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed)
    }

    /// Returns the attributes that could not be kept so far.
    pub(super) fn not_kept(&self) -> Vec<NotKept> {
        self.keeper.not_kept()
    }

    /// Returns the bytes that the replacement of the file at `path` frees; `None` if the file is on
    /// another file system than the target.
    pub(super) fn replaced_bytes(&self, path: &Path) -> io::Result<Option<u64>> {
        let Some((_, dir, name)) = self.locate(path)? else { return Ok(None) };
        if !self.space.covers(dir.device) {
            return Ok(None);
        }
        if dir.fresh {
            return Ok(Some(0));
        }
        let there = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        // Another name keeps the file.
        let freed = there.ok().filter(|stat| stat.st_nlink == 1);
        Ok(Some(freed.map_or(0, |stat| stat.st_blocks as u64 * 512)))
    }

    /// Makes a directory, or takes an existing one; returns whether it gets attributes.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<bool> {
        let Some((tree, parent, name)) = self.locate(path)? else { return Ok(false) };
        // Writable until it is complete; the final mode is set at the end.
        match mkdirat(&parent.fd, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                self.keeper.open_to_owner(&parent.fd, name)?;
                lock(&self.made).insert(path.to_owned());
                Ok(true)
            }
            Err(Errno::EXIST) => tree.open_dir(path).map(|_| tree.rights().may_replace()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a directory its mode and times, once everything is in it.
    pub(super) fn finish_dir(&self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let Destination::Directory { tree, .. } = &self.destination else { return Ok(()) };
        let dir = tree.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        self.keeper.apply_attributes(dir, attributes, None, &self.display(path));
        Ok(())
    }

    /// Makes the names in the directory `path` durable.
    pub(super) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let Destination::Directory { tree, .. } = &self.destination else { return Ok(()) };
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let dir = tree.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Countdown::of(&self.display(Path::new(""))).tick()?;
        Ok(rustix::fs::fsync(dir)?)
    }

    /// Syncs the file systems; false if one of them needs a sync per file.
    pub(super) fn sync_all(&self) -> bool {
        let faults = Countdown::of(&self.display(Path::new("")));
        let reliable = |sync: &FileSystemSync| !sync.has_failed() && sync.sync(&faults).is_ok();
        lock(&self.syncs).values().all(|sync| sync.as_deref().is_some_and(reliable))
    }

    /// Begins a file of `size` bytes at `path`; `None` where bytes are dropped. A sparse file gets
    /// no space in advance, and its zero bytes are not written.
    pub(super) fn create(
        &self,
        id: u64,
        path: &Path,
        size: u64,
        sparse: bool,
    ) -> io::Result<Option<PartialFile>> {
        let Some((_, dir, name)) = self.locate(path)? else { return Ok(None) };
        existing_mode(&dir, name)?;
        dir.faults.tick()?;
        let create = |extra| self.create_new((&dir.fd, name, id), extra, 0o600);
        let direct = self.passes_by(&dir, size);
        let ((fd, temporary), direct) =
            match create(if direct { OFlags::DIRECT } else { OFlags::empty() }) {
                Ok(made) => (made, direct),
                // The file system has no direct I/O.
                Err(Errno::INVAL) if direct => (create(OFlags::empty())?, false),
                Err(error) => return Err(error.into()),
            };
        hold(&fd);
        let temporary = Temporary::new(dir, temporary, name.to_owned());
        let partial = PartialFile::new(File::from(fd), temporary, size, sparse, direct);
        partial.reserve()?;
        Ok(Some(partial))
    }

    /// Returns whether a file of `size` bytes in `dir` is opened for direct I/O.
    fn passes_by(&self, dir: &OpenDir, size: u64) -> bool {
        self.disk.may_pass_by(size) && !self.disk.buffers(dir.device, size, &dir.fd)
    }

    /// Returns whether the blocks of the file of `size` bytes at `path` are written in pieces, or
    /// dropped.
    pub(super) fn buffers(&self, path: &Path, size: u64) -> io::Result<bool> {
        let Some((_, dir, _)) = self.locate(path)? else { return Ok(self.outlet().is_none()) };
        Ok(self.disk.buffers(dir.device, size, &dir.fd))
    }

    /// Stores a whole small file under its temporary name and closes it; `None` where bytes are
    /// dropped. If `durable`, this function syncs the file if it cannot be synced later: if the sync
    /// of the file system is unreliable, or if this user may not open the file again.
    pub(super) fn create_small(
        &self,
        file: &SinkFile,
        bytes: &[u8],
        durable: bool,
    ) -> io::Result<Option<(Temporary, FileId)>> {
        let SinkFile { id, path, attributes, .. } = file;
        let Some((_, dir, name)) = self.locate(path)? else { return Ok(None) };
        let existing = existing_mode(&dir, name)?;
        dir.faults.tick()?;
        let plain = self.keeper.is_plain() && existing.is_none();
        let mode = if plain { attributes.mode & 0o777 } else { 0o600 };
        let (fd, temporary) = self.create_new((&dir.fd, name, *id), OFlags::empty(), mode)?;
        let mut file = File::from(fd);
        let temporary = Temporary::new(dir, temporary, name.to_owned());
        file.write_all(bytes)?;
        self.disk.add(IoMode::Cached, bytes.len() as u64);
        if !plain {
            self.keeper.apply_attributes(&file, attributes, existing, &self.display(path));
        }
        let stat = fstat(&file)?;
        // A file that its owner may not read cannot be opened again for the sync.
        if durable && (temporary.dir.sync.is_none() || stat.st_mode & 0o400 == 0) {
            file.sync_all()?;
            temporary.synced.store(true, Ordering::Relaxed);
        }
        if !durable {
            temporary.dir.faults.tick()?;
        }
        longhaul_sys::file::close(file)?;
        Ok(Some((temporary, file_id(&stat))))
    }

    /// Opens the file that an earlier attempt has left under the name `temporary`, if it is still
    /// that file, nobody else can have written to it, and no other session uses it. Its space is
    /// not reserved.
    pub(super) fn reopen(
        &self,
        file: &SinkFile,
        temporary: &OsStr,
        id: &FileId,
    ) -> io::Result<Option<PartialFile>> {
        let size = file.size();
        let Some((_, dir, name)) = self.locate(&file.path)? else { return Ok(None) };
        let own = |stat: &Stat| is_own(stat) && (stat.st_dev, stat.st_ino) == (id.device, id.inode);
        // Checked before the file is opened, because opening a device can have side effects.
        if !is_temporary_of(name.as_bytes(), temporary.as_bytes())
            || !own(&statat(&dir.fd, temporary, AtFlags::SYMLINK_NOFOLLOW)?)
        {
            return Ok(None);
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |extra| openat(&dir.fd, temporary, flags | extra, Mode::empty());
        let direct = self.passes_by(&dir, size);
        let (fd, direct) = match open(if direct { OFlags::DIRECT } else { OFlags::empty() }) {
            Err(Errno::INVAL) if direct => (open(OFlags::empty())?, false),
            fd => (fd?, direct),
        };
        if !own(&fstat(&fd)?) || !hold(&fd) {
            return Ok(None);
        }
        let temporary = Temporary::new(dir, temporary.to_owned(), name.to_owned());
        let mut partial = PartialFile::new(File::from(fd), temporary, size, file.sparse, direct);
        partial.reopened = true;
        // The file remains for the next attempt, even if this attempt fails.
        partial.temporary.keep(true);
        Ok(Some(partial))
    }

    /// Returns the identity of the file at `path`.
    pub(super) fn placed(&self, path: &Path) -> io::Result<Option<FileId>> {
        let Some((_, dir, name)) = self.locate(path)? else { return Ok(None) };
        Ok(Some(file_id(&statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)))
    }

    /// Makes a file under a temporary name of entry `id`, which is to become `name` in `dir`.
    pub(super) fn create_new(
        &self,
        (dir, name, id): (&OwnedFd, &OsStr, u64),
        extra: OFlags,
        mode: u32,
    ) -> Result<(OwnedFd, OsString), Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.make_new((dir, name, id), |temporary| {
            let made = openat(dir, temporary, flags | extra, Mode::from_raw_mode(mode));
            if made.as_ref().is_err_and(|error| *error == Errno::INVAL) {
                // Some file systems create the file before they reject the flags.
                let _ = unlinkat(dir, temporary, AtFlags::empty());
            }
            made
        })
    }

    /// Runs `make` with a temporary name of entry `id`, and returns the name. If another user has
    /// taken the name, a random number replaces `id`.
    pub(super) fn make_new<T>(
        &self,
        (dir, name, id): (&OwnedFd, &OsStr, u64),
        make: impl Fn(&OsStr) -> Result<T, Errno>,
    ) -> Result<(T, OsString), Errno> {
        let first = temporary_name(name, self.token.number(), id);
        match make(&first) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, first)),
        }
        if let Token::OfCopy(_) = self.token
            && self.remove_own(dir, &first)
        {
            match make(&first) {
                Err(Errno::EXIST) => {}
                made => return made.map(|made| (made, first)),
            }
        }
        // The token remains in the name, so that a sweep of a later attempt finds the file.
        let random = u64::from_be_bytes(*random_keying_material().first_chunk().expect("32 bytes"));
        let random = temporary_name(name, self.token.number(), random);
        make(&random).map(|made| (made, random))
    }

    /// Removes the file that an earlier attempt of this user has left under the name `temporary`;
    /// false if it is another user's, is to be resumed, or is in use.
    fn remove_own(&self, dir: &OwnedFd, temporary: &OsStr) -> bool {
        let spared = |stat: &Stat| {
            let identity = (stat.st_dev, stat.st_ino);
            self.sweep.as_ref().is_some_and(|sweep| sweep.keeps(identity))
        };
        let left = |stat: Stat| stat.st_uid == geteuid().as_raw() && !spared(&stat);
        statat(dir, temporary, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(left)
            && !is_held(dir, temporary)
            && unlinkat(dir, temporary, AtFlags::empty()).is_ok()
    }

    /// Gives a complete file of `size` bytes at `path` its length and attributes.
    pub(super) fn apply_attributes(
        &self,
        partial: &PartialFile,
        path: &Path,
        size: u64,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let overran = partial.direct && !size.is_multiple_of(DIRECT_ALIGN as u64);
        // The file of an earlier attempt can be longer.
        if overran || partial.sparse || partial.reopened {
            partial.file.set_len(size)?;
        }
        let existing = existing_mode(&partial.temporary.dir, &partial.temporary.name)?;
        self.keeper.apply_attributes(&partial.file, attributes, existing, &self.display(path));
        Ok(())
    }

    /// Returns the open directory above `path`, and the last part of `path`.
    pub(super) fn locate<'a>(
        &self,
        path: &'a Path,
    ) -> io::Result<Option<(&Tree, Arc<OpenDir>, &'a OsStr)>> {
        let Destination::Directory { tree, .. } = &self.destination else { return Ok(None) };
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().unwrap_or(Path::new(""));
        if let Some(dir) = lock(&self.dirs).get(above) {
            return Ok(Some((tree, dir.clone(), name)));
        }
        let fd = tree.open_dir(if above == Path::new("") { ".".as_ref() } else { above })?;
        let fresh = lock(&self.made).contains(above);
        if let Some(sweep) = self.sweep.as_ref().filter(|_| !fresh) {
            sweep.directory(&fd);
        }
        let device = fstat(&fd)?.st_dev;
        let sync = self.sync_handle(&fd, device)?;
        let replaces = tree.rights().may_replace();
        let faults = Countdown::of(&self.display(Path::new("")));
        let dir = Arc::new(OpenDir { fd, fresh, replaces, faults, device, sync });
        let mut dirs = lock(&self.dirs);
        if dirs.len() >= OPEN_DIRS {
            dirs.clear();
        }
        dirs.insert(above.to_owned(), dir.clone());
        Ok(Some((tree, dir, name)))
    }

    /// Returns the sync of the file system of `dir`, which all its directories share.
    fn sync_handle(&self, dir: &OwnedFd, device: u64) -> io::Result<Option<Arc<FileSystemSync>>> {
        let mut syncs = lock(&self.syncs);
        if let Some(sync) = syncs.get(&device) {
            return Ok(sync.clone());
        }
        let holds = fstatfs(dir).is_ok_and(|fs| SYNCFS_HOLDS.contains(&(fs.f_type as u64)));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that may be written and not read is synced file by file.
        let sync = openat(dir, ".", flags, Mode::empty()).ok().filter(|_| holds);
        let sync = sync.map(|fd| Arc::new(FileSystemSync::new(File::from(fd))));
        syncs.insert(device, sync.clone());
        Ok(sync)
    }
}
