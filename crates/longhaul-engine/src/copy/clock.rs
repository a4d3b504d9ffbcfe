use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::TransferEnd;
use longhaul_core::units::Bytes;
use longhaul_sys::cpu::ThreadClock;

/// The time that the threads of one stage spent at work, waiting for other stages left out.
#[derive(Default)]
pub(super) struct StageClock {
    busy_ns: AtomicU64,
    threads: AtomicU64,
}

impl StageClock {
    /// Counts a thread in.
    pub(super) fn join(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `work` and counts its time.
    pub(super) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.busy_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    /// The time that its threads have worked, all together.
    pub(super) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed))
    }

    /// The share of `elapsed` that its threads worked, 0 to 1; `None` if it had none.
    pub(super) fn share(&self, elapsed: Duration) -> Option<f64> {
        let threads = self.threads.load(Ordering::Relaxed);
        let available = elapsed.as_secs_f64() * threads as f64;
        let busy = self.busy_ns.load(Ordering::Relaxed) as f64 / 1e9;
        (available > 0.0).then(|| (busy / available).min(1.0))
    }
}

/// The CPU time of the threads of one copy, so that a server with many clients can tell each
/// what it cost.
#[derive(Default)]
pub(super) struct CpuMeter {
    running: Mutex<Vec<ThreadClock>>,
    ended_ns: AtomicU64,
}

impl CpuMeter {
    /// Runs a thread's whole `work`, counting its CPU time.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let clock = ThreadClock::current();
        let before = clock.elapsed().unwrap_or_default();
        self.lock().push(clock);
        let done = work();
        let mut running = self.lock();
        running.retain(|other| *other != clock);
        let used = clock.elapsed().unwrap_or_default().saturating_sub(before);
        self.ended_ns.fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
        done
    }

    /// What was used until now, over `elapsed`.
    pub(super) fn report(&self, elapsed: Duration) -> TransferEnd {
        let running: Duration = self.lock().iter().filter_map(|clock| clock.elapsed().ok()).sum();
        let ended = Duration::from_nanos(self.ended_ns.load(Ordering::Relaxed));
        let cpu_seconds = (running + ended).as_secs_f64();
        TransferEnd {
            cpu_percent: 100.0 * cpu_seconds / elapsed.as_secs_f64().max(1e-9),
            cpu_seconds,
            peak_memory_bytes: Bytes::new(longhaul_sys::cpu::peak_memory_bytes()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ThreadClock>> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
