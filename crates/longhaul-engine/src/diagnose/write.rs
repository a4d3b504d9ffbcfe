//! Writes files from memory as a sink does: the step at the sink that needs no network.
//!
//! Large files are allocated in advance and written past the page cache by as many threads as a
//! sink has writers. They are then overwritten, which shows the cost of allocation. Small files are
//! created under a temporary name, written and renamed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::result::{DataPath, DiskStepReport, StageTimes, ThreadRole};
use longhaul_core::units::{Bytes, MinFree, Rate};
use longhaul_sys::memory::AlignedBuffer;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat, renameat, syncfs};
use rustix::io::Errno;

use super::scratch::free_bytes;
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::{DIRECT_FROM_BYTES, WRITERS};
use crate::error::{EngineError, Result};
use crate::noise;
use crate::session::Throttle;

/// The block size of a copy.
const BLOCK: u64 = 4 << 20;
/// The largest number of bytes to write through the page cache. They are still dirty when the time
/// is up, and the sync at the end must write them.
const LARGEST_CACHED: u64 = 512 << 20;
/// The time limit divided by the time for overwriting.
const OVERWRITE_PART: u32 = 4;

/// The files to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    /// The largest number of bytes in all files.
    pub(super) bytes: u64,
    /// The number of files.
    pub(super) files: u64,
    /// True to sync the files at the end.
    pub(super) durable: bool,
    /// The time limit.
    pub(super) time: Duration,
    /// The rate limit.
    pub(super) rate: Option<Rate>,
}

/// Writes into the open directory `dir` with this `path` until all is written, the time is up, or
/// `stop` is set.
///
/// # Errors
/// The file system refuses, or has no room.
pub(super) fn write(
    (dir, path): (&OwnedFd, &Path),
    writing: Writing,
    reserve: MinFree,
    stop: &AtomicBool,
) -> Result<DiskStepReport> {
    let room = free_bytes(dir, reserve).map_or(u64::MAX, Bytes::get);
    let writing = Writing { bytes: writing.bytes.min(room / 2), ..writing };
    if writing.bytes < writing.files.max(1) {
        return Err(EngineError::file("write in", path)(io::ErrorKind::StorageFull.into()));
    }
    let failed = EngineError::file("write in", path);
    let work = Work {
        dir,
        writing,
        stop,
        throttle: Throttle::new(writing.rate),
        deadline: Instant::now() + writing.time,
        clock: StageClock::default(),
        cpu: CpuMeter::default(),
    };
    match writing.bytes / writing.files.max(1) {
        mean if mean >= DIRECT_FROM_BYTES => work.large(),
        mean => work.small(mean as usize),
    }
    .map_err(failed)
}

struct Work<'a> {
    dir: &'a OwnedFd,
    writing: Writing,
    stop: &'a AtomicBool,
    throttle: Throttle,
    deadline: Instant,
    clock: StageClock,
    cpu: CpuMeter,
}

