use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use longhaul_sys::memory::DIRECT_ALIGN;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::store::OpenDir;

/// A name beside the final one. Dropped before [`rename`](Self::rename), what is under it is
/// removed.
pub(super) struct Temporary {
    pub(super) dir: Arc<OpenDir>,
    pub(super) temporary: OsString,
    pub(super) name: OsString,
    renamed: bool,
}

/// A file that is being written under its temporary name.
pub(super) struct PartialFile {
    pub(super) file: File,
    pub(super) temporary: Temporary,
    pub(super) size: u64,
    /// Writes must be aligned; the last one runs over the end, which is cut off later.
    pub(super) direct: bool,
}

impl Temporary {
    /// What was just created in `dir` as `temporary`, to become `name`.
    pub(super) fn new(dir: Arc<OpenDir>, temporary: OsString, name: OsString) -> Self {
        Temporary { dir, temporary, name, renamed: false }
    }

    /// Makes what is under the name durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.dir.fd, &self.temporary, flags, Mode::empty())?;
        Ok(rustix::fs::fsync(file)?)
    }

    /// Gives the file its final name.
    pub(super) fn rename(mut self) -> io::Result<()> {
        let dir = &self.dir.fd;
        if self.dir.replaces {
            renameat(dir, &self.temporary, dir, &self.name)?;
        } else {
            renameat_with(dir, &self.temporary, dir, &self.name, RenameFlags::NOREPLACE)?;
        }
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = unlinkat(&self.dir.fd, &self.temporary, AtFlags::empty());
        }
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
}
