use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longhaul_sys::memory::DIRECT_ALIGN;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, Timespec, Timestamps, fallocate, fchmod,
    fstat, futimens, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::placement::Destination;
use crate::copy::tree::{DIRECT_FROM_BYTES, Tree};
use crate::lock::lock;

/// Directories that are kept open; a tree is mostly written a directory at a time.
const OPEN_DIRS: usize = 64;

/// The place that entries are written to.
pub(super) struct Store {
    destination: Destination,
    preserve: bool,
    umask: u32,
    dirs: Mutex<HashMap<PathBuf, Arc<OwnedFd>>>,
    /// Makes temporary names of two copies into one directory differ.
    token: u32,
}

/// What is known of an entry besides its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) mtime_seconds: i64,
    pub(super) mtime_ns: u32,
}

/// A file under its temporary name. Dropped before [`rename`](Self::rename), it is removed.
pub(super) struct PartialFile {
    file: File,
    parent: Arc<OwnedFd>,
    temporary: OsString,
    name: OsString,
    size: u64,
    /// Writes must be aligned; the last one runs over the end, which is cut off later.
    direct: bool,
    renamed: bool,
}

impl Store {
    pub(super) fn new(destination: Destination, preserve: bool, token: u32) -> Self {
        Store { destination, preserve, umask: umask(), dirs: Mutex::default(), token }
    }

    /// Whether what is written stays: not so where bytes are dropped.
    pub(super) fn keeps(&self) -> bool {
        !matches!(self.destination, Destination::Null)
    }

    /// The path at the sink of the entry that the source calls `path`, a plain relative path.
    pub(super) fn path(&self, path: &[u8]) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(path));
        match &self.destination {
            Destination::Directory { rename: Some(name), .. } => {
                let mut parts = path.components();
                parts.next();
                Path::new(name).join(parts.as_path())
            }
            _ => path.to_owned(),
        }
    }

    /// Where `path` is, for messages.
    pub(super) fn display(&self, path: &Path) -> PathBuf {
        match &self.destination {
            Destination::Directory { path: base, .. } => base.join(path),
            Destination::Null => "/dev/null".into(),
        }
    }

    /// Makes a directory, or takes the one that is there.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<()> {
        let Some((tree, parent, name)) = self.locate(path)? else { return Ok(()) };
        // Writable for us until all is in it; the final mode comes at the end.
        match mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => tree.open_dir(path).map(|_| ()),
            done => Ok(done?),
        }
    }

    /// Gives a directory its mode and times, once everything is in it.
    pub(super) fn finish_dir(&self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let Destination::Directory { tree, .. } = &self.destination else { return Ok(()) };
        let dir = tree.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        self.set_attributes(&File::from(dir), attributes, None)
    }

    /// Makes the names in the directory `path` durable.
    pub(super) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let Destination::Directory { tree, .. } = &self.destination else { return Ok(()) };
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let dir = tree.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(rustix::fs::fsync(dir)?)
    }

    /// Begins a file of `size` bytes at `path`; `None` where bytes are dropped.
    pub(super) fn create(
        &self,
        id: u64,
        path: &Path,
        size: u64,
    ) -> io::Result<Option<PartialFile>> {
        let Some((_, parent, name)) = self.locate(path)? else { return Ok(None) };
        if statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        {
            return Err(Errno::ISDIR.into());
        }
        let temporary = self.temporary_name(name, id);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = |extra| openat(&parent, &temporary, flags | extra, Mode::from_raw_mode(0o600));
        let direct = size >= DIRECT_FROM_BYTES;
        let (fd, direct) = match create(if direct { OFlags::DIRECT } else { OFlags::empty() }) {
            Ok(fd) => (fd, direct),
            // The file system has no direct I/O. Some make the file before they say so.
            Err(Errno::INVAL) if direct => {
                let _ = unlinkat(&parent, &temporary, AtFlags::empty());
                (create(OFlags::empty())?, false)
            }
            Err(error) => return Err(error.into()),
        };
        let partial = PartialFile {
            file: File::from(fd),
            parent,
            temporary,
            name: name.to_owned(),
            size,
            direct,
            renamed: false,
        };
        if size > 0 {
            // A disk that is too small says so before anything is sent in vain.
            match fallocate(&partial.file, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(partial))
    }

    /// Gives a complete file its length, mode and times.
    pub(super) fn dress(&self, partial: &PartialFile, attributes: &Attributes) -> io::Result<()> {
        if partial.direct && !partial.size.is_multiple_of(DIRECT_ALIGN as u64) {
            partial.file.set_len(partial.size)?;
        }
        let existing = statat(&partial.parent, &partial.name, AtFlags::SYMLINK_NOFOLLOW)
            .ok()
            .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
            .map(|stat| stat.st_mode & 0o777);
        self.set_attributes(&partial.file, attributes, existing)
    }

    /// The source's mode and times when they are preserved; else the mode that a file replaced,
    /// or what the umask leaves of the source's.
    fn set_attributes(
        &self,
        file: &File,
        attributes: &Attributes,
        existing: Option<u32>,
    ) -> io::Result<()> {
        let mode = if self.preserve {
            attributes.mode & 0o777
        } else {
            existing.unwrap_or(attributes.mode & 0o777 & !self.umask)
        };
        fchmod(file, Mode::from_raw_mode(mode))?;
        if self.preserve {
            let time = Timespec {
                tv_sec: attributes.mtime_seconds,
                tv_nsec: attributes.mtime_ns.min(999_999_999).into(),
            };
            futimens(file, &Timestamps { last_access: time, last_modification: time })?;
        }
        Ok(())
    }

    fn temporary_name(&self, name: &OsStr, id: u64) -> OsString {
        // NAME_MAX is 255; the end of a long name goes, since the number makes it unique.
        let kept = &name.as_bytes()[..name.len().min(200)];
        let suffix = format!(".longhaul-{:08x}-{id}.part", self.token);
        OsString::from_vec([b".", kept, suffix.as_bytes()].concat())
    }

    /// The open directory above `path`, and the last part of `path`.
    fn locate<'a>(&self, path: &'a Path) -> io::Result<Option<(&Tree, Arc<OwnedFd>, &'a OsStr)>> {
        let Destination::Directory { tree, .. } = &self.destination else { return Ok(None) };
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().unwrap_or(Path::new(""));
        if let Some(dir) = lock(&self.dirs).get(above) {
            return Ok(Some((tree, dir.clone(), name)));
        }
        let dir =
            Arc::new(tree.open_dir(if above == Path::new("") { ".".as_ref() } else { above })?);
        let mut dirs = lock(&self.dirs);
        if dirs.len() >= OPEN_DIRS {
            dirs.clear();
        }
        dirs.insert(above.to_owned(), dir.clone());
        Ok(Some((tree, dir, name)))
    }
}

