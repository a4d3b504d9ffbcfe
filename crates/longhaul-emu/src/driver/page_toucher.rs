//! Touches the memory for packets before packets need it.
//!
//! The kernel clears a page at the first access, a huge page of 2 MiB at a time, and the host of a
//! virtual machine may have to find the memory first. If the link's thread waits for this while it
//! reads a packet, all packets that are due are late by milliseconds. A thread of ordinary priority
//! therefore touches memory some megabytes ahead of its use.
//!
//! The thread accesses the pages and does not use `MADV_POPULATE_WRITE`, during which the kernel
//! locks the address space. The ordinary thread would hold the lock while it waits for a processor,
//! and the link's thread would wait for the lock whenever its heap grows: for up to 50 ms in a trace
//! (`docs/design/emulator-time.md`).

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use longhaul_sys::memory::Prefault;

/// The bytes touched at a time: one huge page.
const STEP: usize = 2 << 20;

/// The amount of memory that packets need soon, shared with the thread that touches it.
#[derive(Debug)]
pub(super) struct Reserve {
    memory: Prefault,
    wanted: AtomicUsize,
    /// The bytes touched so far, written only by the thread that touches memory.
    touched: AtomicUsize,
    toucher: OnceLock<Thread>,
}

impl Reserve {
    /// Creates a reserve for `memory`, whose first `touched` bytes have been touched.
    pub(super) fn new(memory: Prefault, touched: usize) -> Arc<Self> {
        Arc::new(Reserve {
            memory,
            wanted: AtomicUsize::new(touched),
            touched: AtomicUsize::new(touched),
            toucher: OnceLock::new(),
        })
    }

    /// Requests that the first `bytes` be touched. Usually this costs almost nothing.
    pub(super) fn want(&self, bytes: usize) {
        let bytes = bytes.next_multiple_of(STEP);
        if self.wanted.fetch_max(bytes, Ordering::Relaxed) < bytes
            && let Some(toucher) = self.toucher.get()
        {
            toucher.unpark();
        }
    }

    /// Returns the bytes requested so far.
    #[cfg(test)]
    pub(super) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Touches one step of the requested memory. Returns `false` if nothing is left to touch.
    fn touch_some(&self) -> bool {
        let touched = self.touched.load(Ordering::Relaxed);
        if touched >= self.wanted.load(Ordering::Relaxed) {
            return false;
        }
        self.memory.access(touched..touched + STEP);
        self.touched.store(touched + STEP, Ordering::Relaxed);
        true
    }
}

/// The thread that touches memory.
#[derive(Debug)]
pub(super) struct PageToucher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PageToucher {
    /// Starts a thread that serves `reserve`.
    pub(super) fn start(reserve: Arc<Reserve>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("page-toucher".into()).spawn(move || {
            let _ = reserve.toucher.set(thread::current());
            while !stopped.load(Ordering::Relaxed) {
                if !reserve.touch_some() {
                    thread::park();
                }
            }
        })?;
        Ok(PageToucher { stop, thread: Some(thread) })
    }
}

impl Drop for PageToucher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use longhaul_sys::memory::Mapping;

    use super::*;

    #[test]
    fn only_the_requested_pages_are_touched() {
        let memory = Mapping::reserve(64 << 20).unwrap();
        let reserve = Reserve::new(memory.prefault(), 0);
        let toucher = PageToucher::start(reserve.clone()).unwrap();
        for wanted in [1, 5 << 20, 3 << 20] {
            reserve.want(wanted);
            let deadline = Instant::now() + Duration::from_secs(20);
            while reserve.touched.load(Ordering::Relaxed) < wanted {
                assert!(Instant::now() < deadline);
                thread::yield_now();
            }
        }
        drop(toucher);
        assert_eq!(reserve.touched.load(Ordering::Relaxed), 6 << 20);
    }
}
