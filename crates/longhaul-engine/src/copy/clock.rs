use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::TransferEnd;
use longhaul_core::units::Bytes;
use longhaul_sys::cpu::{HostTimes, ThreadClock};

use super::disk::Disk;

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

    /// Counts time that was measured elsewhere.
    pub(super) fn add(&self, time: Duration) {
        self.busy_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
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

/// How busy stages are from one look to the next.
pub(super) struct Gauge<'a, const N: usize> {
    clocks: [&'a StageClock; N],
    at: Instant,
    busy: [Duration; N],
}

impl<'a, const N: usize> Gauge<'a, N> {
    pub(super) fn new(clocks: [&'a StageClock; N]) -> Self {
        Gauge { clocks, at: Instant::now(), busy: clocks.map(StageClock::busy) }
    }

    /// The shares of the time since the last look that each stage worked.
    pub(super) fn look(&mut self) -> [Option<f64>; N] {
        let elapsed = self.at.elapsed();
        self.at = Instant::now();
        let busy = self.clocks.map(StageClock::busy);
        let before = std::mem::replace(&mut self.busy, busy);
        std::array::from_fn(|stage| {
            let threads = self.clocks[stage].threads.load(Ordering::Relaxed);
            let available = elapsed.as_secs_f64() * threads as f64;
            let worked = busy[stage].saturating_sub(before[stage]).as_secs_f64();
            (available > 0.0).then(|| (worked / available).min(1.0))
        })
    }
}

/// The CPU time of the threads of one copy, so that a server with many clients can tell each
/// what it cost; and how busy the whole host is meanwhile.
pub(super) struct CpuMeter {
    running: Mutex<Vec<ThreadClock>>,
    ended_ns: AtomicU64,
    host: Option<HostTimes>,
}

impl Default for CpuMeter {
    fn default() -> Self {
        let host = HostTimes::now().ok();
        CpuMeter { running: Mutex::default(), ended_ns: AtomicU64::new(0), host }
    }
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

    /// The same for a thread of its own, which gets a `name` that top(1) and perf(1) show: up to 15
    /// bytes.
    pub(super) fn stage<T>(&self, name: &CStr, work: impl FnOnce() -> T) -> T {
        // What the thread does does not depend on it.
        let _ = rustix::thread::set_name(name);
        self.run(work)
    }

    /// What was used until now, over `elapsed`, and the way that bytes took to or from `disk`.
    pub(super) fn report(&self, elapsed: Duration, disk: &Disk) -> TransferEnd {
        let running: Duration = self.lock().iter().filter_map(|clock| clock.elapsed().ok()).sum();
        let ended = Duration::from_nanos(self.ended_ns.load(Ordering::Relaxed));
        let cpu_seconds = (running + ended).as_secs_f64();
        TransferEnd {
            cpu_percent: 100.0 * cpu_seconds / elapsed.as_secs_f64().max(1e-9),
            cpu_seconds,
            peak_memory_bytes: Bytes::new(longhaul_sys::cpu::peak_memory_bytes()),
            host_busy: self.host_busy(),
            direct_bytes: disk.direct_bytes(),
        }
    }

    fn host_busy(&self) -> Option<f64> {
        Some(HostTimes::now().ok()?.busy_since(self.host.as_ref()?))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ThreadClock>> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
