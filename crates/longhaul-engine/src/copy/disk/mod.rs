//! The choice between direct I/O and the page cache.
//!
//! Direct I/O (`O_DIRECT`) saves a copy of every byte and leaves the cache to other programs,
//! which is most useful on fast disks. It is slow on some file systems, and reading cached bytes
//! from the cache is cheaper. Each end therefore measures both modes per file system with the
//! first blocks of a long file: [`Trial`] measures, [`Disk`] keeps the results.
//! `docs/design/disk.md` has the reasons and figures.
//!
//! This module does no I/O. The caller detects that a file system refuses direct I/O.

mod trial;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use longhaul_core::plan::DirectIo;
use longhaul_core::result::{DataPath, TransferEnd};
use longhaul_core::units::Bytes;
use longhaul_sys::cpu::ThreadClock;
use rustix::fs::fstatfs;

pub(super) use self::trial::IoMode;
use self::trial::{Cost, Trial};
use crate::lock;

/// The smallest size of files that may bypass the page cache. For smaller files, the cost of
/// opening and aligning exceeds the gain.
pub(crate) const DIRECT_FROM_BYTES: u64 = 1 << 20;
/// The smallest size of files whose first blocks are used for a trial.
const TRIAL_FROM_BYTES: u64 = 128 << 20;

/// File systems whose files are in memory: tmpfs and ramfs (linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The choices of I/O modes at one end of a copy.
pub(super) struct Disk {
    mode: DirectIo,
    /// By device.
    trials: Mutex<HashMap<u64, Trial>>,
    /// Per device, true if its files are in memory.
    in_memory: Mutex<HashMap<u64, bool>>,
    direct_bytes: AtomicU64,
    buffered_bytes: AtomicU64,
}

/// The transfer of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockIo {
    pub(super) mode: IoMode,
    /// True if the block is part of a trial, so that its cost is measured.
    pub(super) tried: bool,
}

impl Disk {
    pub(super) fn new(mode: DirectIo) -> Self {
        Disk {
            mode,
            trials: Mutex::default(),
            in_memory: Mutex::default(),
            direct_bytes: AtomicU64::new(0),
            buffered_bytes: AtomicU64::new(0),
        }
    }

    /// Returns whether a block of a file of `size` bytes can use direct I/O.
    pub(super) fn may_pass_by(&self, size: u64) -> bool {
        self.mode != DirectIo::Never && size >= DIRECT_FROM_BYTES
    }

    /// Returns whether the blocks of a file of `size` bytes on `device` are moved in pieces through
    /// the page cache: as the user decides, in a file system in memory, or by the trial. `file` is
    /// any file on the device.
    pub(super) fn buffers(&self, device: u64, size: u64, file: impl AsFd) -> bool {
        if !self.may_pass_by(size) {
            return true;
        }
        let decided = || lock(&self.trials).get(&device).and_then(Trial::decided);
        self.mode == DirectIo::Auto
            && (self.is_in_memory(device, file) || decided() == Some(IoMode::Cached))
    }

    /// Returns whether the files on `device`, of which `file` is one, are in memory: direct I/O,
    /// which tmpfs accepts since Linux 6.6, only copies bytes there.
    pub(super) fn is_in_memory(&self, device: u64, file: impl AsFd) -> bool {
        let ask = || fstatfs(file).is_ok_and(|fs| IN_MEMORY.contains(&(fs.f_type as u64)));
        *lock(&self.in_memory).entry(device).or_insert_with(ask)
    }

    /// Returns whether bytes in the page cache are read from there.
    pub(super) fn prefers_cached(&self) -> bool {
        self.mode == DirectIo::Auto
    }

    /// Returns the I/O mode of the next block of a file of `size` bytes on `device` that may bypass
    /// the cache.
    pub(super) fn next(&self, device: u64, size: u64) -> BlockIo {
        if self.mode != DirectIo::Auto {
            return BlockIo { mode: IoMode::Direct, tried: false };
        }
        let mut trials = lock(&self.trials);
        let trial = trials.entry(device).or_default();
        match trial.decided() {
            Some(mode) => BlockIo { mode, tried: false },
            None if size >= TRIAL_FROM_BYTES => BlockIo { mode: trial.next(), tried: true },
            None => BlockIo { mode: IoMode::Direct, tried: false },
        }
    }

    /// Moves a block of `bytes` by `work`, and measures the cost if it is part of a trial.
    pub(super) fn count<T, E>(
        &self,
        device: u64,
        io: BlockIo,
        bytes: usize,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let cpu = || ThreadClock::current().elapsed().unwrap_or_default();
        let (start, before) = (Instant::now(), if io.tried { cpu() } else { Default::default() });
        let done = work()?;
        if io.tried {
            let cost = Cost {
                bytes: bytes as u64,
                time: start.elapsed(),
                cpu: cpu().saturating_sub(before),
            };
            self.note(device, io, cost);
        } else {
            self.add(io.mode, bytes as u64);
        }
        Ok(done)
    }

