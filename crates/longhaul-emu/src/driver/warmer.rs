//! Touches the pools' memory before packets need it.
//!
//! The kernel clears a page when it is first touched, a huge page of 2 MiB at a time, and a virtual
//! machine's host may have to find the memory first. Where that befell the link's thread, in the
//! read of a packet, everything that was due meanwhile was late by milliseconds. So a thread of
//! ordinary priority stays some megabytes ahead of what has been handed out.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use longhaul_sys::memory::Prefault;

/// What is touched at once: a huge page.
const STEP: usize = 2 << 20;

/// What a pool wants to be touched, told to the thread that does it.
#[derive(Debug)]
pub(super) struct Reserve {
    memory: Prefault,
    wanted: AtomicUsize,
    /// Only of the thread that touches.
    touched: AtomicUsize,
    warmer: OnceLock<Thread>,
}

impl Reserve {
    /// Of this memory, whose first bytes have been touched.
    pub(super) fn new(memory: Prefault, touched: usize) -> Arc<Self> {
        Arc::new(Reserve {
            memory,
            wanted: AtomicUsize::new(touched),
            touched: AtomicUsize::new(touched),
            warmer: OnceLock::new(),
        })
    }

    /// Asks for the first `bytes`. Costs nothing most times.
    pub(super) fn want(&self, bytes: usize) {
        let bytes = bytes.next_multiple_of(STEP);
        if self.wanted.fetch_max(bytes, Ordering::Relaxed) < bytes
            && let Some(warmer) = self.warmer.get()
        {
            warmer.unpark();
        }
    }

    /// Touches a step of what is wanted; `false` when there is nothing to do.
    fn touch_some(&self) -> bool {
        let touched = self.touched.load(Ordering::Relaxed);
        if touched >= self.wanted.load(Ordering::Relaxed) {
            return false;
        }
        // A kernel that cannot, or has no memory, leaves it to whoever writes.
        let _ = self.memory.touch(touched..touched + STEP);
        self.touched.store(touched + STEP, Ordering::Relaxed);
        true
    }
}

/// The thread that touches.
#[derive(Debug)]
pub(super) struct Warmer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Warmer {
    /// Starts to serve these.
    pub(super) fn start(reserves: Vec<Arc<Reserve>>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("warmer".into()).spawn(move || {
            for reserve in &reserves {
                let _ = reserve.warmer.set(thread::current());
            }
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                for reserve in &reserves {
                    idle &= !reserve.touch_some();
                }
                if idle {
                    thread::park();
                }
            }
        })?;
        Ok(Warmer { stop, thread: Some(thread) })
    }
}

impl Drop for Warmer {
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
    fn what_is_wanted_is_touched_and_no_more() {
        let memory = Mapping::reserve(64 << 20).unwrap();
        let reserve = Reserve::new(memory.prefault(), 0);
        let warmer = Warmer::start(vec![reserve.clone()]).unwrap();
        for wanted in [1, 5 << 20, 3 << 20] {
            reserve.want(wanted);
            let deadline = Instant::now() + Duration::from_secs(20);
            while reserve.touched.load(Ordering::Relaxed) < wanted {
                assert!(Instant::now() < deadline);
                thread::yield_now();
            }
        }
        drop(warmer);
        assert_eq!(reserve.touched.load(Ordering::Relaxed), 6 << 20);
    }
}
