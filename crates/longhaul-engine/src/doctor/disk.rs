//! A disk by itself: a file is written and read as a copy does it, with four threads and blocks of
//! a mebibyte, past the page cache where the file system can.
//!
//! The file has no name while it is measured, so that nothing is left whatever happens.

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
use crate::noise::noise;

const BLOCK: u64 = 1 << 20;
/// As many as a copy reads and writes with.
const THREADS: usize = 4;
/// The file ends here, however fast the disk; a tenth of what is free is left alone otherwise.
const LARGEST: u64 = 4 << 30;
/// Of a file that goes through the page cache, all is still to be written when time is up.
const LARGEST_CACHED: u64 = 256 << 20;
/// Less would tell nothing.
const LEAST: u64 = 16 << 20;

const WRITE: (&str, &str) = ("disk_write", "disk, written and synced");
const READ: (&str, &str) = ("disk_read", "disk, read");

/// Writes for `time`, syncs, and reads back for as long at the most.
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

    /// The bytes written, and the time until they were on stable storage.
    fn write(&self, directory: &Path, time: Duration) -> Result<(u64, Duration)> {
        let begun = Instant::now();
        let bytes =
            self.each_block(self.limit, time, |buffer, at| self.file.write_all_at(buffer, at));
        let bytes = bytes.map_err(file_failed("write a file in", directory))?;
        self.file.sync_all().map_err(file_failed("sync a file in", directory))?;
        Ok((bytes, begun.elapsed()))
    }

    /// The bytes read, and the time they took.
    fn read(&self, directory: &Path, written: u64, time: Duration) -> Result<(u64, Duration)> {
        if !self.direct {
            // Synced pages go; otherwise memory would be read.
            let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        }
        let begun = Instant::now();
        let bytes =
            self.each_block(written, time, |buffer, at| self.file.read_exact_at(buffer, at));
        let bytes = bytes.map_err(file_failed("read a file in", directory))?;
        Ok((bytes, begun.elapsed()))
    }

    /// Does `work` to one block after the other on all threads, up to `limit` bytes or until
    /// `time` has passed. Returns how many bytes were done.
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
            // A block that was begun is ended, so that those behind the last are all there.
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

/// Makes a file and takes its name away at once.
fn create(directory: &Path, flags: OFlags) -> io::Result<File> {
    let path = directory.join(format!(".longhaul-doctor-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(flags.bits() as i32)
        .open(&path);
    // open(2) may have made the file before it refuses O_DIRECT; a name that was there stays.
    match &file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        _ => drop(fs::remove_file(&path)),
    }
    file
}