    /// Counts a block of a trial.
    fn note(&self, device: u64, io: BlockIo, cost: Cost) {
        if let Some(trial) = lock(&self.trials).get_mut(&device) {
            trial.count(io.mode, cost);
        }
        self.add(io.mode, cost.bytes);
    }

    /// Counts bytes that were moved.
    pub(super) fn add(&self, mode: IoMode, bytes: u64) {
        let moved = match mode {
            IoMode::Direct => &self.direct_bytes,
            IoMode::Cached => &self.buffered_bytes,
        };
        moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds the use of the disk to the report of an end.
    pub(super) fn described(&self, end: TransferEnd) -> TransferEnd {
        TransferEnd { direct_bytes: self.direct_bytes(), data_path: self.data_path(), ..end }
    }

    /// Returns the I/O mode of most bytes; `None` if none were moved.
    pub(super) fn data_path(&self) -> Option<DataPath> {
        let bytes = [&self.direct_bytes, &self.buffered_bytes];
        match bytes.map(|bytes| bytes.load(Ordering::Relaxed)) {
            [0, 0] => None,
            [direct, buffered] if direct >= buffered => Some(DataPath::Direct),
            _ => Some(DataPath::Buffered),
        }
    }

    /// Returns the number of bytes that bypassed the cache.
    fn direct_bytes(&self) -> Bytes {
        Bytes::new(self.direct_bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: u64 = 1 << 30;

    #[test]
    fn the_user_decides_or_the_trial() {
        let direct = BlockIo { mode: IoMode::Direct, tried: false };
        assert_eq!(Disk::new(DirectIo::Always).next(1, LONG), direct);
        assert!(!Disk::new(DirectIo::Never).may_pass_by(LONG));
        let disk = Disk::new(DirectIo::Auto);
        assert!(disk.may_pass_by(DIRECT_FROM_BYTES) && !disk.may_pass_by(DIRECT_FROM_BYTES - 1));
        assert_eq!(disk.next(1, DIRECT_FROM_BYTES), direct, "too short for a trial");
        assert!(disk.next(1, LONG).tried);
    }

    #[test]
    fn a_trial_ends_and_holds_for_its_device() {
        let disk = Disk::new(DirectIo::Auto);
        let mut blocks = 0;
        while disk.next(1, LONG).tried {
            let io = disk.next(1, LONG);
            let time = Duration::from_millis(if io.mode == IoMode::Direct { 20 } else { 2 });
            disk.note(1, io, Cost { bytes: 4 << 20, time, cpu: Duration::ZERO });
            blocks += 1;
            assert!(blocks < 100, "it never ends");
        }
        assert_eq!(disk.next(1, LONG).mode, IoMode::Cached);
        assert_eq!(disk.next(1, DIRECT_FROM_BYTES).mode, IoMode::Cached, "for short ones too");
        assert!(disk.next(2, LONG).tried, "another device is tried for itself");
        assert!(disk.direct_bytes().get() > 0);
    }

    #[test]
    fn the_way_of_most_bytes_is_named() {
        let disk = Disk::new(DirectIo::Auto);
        assert_eq!(disk.data_path(), None);
        disk.add(IoMode::Cached, 5);
        assert_eq!(disk.data_path(), Some(DataPath::Buffered));
        disk.add(IoMode::Direct, 6);
        assert_eq!(disk.data_path(), Some(DataPath::Direct));
    }

    #[test]
    fn files_in_memory_are_buffered_unless_the_user_decides() {
        let memory = std::fs::File::open("/dev/shm").unwrap();
        let expected = Disk::new(DirectIo::Auto).is_in_memory(1, &memory);
        assert_eq!(Disk::new(DirectIo::Auto).buffers(1, LONG, &memory), expected);
        assert!(!Disk::new(DirectIo::Always).buffers(1, LONG, &memory));
        let proc = std::fs::File::open("/proc").unwrap();
        assert!(!Disk::new(DirectIo::Auto).buffers(1, LONG, &proc));
        assert!(Disk::new(DirectIo::Auto).buffers(1, DIRECT_FROM_BYTES - 1, &proc));
        assert!(Disk::new(DirectIo::Never).buffers(1, LONG, &proc));
    }

    #[test]
    fn a_failed_start_takes_no_memory() {
        let disk = Disk::new(DirectIo::Auto);
        let io = disk.next(1, LONG);
        assert_eq!(disk.count(1, io, 4 << 20, || Err::<(), _>("full")), Err("full"));
        assert_eq!(disk.direct_bytes(), Bytes::new(0));
    }
}
