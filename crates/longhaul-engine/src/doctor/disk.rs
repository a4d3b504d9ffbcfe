//! The speed of a disk: a file is written and read as a copy does it, with four threads and blocks
//! of a mebibyte, past the page cache if the file system supports it.
//!
//! The file has no name while it is measured, so that nothing remains after a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::result::Measurement;
use longhaul_sys::memory::AlignedBuffer;
use rustix::fs::{Advice, OFlags, fadvise, statvfs};

use super::{failed, file_failed, measured};
use crate::error::Result;
use crate::noise;

const BLOCK: u64 = 1 << 20;
/// The number of threads, as of a copy.
const THREADS: usize = 4;
/// The largest file; a tenth of the free space remains free otherwise.
const LARGEST: u64 = 4 << 30;
/// The largest file through the page cache, because all of it is still dirty at the end of the
/// time.
const LARGEST_CACHED: u64 = 256 << 20;
/// The smallest meaningful file.
const LEAST: u64 = 16 << 20;

const WRITE: (&str, &str) = ("disk_write", "disk, written and synced");
const READ: (&str, &str) = ("disk_read", "disk, read");

/// Writes for `time`, syncs, and reads back for at most as long.
pub(super) fn measure(directory: &Path, time: Duration) -> Vec<Measurement> {
    let fail = |(name, title): (&str, &str), error| failed(name, title, &error);
    let scratch = match Scratch::new(directory) {
        Ok(scratch) => scratch,
        Err(error) => return vec![fail(WRITE, error)],
    };
    let how = scratch.how(directory);
    let written = match scratch.write(directory, time) {
        Ok((bytes, elapsed)) => (bytes, measured(WRITE.0, WRITE.1, bytes, elapsed, &how)),
        Err(error) => return vec![fail(WRITE, error)],
    };
    let read = match scratch.read(directory, written.0, time) {
        Ok((bytes, elapsed)) => measured(READ.0, READ.1, bytes, elapsed, &how),
        Err(error) => fail(READ, error),
    };
    vec![written.1, read]
}

/// A file without a name.
struct Scratch {
    file: File,
    direct: bool,
    limit: u64,
}

impl Scratch {
    fn new(directory: &Path) -> Result<Self> {
        let failed = file_failed("make a file for the disk's test in", directory);
        let disk = statvfs(directory).map_err(|error| failed(error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize) / 10 / BLOCK * BLOCK;
        if free < LEAST {
            return Err(failed(ErrorKind::StorageFull.into()));
        }
        let (file, direct) = match create(directory, OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                (create(directory, OFlags::empty()).map_err(failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        let limit = free.min(if direct { LARGEST } else { LARGEST_CACHED });
        Ok(Scratch { file, direct, limit })
    }

    fn how(&self, directory: &Path) -> String {
        let way = if self.direct { "past the page cache" } else { "through the page cache" };
        format!("in {}, {way}, {THREADS} threads, blocks of 1 MiB", directory.display())
    }

    /// Writes, and returns the bytes and the time until they were on stable storage.
    fn write(&self, directory: &Path, time: Duration) -> Result<(u64, Duration)> {
        let begun = Instant::now();
        let bytes =
            self.each_block(self.limit, time, |buffer, at| self.file.write_all_at(buffer, at));
        let bytes = bytes.map_err(file_failed("write a file in", directory))?;
        self.file.sync_all().map_err(file_failed("sync a file in", directory))?;
        Ok((bytes, begun.elapsed()))
    }

    /// Reads, and returns the bytes and the time.
    fn read(&self, directory: &Path, written: u64, time: Duration) -> Result<(u64, Duration)> {
        if !self.direct {
            // Drops the synced pages, because memory would be read otherwise.
            let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        }
        let begun = Instant::now();
        let bytes =
            self.each_block(written, time, |buffer, at| self.file.read_exact_at(buffer, at));
        let bytes = bytes.map_err(file_failed("read a file in", directory))?;
        Ok((bytes, begun.elapsed()))
    }

    /// Does `work` to one block after the other on all threads, up to `limit` bytes or until `time`
    /// has passed. Returns the number of bytes.
    fn each_block(
        &self,
        limit: u64,
        time: Duration,
        work: impl Fn(&mut AlignedBuffer, u64) -> io::Result<()> + Sync,
    ) -> io::Result<u64> {
        let (next, deadline) = (AtomicU64::new(0), Instant::now() + time);
        let (next, work) = (&next, &work);
        let thread = move || -> io::Result<()> {
            let mut buffer = AlignedBuffer::new(BLOCK as usize);
            noise(&mut buffer);
            // A block that was begun is completed, so that there are no gaps.
            while Instant::now() < deadline {
                let at = next.fetch_add(BLOCK, Ordering::Relaxed);
                if at + BLOCK > limit {
                    next.fetch_sub(BLOCK, Ordering::Relaxed);
                    break;
                }
                work(&mut buffer, at)?;
            }
            Ok(())
        };
        let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, io::Result<()>>| {
                thread.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
            };
            threads.into_iter().map(ended).collect()
        });
        outcomes.into_iter().collect::<io::Result<()>>()?;
        Ok(next.load(Ordering::Relaxed))
    }
}

/// Creates a file and removes its name at once.
fn create(directory: &Path, flags: OFlags) -> io::Result<File> {
    let path = directory.join(format!(".longhaul-doctor-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(flags.bits() as i32)
        .open(&path);
    // open(2) may create the file before it refuses O_DIRECT; an existing name stays.
    match &file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        _ => drop(fs::remove_file(&path)),
    }
    file
}