impl Work<'_> {
    fn large(self) -> io::Result<DiskStepReport> {
        let begun = Instant::now();
        let (file, direct) = match self.create("large", OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(Errno::INVAL) => (self.create("large-cached", OFlags::empty())?, false),
            Err(error) => return Err(error.into()),
        };
        let most = if direct { self.writing.bytes } else { self.writing.bytes.min(LARGEST_CACHED) };
        let most = (most / BLOCK).max(1) * BLOCK;
        match fallocate(&file, FallocateFlags::empty(), 0, most) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        let end_of_writing = self.deadline - self.writing.time / OVERWRITE_PART;
        let bytes = self.blocks(&file, most, end_of_writing)?;
        if self.writing.durable {
            self.clock.time(|| file.sync_all())?;
        }
        let elapsed = begun.elapsed();
        let overwrite_bps = match bytes {
            0 => None,
            _ => {
                let begun = Instant::now();
                let again =
                    self.blocks(&file, bytes, begun + self.writing.time / OVERWRITE_PART)?;
                if self.writing.durable {
                    file.sync_all()?;
                }
                (again > 0).then(|| Rate::mean(Bytes::new(again), begun.elapsed()))
            }
        };
        let how = if direct { "past the page cache (O_DIRECT)" } else { "through the page cache" };
        let how = format!("{how}, {WRITERS} threads, blocks of {}", Bytes::new(BLOCK));
        let mut report = self.report(bytes, 1, elapsed, how);
        report.overwrite_bps = overwrite_bps;
        report.end.direct_bytes = Bytes::new(if direct { bytes } else { 0 });
        report.end.data_path = Some(if direct { DataPath::Direct } else { DataPath::Buffered });
        Ok(report)
    }

    /// Writes whole blocks on all threads, up to `most` bytes or until the deadline.
    fn blocks(&self, file: &File, most: u64, deadline: Instant) -> io::Result<u64> {
        let next = AtomicU64::new(0);
        self.threads(|| {
            let mut buffer = AlignedBuffer::new(BLOCK as usize);
            noise(&mut buffer);
            // Each thread writes at least one block, so that a very slow host gets a rate, too.
            let mut first = true;
            while first || Instant::now() < deadline && !self.stop.load(Ordering::Relaxed) {
                first = false;
                let at = next.fetch_add(BLOCK, Ordering::Relaxed);
                if at + BLOCK > most {
                    next.fetch_sub(BLOCK, Ordering::Relaxed);
                    break;
                }
                self.throttle.take(BLOCK, deadline, self.stop);
                self.clock.time(|| file.write_all_at(&buffer, at))?;
            }
            Ok(())
        })?;
        Ok(next.into_inner())
    }

    fn small(self, size: usize) -> io::Result<DiskStepReport> {
        let begun = Instant::now();
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut bytes = vec![0; size];
        noise(&mut bytes);
        self.threads(|| {
            while Instant::now() < self.deadline && !self.stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.writing.files {
                    break;
                }
                self.throttle.take(size as u64, self.deadline, self.stop);
                self.clock.time(|| self.one(number, &bytes))?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        if self.writing.durable {
            self.clock.time(|| syncfs(self.dir))?;
        }
        let files = done.into_inner();
        let how =
            format!("made, written and renamed by {WRITERS} threads, then synced all at once");
        Ok(self.report(files * size as u64, files, begun.elapsed(), how))
    }

    fn one(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let (temporary, name) = (format!(".{number}.part"), number.to_string());
        let mut file = self.create(&temporary, OFlags::empty())?;
        file.write_all(bytes)?;
        Ok(renameat(self.dir, &temporary, self.dir, &name)?)
    }

    fn create(&self, name: &str, extra: OFlags) -> std::result::Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | extra;
        openat(self.dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
    }

    fn threads(&self, work: impl Fn() -> io::Result<()> + Sync) -> io::Result<()> {
        let writer = || {
            self.clock.join();
            self.cpu.run(ThreadRole::Write, &work)
        };
        let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, io::Result<()>>| {
                thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
            };
            threads.into_iter().map(ended).collect()
        });
        outcomes.into_iter().collect()
    }

    fn report(&self, bytes: u64, files: u64, elapsed: Duration, mut how: String) -> DiskStepReport {
        if let Some(rate) = self.writing.rate {
            how.push_str(&format!("; limited to {rate} for this key"));
        }
        DiskStepReport {
            bytes: Bytes::new(bytes),
            files,
            seconds: elapsed.as_secs_f64(),
            end: self.cpu.report(elapsed),
            stages: StageTimes { write: self.clock.share(elapsed), ..StageTimes::default() },
            overwrite_bps: None,
            how,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_files_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let fd = OwnedFd::from(File::open(dir.path()).unwrap());
        let time = Duration::from_secs(5);
        let stop = AtomicBool::new(false);
        let run = |bytes, files| {
            let writing = Writing { bytes, files, durable: true, time, rate: None };
            write((&fd, dir.path()), writing, MinFree::NONE, &stop).unwrap()
        };
        let large = run(16 << 20, 1);
        assert_eq!((large.bytes, large.files), (Bytes::mib(16), 1));
        assert!(large.overwrite_bps.unwrap().bps() > 0);
        let small = run(50 * 1000, 50);
        assert_eq!((small.bytes.get(), small.files), (50_000, 50));
        assert_eq!(std::fs::read(dir.path().join("49")).unwrap().len(), 1000);
        stop.store(true, Ordering::Relaxed);
        std::fs::remove_file(dir.path().join("large")).unwrap();
        assert_eq!(run(1 << 30, 1).bytes.get(), WRITERS as u64 * BLOCK, "a block of each writer");
    }
}
