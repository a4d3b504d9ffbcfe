//! The threads that move bytes. Each owns its counter and buffer; other threads only read the
//! counter.

mod blocks;
mod carrier;
mod pacer;
mod supply;
mod tcp;

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::CpuList;
use longhaul_sys::cpu::{self, ThreadClock};

pub(super) use blocks::{Turns, send_blocks};
pub(super) use carrier::Carrier;
pub(super) use pacer::Pacer;
pub(super) use supply::{Supply, payload};
pub(super) use tcp::{Reading, Sending, Watch, receive, send};

/// A counter on separate cache lines: two, because Intel's prefetcher loads them in pairs. One
/// thread writes it, and the sampler reads it once per interval.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(in crate::test) struct Count(AtomicU64);

impl Count {
    /// Stores the thread's new count.
    pub(in crate::test) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(in crate::test) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state of a stream that its thread shares with others.
#[derive(Debug)]
pub(in crate::test) struct Slot {
    /// The bytes moved so far; of datagrams only those that count.
    pub(in crate::test) moved: Count,
    /// The connection or flow; the sampler shuts it down to wake a waiting thread.
    pub(in crate::test) carrier: Carrier,
    /// The CPUs that the thread is bound to.
    pub(in crate::test) cpus: Option<CpuList>,
    clock: OnceLock<ThreadClock>,
    ended: OnceLock<Ended>,
}

/// The end of a stream's thread.
#[derive(Debug)]
pub(in crate::test) struct Ended {
    /// The time at which the kernel had accepted the last byte, or the end of the data was read.
    pub(in crate::test) at: Instant,
    /// The thread's CPU time.
    pub(in crate::test) cpu: Duration,
    /// The error that ended the stream.
    pub(in crate::test) failure: Option<io::Error>,
}

impl Slot {
    pub(in crate::test) fn new(carrier: Carrier, cpus: Option<CpuList>) -> Self {
        let (clock, ended) = (OnceLock::new(), OnceLock::new());
        Slot { moved: Count::default(), carrier, cpus, clock, ended }
    }

    /// Returns the bytes moved so far.
    pub(in crate::test) fn bytes(&self) -> u64 {
        self.moved.get()
    }

    /// Returns the CPU time of the stream's thread so far.
    pub(in crate::test) fn cpu(&self) -> Duration {
        let ended = || self.ended.get().map(|ended| ended.cpu);
        // A thread that ends between the two reads has stored its time before the second one.
        ended()
            .or_else(|| self.clock.get()?.elapsed().ok())
            .or_else(ended)
            .unwrap_or(Duration::ZERO)
    }

    /// Returns the clock of the stream's thread; `None` before the thread runs.
    pub(in crate::test) fn clock(&self) -> Option<ThreadClock> {
        self.clock.get().copied()
    }

    /// Returns the end of the thread; `None` while it runs.
    pub(in crate::test) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Runs `work` as the thread of this slot, on its CPUs, and stores its end. `work` returns the
    /// time of the last byte.
    pub(in crate::test) fn run(
        &self,
        sampler: &Thread,
        work: impl FnOnce() -> io::Result<Instant>,
    ) {
        let clock = ThreadClock::current();
        let _ = self.clock.set(clock);
        let bound = self.cpus.as_ref().map_or(Ok(()), |cpus| cpu::bind_thread(cpus.cpus()));
        let (at, failure) = match bound.and_then(|()| work()) {
            Ok(at) => (at, None),
            Err(failure) => (Instant::now(), Some(failure)),
        };
        let cpu = clock.elapsed().unwrap_or(Duration::ZERO);
        let _ = self.ended.set(Ended { at, cpu, failure });
        sampler.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_do_not_share_cache_lines() {
        assert_eq!(std::mem::align_of::<Slot>(), 128);
        assert_eq!(std::mem::size_of::<Count>(), 128);
    }
}