impl PartialFile {
    /// Writes the first `length` bytes of `buffer` at `offset`. The buffer is aligned, and has
    /// room up to the next multiple of [`DIRECT_ALIGN`], which a direct write fills with zeros.
    pub(super) fn write(&self, offset: u64, length: usize, buffer: &mut [u8]) -> io::Result<()> {
        if !self.direct {
            return self.file.write_all_at(&buffer[..length], offset);
        }
        let padded = length.next_multiple_of(DIRECT_ALIGN);
        buffer[length..padded].fill(0);
        match self.file.write_all_at(&buffer[..padded], offset) {
            // A file system that takes O_DIRECT at open and refuses it here.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let flags = rustix::fs::fcntl_getfl(&self.file)?;
                rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                self.file.write_all_at(&buffer[..length], offset)
            }
            done => done,
        }
    }

    /// Makes the bytes durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Makes everything on the file's file system durable: one call for many small files.
    pub(super) fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.file)?)
    }

    /// The file system that the file is on.
    pub(super) fn device(&self) -> io::Result<u64> {
        Ok(fstat(&self.file)?.st_dev)
    }

    /// Gives the file its final name.
    pub(super) fn rename(mut self) -> io::Result<()> {
        renameat(&self.parent, &self.temporary, &self.parent, &self.name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = unlinkat(&self.parent, &self.temporary, AtFlags::empty());
        }
    }
}

/// The process's umask, without changing it for a moment as umask(2) would.
fn umask() -> u32 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
            u32::from_str_radix(line.trim(), 8).ok()
        })
        .unwrap_or(0o022)
}
