//! The choice between direct I/O and the page cache.
//!
//! Direct I/O (`O_DIRECT`) saves a copy of every byte and leaves the cache to other programs, which
//! matters most on fast disks. Not every file system does it well, and bytes that are in the cache
//! are cheaper from there. So each end measures both, per file system, with the first blocks of a
//! long file: [`Trial`] counts, [`Disk`] keeps the results. `docs/design/disk.md` has the reasons
//! and figures.
//!
//! This module does not read, write, or notice that a file system refuses direct I/O.

mod trial;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use longhaul_core::plan::DirectIo;
use longhaul_core::units::Bytes;
use longhaul_sys::cpu::ThreadClock;

pub(super) use self::trial::IoMode;
use self::trial::{Cost, Trial};
use crate::lock::lock;

/// Files of this size and more may go past the page cache: below it the cost of opening and
/// aligning is not earned back.
pub(crate) const DIRECT_FROM_BYTES: u64 = 1 << 20;
/// Files whose first blocks are worth a trial.
const TRIAL_FROM_BYTES: u64 = 128 << 20;

/// The disk side of one end.
pub(super) struct Disk {
    mode: DirectIo,
    /// By device.
    trials: Mutex<HashMap<u64, Trial>>,
    direct_bytes: AtomicU64,
}

/// The transfer of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockIo {
    pub(super) mode: IoMode,
    /// True if it is part of a trial: its cost is measured.
    pub(super) tried: bool,
}

impl Disk {
    pub(super) fn new(mode: DirectIo) -> Self {
        Disk { mode, trials: Mutex::default(), direct_bytes: AtomicU64::new(0) }
    }

    /// Returns whether a block of a file of `size` bytes can use direct I/O.
    pub(super) fn may_pass_by(&self, size: u64) -> bool {
        self.mode != DirectIo::Never && size >= DIRECT_FROM_BYTES
    }

    /// True if bytes that are in the cache are read from there.
    pub(super) fn prefers_cached(&self) -> bool {
        self.mode == DirectIo::Auto
    }

    /// The way of the next block of a file of `size` bytes on `device` that may pass by the cache.
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

    fn add(&self, mode: IoMode, bytes: u64) {
        if mode == IoMode::Direct {
            self.direct_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that went past the cache.
    pub(super) fn direct_bytes(&self) -> Bytes {
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
    fn what_fails_costs_nothing() {
        let disk = Disk::new(DirectIo::Auto);
        let io = disk.next(1, LONG);
        assert_eq!(disk.count(1, io, 4 << 20, || Err::<(), _>("full")), Err("full"));
        assert_eq!(disk.direct_bytes(), Bytes::new(0));
    }
}
