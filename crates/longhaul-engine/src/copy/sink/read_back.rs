//! `--verify=reread`: a finished file is read back from the disk before it gets its name, and its
//! digest compared with that of the bytes that came.
//!
//! The file is synced, its pages are dropped from the page cache, and it is read with `O_DIRECT` where
//! the file system takes that. A cache in the disk itself is not passed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use longhaul_sys::memory::{AlignedBuffer, DIRECT_ALIGN};
use rustix::fs::{
    Advice, Mode, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fdatasync, fstat, openat,
};
use rustix::io::Errno;

use super::ledger::SinkFile;
use super::partial::Temporary;
use super::store::file_id;
use crate::copy::digest::FileDigest;
use crate::copy::journal::FileId;

/// What is read at once.
const READ_BYTES: usize = 4 << 20;

/// Reads back what stands under its temporary name as the file that `id` tells, and compares it.
///
/// # Errors
/// It cannot be read, or differs from what came.
pub(super) fn read_back(temporary: &Temporary, id: &FileId, file: &SinkFile) -> io::Result<()> {
    let Some(digest) = &file.digest else {
        return Err(io::Error::other("there is no digest to compare it with"));
    };
    let size = file.size();
    if digest.is_too_long(size) {
        return Err(io::Error::other("it is too long to be read back; give a larger --block"));
    }
    temporary.dir.faults.tick()?;
    let mut back = Back::open(temporary, id)?;
    back.complete(digest, size, file.resumed.load(Ordering::Relaxed) > 0)?;
    let mut hasher = blake3::Hasher::new();
    back.read(0, size, |bytes| {
        hasher.update(bytes);
    })?;
    match digest.finish(size) {
        Some(came) if came == hasher.finalize() => Ok(()),
        _ => Err(io::Error::other("what the disk returns differs from what was received")),
    }
}

/// A file that is read from the disk.
struct Back {
    file: File,
    buffer: AlignedBuffer,
}

impl Back {
    fn open(temporary: &Temporary, id: &FileId) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (dir, name) = (&temporary.dir.fd, &temporary.temporary);
        let open = |extra| openat(dir, name, flags | extra, Mode::empty());
        let fd = match open(OFlags::DIRECT) {
            Err(Errno::INVAL) => open(OFlags::empty())?,
            fd => fd?,
        };
        let there = file_id(&fstat(&fd)?);
        if (there.device, there.inode) != (id.device, id.inode) {
            return Err(Errno::STALE.into());
        }
        // Only clean pages are dropped. Some file systems read through the cache whatever was asked.
        fdatasync(&fd)?;
        fadvise(&fd, 0, None, Advice::DontNeed)?;
        Ok(Back { file: File::from(fd), buffer: AlignedBuffer::new(READ_BYTES) })
    }

    /// Adds to `digest` the pieces that did not come: holes, which are zeros, or with `resumed` what
    /// an earlier attempt has left, which was compared when it was taken up.
    fn complete(&mut self, digest: &FileDigest, size: u64, resumed: bool) -> io::Result<()> {
        let (missing, step) = digest.missing(size);
        for offset in missing {
            let length = step.min(size - offset);
            let mut piece = Vec::with_capacity(length as usize);
            match resumed {
                true => self.read(offset, length, |bytes| piece.extend_from_slice(bytes))?,
                false => piece.resize(length as usize, 0),
            }
            digest.add(offset, &piece, Some(size));
        }
        Ok(())
    }

    /// Passes `length` bytes from `from` on, a multiple of [`DIRECT_ALIGN`].
    fn read(&mut self, from: u64, length: u64, mut pass: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut at, end) = (from, from + length);
        while at < end {
            let wanted = (end - at).min(READ_BYTES as u64) as usize;
            self.fill(at, wanted)?;
            pass(&self.buffer[..wanted]);
            at += wanted as u64;
        }
        Ok(())
    }

    fn fill(&mut self, at: u64, wanted: usize) -> io::Result<()> {
        let aligned = wanted.next_multiple_of(DIRECT_ALIGN);
        let mut have = 0;
        while have < wanted {
            match self.file.read_at(&mut self.buffer[have..aligned], at + have as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => have += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A file system that takes O_DIRECT at open and refuses it here.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    let flags = fcntl_getfl(&self.file)?;
                    if !flags.contains(OFlags::DIRECT) {
                        return Err(error);
                    }
                    fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
