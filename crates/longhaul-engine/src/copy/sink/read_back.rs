//! `--verify=reread`: a finished file is read back from the disk before it gets its name, and its
//! digest compared with that of the received bytes.
//!
//! The file is synced, its pages are dropped from the page cache, and it is read with `O_DIRECT` if
//! the file system supports that. A cache in the disk itself is not bypassed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_sys::memory::{AlignedBuffer, DIRECT_ALIGN};
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fdatasync, fstat, fstatfs};
use rustix::io::Errno;

use super::ledger::SinkFile;
use super::partial::Temporary;
use crate::copy::digest::FileDigest;
use crate::copy::journal::FileId;

/// Bytes per read.
const READ_BYTES: usize = 4 << 20;
/// The number of attempts to drop the pages of a file, because another process can read them at the
/// same time.
const DROPS: usize = 3;
/// File systems that store files in the page cache (linux/magic.h: tmpfs, ramfs).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Reads back the file `id` under its temporary name, and compares it with the received data. Adds
/// the bytes that it reads to `checked`.
///
/// # Errors
/// The file cannot be read from the disk, or differs.
pub(super) fn read_back(
    temporary: &Temporary,
    id: &FileId,
    file: &SinkFile,
    checked: &AtomicU64,
) -> io::Result<()> {
    let Some(digest) = &file.digest else {
        return Err(io::Error::other("no digest is available for the comparison"));
    };
    let size = file.size();
    if digest.is_too_long(size) {
        return Err(io::Error::other("the file is too long to be read back with this block size"));
    }
    temporary.dir.faults.tick()?;
    add_holes(digest, size);
    let hash = DiskFile::open(temporary, id)?.hash(size, checked)?;
    if digest.finish(size) != Some(hash) {
        return Err(io::Error::other("the disk returns other bytes than were received"));
    }
    Ok(())
}

/// Adds the pieces to `digest` that were not received: holes of the source, which are zeros.
fn add_holes(digest: &FileDigest, size: u64) {
    let (missing, step) = digest.missing(size);
    let zeros = vec![0; if missing.is_empty() { 0 } else { step as usize }];
    for offset in missing {
        digest.add(offset, &zeros[..step.min(size - offset) as usize], Some(size));
    }
}

/// Makes the next reads of `file` come from the disk.
///
/// # Errors
/// Its pages cannot be written or dropped, and reads are not `direct`.
pub(super) fn drop_pages(file: &File, direct: bool) -> io::Result<()> {
    let in_memory = || fstatfs(file).is_ok_and(|fs| IN_MEMORY.contains(&(fs.f_type as u64)));
    for _ in 0..DROPS {
        // Only clean pages are dropped.
        fdatasync(file)?;
        fadvise(file, 0, None, Advice::DontNeed)?;
        let size = fstat(file)?.st_size as u64;
        // A kernel without cachestat(2) does not report the remaining pages.
        if longhaul_sys::file::cached_bytes(file, 0, size).map_or(true, |cached| cached == 0) {
            return Ok(());
        }
    }
    if !direct && !in_memory() {
        let reason = "its pages stay in the page cache: another process uses the file";
        return Err(io::Error::other(reason));
    }
    Ok(())
}

/// A file that is read from the disk.
struct DiskFile {
    file: File,
    buffer: AlignedBuffer,
}

impl DiskFile {
    fn open(temporary: &Temporary, id: &FileId) -> io::Result<Self> {
        let open = |extra| temporary.open_to_read(extra, id);
        let unsupported = |error: &io::Error| error.raw_os_error() == Some(EINVAL);
        let (file, direct) = match open(OFlags::DIRECT) {
            Err(error) if unsupported(&error) => (open(OFlags::empty())?, false),
            file => (file?, true),
        };
        drop_pages(&file, direct)?;
        Ok(DiskFile { file, buffer: AlignedBuffer::new(READ_BYTES) })
    }

    /// Reads the first `size` bytes.
    fn hash(&mut self, size: u64, checked: &AtomicU64) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        while at < size {
            let wanted = (size - at).min(READ_BYTES as u64) as usize;
            self.fill(at, wanted)?;
            hasher.update(&self.buffer[..wanted]);
            checked.fetch_add(wanted as u64, Ordering::Relaxed);
            at += wanted as u64;
        }
        Ok(hasher.finalize())
    }

    fn fill(&mut self, at: u64, wanted: usize) -> io::Result<()> {
        let aligned = wanted.next_multiple_of(DIRECT_ALIGN);
        let mut have = 0;
        while have < wanted {
            match self.file.read_at(&mut self.buffer[have..aligned], at + have as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => have += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some file systems accept O_DIRECT at open(2) and refuse it here.
                Err(error) if error.raw_os_error() == Some(EINVAL) => {
                    let flags = fcntl_getfl(&self.file)?;
                    if !flags.contains(OFlags::DIRECT) {
                        return Err(error);
                    }
                    fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                    drop_pages(&self.file, false)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

const EINVAL: i32 = Errno::INVAL.raw_os_error();
