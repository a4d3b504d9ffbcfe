//! Reads a source's files with the readers of a copy, and drops the data: the step of a diagnosis
//! that needs no network.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, DirectIo};
use longhaul_core::result::{DiskStepReport, StageTimes, SubsetReport, ThreadRole};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::Entry;
use longhaul_sys::memory::AlignedBuffer;

use super::SourcePlan;
use super::feed::ReadError;
use super::file::SourceFile;
use super::shared::READERS;
use super::walk::{Walk, WalkSink};
use crate::copy::clock::{CpuMeter, StageClock};
use crate::copy::disk::Disk;
use crate::error::{EngineError, Result};
use crate::lock;
use crate::session::Throttle;

/// The files of a walk.
#[derive(Default)]
pub(crate) struct SubsetFiles {
    files: Vec<Arc<SourceFile>>,
    failure: Option<(std::path::PathBuf, String)>,
}

impl WalkSink for SubsetFiles {
    fn announce(&mut self, _: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()> {
        self.files.extend(files);
        Ok(())
    }

    fn failed(&mut self, path: &Path, reason: &str) -> Result<()> {
        self.failure.get_or_insert_with(|| (path.to_owned(), reason.to_owned()));
        Ok(())
    }

    fn skipped(&mut self, _: &Path, _: &str) -> Result<()> {
        Ok(())
    }
}

impl SubsetFiles {
    /// Walks `plan`, whose options have a subset.
    fn walk(plan: &SourcePlan, options: &CopyOptions) -> Result<Self> {
        let mut found = SubsetFiles::default();
        Walk::new(&plan.tree, options, &mut found).run(&plan.roots)?;
        match found.failure.take() {
            Some((path, reason)) if found.files.is_empty() => {
                let source = std::io::Error::other(reason);
                Err(EngineError::File { operation: "use", path, source })
            }
            _ => Ok(found),
        }
    }
}

/// Returns the size of the sources, up to the subset of `options`.
///
/// # Errors
/// No source can be opened.
pub(crate) fn subset_of_source(plan: &SourcePlan, options: &CopyOptions) -> Result<SubsetReport> {
    let found = SubsetFiles::walk(plan, options)?;
    let bytes: u64 = found.files.iter().map(|file| file.size).sum();
    let files = found.files.len() as u64;
    let more = options.subset.is_some_and(|most| bytes >= most.bytes.get() || files >= most.files);
    Ok(SubsetReport { bytes: Bytes::new(bytes), files, more })
}

/// Drops the subset from the page cache. Dirty pages, names and metadata stay.
///
/// # Errors
/// As for [`subset_of_source`].
pub(crate) fn forget(plan: &SourcePlan, options: &CopyOptions) -> Result<()> {
    for file in SubsetFiles::walk(plan, options)?.files {
        file.forget();
    }
    Ok(())
}

/// Reads the subset for `time` at the most, or until `stop`, no faster than `throttle` allows; from
/// the beginning again if it ends within a third of the time.
///
/// # Errors
/// As for [`subset_of_source`], or a file cannot be read.
pub(crate) fn read(
    plan: &SourcePlan,
    options: &CopyOptions,
    time: Duration,
    throttle: &Throttle,
    stop: &AtomicBool,
) -> Result<DiskStepReport> {
    let (clock, cpu) = (StageClock::default(), CpuMeter::default());
    // Measures the disk, even if the cache is faster.
    let disk = Disk::new(DirectIo::Always);
    let (bytes, files) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut elapsed = Duration::ZERO;
    loop {
        let found = SubsetFiles::walk(plan, options)?.files;
        for file in &found {
            file.forget();
        }
        let begun = Instant::now();
        let pass = Pass {
            deadline: begun + time.saturating_sub(elapsed),
            stop,
            throttle,
            jobs: Mutex::new(jobs(&found, options.block_bytes.get())),
            clock: &clock,
            disk: &disk,
            bytes: &bytes,
            files: &files,
        };
        pass.run(&cpu, options.block_bytes.get() as usize)?;
        elapsed += begun.elapsed();
        let whole: u64 = found.iter().map(|file| file.size).sum();
        if elapsed >= time / 3 || whole == 0 || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(DiskStepReport {
        bytes: Bytes::new(bytes.into_inner()),
        files: files.into_inner(),
        seconds: elapsed.as_secs_f64(),
        end: disk.described(cpu.report(elapsed)),
        stages: StageTimes { read: clock.share(elapsed), ..StageTimes::default() },
        overwrite_bps: None,
        how: how(throttle),
    })
}

fn how(throttle: &Throttle) -> String {
    let limited = match throttle.rate() {
        Some(rate) => format!("; limited to {rate} for this key"),
        None => String::new(),
    };
    format!(
        "large files with O_DIRECT, small files after POSIX_FADV_DONTNEED; names and metadata \
        may be in memory{limited}"
    )
}

/// Returns the jobs: blocks, or whole small files.
fn jobs(files: &[Arc<SourceFile>], block_bytes: u64) -> VecDeque<(Arc<SourceFile>, u64)> {
    let offsets = |file: &SourceFile| if file.is_small(block_bytes) { 1 } else { file.blocks() };
    let of = |file: &Arc<SourceFile>| {
        let (file, count) = (file.clone(), offsets(file));
        (0..count).map(move |block| (file.clone(), block * block_bytes))
    };
    files.iter().flat_map(of).collect()
}

/// One pass over the subset.
struct Pass<'a> {
    deadline: Instant,
    stop: &'a AtomicBool,
    throttle: &'a Throttle,
    jobs: Mutex<VecDeque<(Arc<SourceFile>, u64)>>,
    clock: &'a StageClock,
    disk: &'a Disk,
    bytes: &'a AtomicU64,
    files: &'a AtomicU64,
}

impl Pass<'_> {
    fn run(&self, cpu: &CpuMeter, block: usize) -> Result<()> {
        let outcomes: Vec<Result<()>> = thread::scope(|scope| {
            let reader = || cpu.run(ThreadRole::Read, || self.read(block));
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
            readers
                .into_iter()
                .map(|one| one.join().unwrap_or(Err(EngineError::Interrupted)))
                .collect()
        });
        outcomes.into_iter().collect()
    }

    fn read(&self, block: usize) -> Result<()> {
        self.clock.join();
        let mut buffer = AlignedBuffer::new(block);
        // At least one, so that a slow host gets a result.
        let mut first = true;
        while first || Instant::now() < self.deadline && !self.stop.load(Ordering::Relaxed) {
            first = false;
            let Some((file, offset)) = lock(&self.jobs).pop_front() else { break };
            let coming = file.size.saturating_sub(offset).min(block as u64);
            self.throttle.take(coming, self.deadline, self.stop);
            let read = self.clock.time(|| read_one(&file, offset, &mut buffer, block, self.disk));
            let length = read.map_err(|error| EngineError::File {
                operation: "read",
                path: file.path.clone(),
                source: std::io::Error::other(error.to_string()),
            })?;
            self.bytes.fetch_add(length as u64, Ordering::Relaxed);
            if offset + length as u64 >= file.size {
                self.files.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

fn read_one(
    file: &SourceFile,
    offset: u64,
    buffer: &mut AlignedBuffer,
    block: usize,
    disk: &Disk,
) -> std::result::Result<usize, ReadError> {
    if !file.is_small(block as u64) {
        return file.read(offset, buffer, disk);
    }
    if let Some(open) = file.open_small()? {
        file.read_small(&open, buffer)?;
    }
    Ok(file.size as usize)
}
