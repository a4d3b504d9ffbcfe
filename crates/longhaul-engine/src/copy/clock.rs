//! The time and the CPU time that the threads of a copy use, and counters without shared cache lines.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::{BusyThread, ThreadRole, TransferEnd};
use longhaul_core::units::Bytes;
use longhaul_sys::cpu::{HostTimes, ThreadClock};
use longhaul_sys::host::{scheduling, throttled};

use crate::lock;

/// The time that the threads of one stage spent at work, without waits for other stages.
#[derive(Default)]
pub(crate) struct StageClock {
    busy_ns: Lanes,
    threads: AtomicU64,
    /// Threads that are at work now.
    running: Lanes,
}

impl StageClock {
    /// Counts a thread in.
    pub(crate) fn join(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `work` and counts its time.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        self.time_without(|_| work())
    }

    /// Runs `work` and counts its time without the time that `work` adds to its argument: that of
    /// another stage.
    pub(crate) fn time_without<T>(&self, work: impl FnOnce(&mut Duration) -> T) -> T {
        let (start, mut other) = (Instant::now(), Duration::ZERO);
        self.running.add(1);
        let done = work(&mut other);
        self.running.subtract(1);
        self.add(start.elapsed().saturating_sub(other));
        done
    }

    /// Counts time that was measured elsewhere.
    pub(crate) fn add(&self, time: Duration) {
        self.busy_ns.add(time.as_nanos() as u64);
    }

    /// Returns whether a thread is working.
    pub(crate) fn is_running(&self) -> bool {
        self.running.sum() > 0
    }

    /// Returns the working time of all its threads together.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.sum())
    }

    /// Returns the share of `elapsed` that its threads worked, from 0 to 1; `None` if it had no
    /// threads.
    pub(crate) fn share(&self, elapsed: Duration) -> Option<f64> {
        let threads = self.threads.load(Ordering::Relaxed);
        let available = elapsed.as_secs_f64() * threads as f64;
        let busy = self.busy().as_secs_f64();
        (available > 0.0).then(|| (busy / available).min(1.0))
    }
}

/// The utilization of stages from one reading to the next.
pub(crate) struct Gauge<'a, const N: usize> {
    clocks: [&'a StageClock; N],
    at: Instant,
    busy: [Duration; N],
}

impl<'a, const N: usize> Gauge<'a, N> {
    pub(crate) fn new(clocks: [&'a StageClock; N]) -> Self {
        Gauge { clocks, at: Instant::now(), busy: clocks.map(StageClock::busy) }
    }

    /// Returns the share of the time since the previous call that each stage worked.
    pub(crate) fn sample(&mut self) -> [Option<f64>; N] {
        let elapsed = self.at.elapsed();
        self.at = Instant::now();
        let busy = self.clocks.map(StageClock::busy);
        let before = std::mem::replace(&mut self.busy, busy);
        std::array::from_fn(|stage| {
            let threads = self.clocks[stage].threads.load(Ordering::Relaxed);
            let available = elapsed.as_secs_f64() * threads as f64;
            let mut worked = busy[stage].saturating_sub(before[stage]).as_secs_f64();
            // Work is counted when it is done; one piece of it may take long.
            if worked == 0.0 && self.clocks[stage].is_running() {
                worked = elapsed.as_secs_f64();
            }
            (available > 0.0).then(|| (worked / available).min(1.0))
        })
    }
}

/// The CPU time of the threads of one copy, with which a server reports the cost of each client,
/// and the utilization of the host in the same time.
pub(crate) struct CpuMeter {
    running: Mutex<Vec<Watched>>,
    ended: Mutex<Ended>,
    host: Option<HostTimes>,
    /// The time for which a CPU quota had throttled the process before.
    throttled: Option<Duration>,
}

/// A thread at work.
#[derive(Debug, Clone, Copy)]
struct Watched {
    role: ThreadRole,
    clock: ThreadClock,
    since: Instant,
    used: Duration,
    waited: Duration,
}

/// The CPU time of threads that have ended, and the busiest of them.
#[derive(Debug, Default)]
struct Ended {
    used: Duration,
    busiest: Option<BusyThread>,
}

/// The figures of a thread with a shorter life are meaningless.
const LEAST_LIFE: Duration = Duration::from_millis(100);

impl Watched {
    fn begin(role: ThreadRole) -> Self {
        let clock = ThreadClock::current();
        Watched {
            role,
            clock,
            since: Instant::now(),
            used: clock.elapsed().unwrap_or_default(),
            waited: waited(clock),
        }
    }

    /// Returns the CPU time since the creation, and the utilization of the thread if it still runs.
    fn sample(&self) -> Option<(Duration, Option<BusyThread>)> {
        let used = self.clock.elapsed().ok()?.saturating_sub(self.used);
        let life = self.since.elapsed();
        let percent = |time: Duration| (100.0 * time.as_secs_f64() / life.as_secs_f64()).min(100.0);
        let busy = (life >= LEAST_LIFE).then(|| BusyThread {
            role: self.role,
            running_percent: percent(used),
            waiting_percent: percent(waited(self.clock).saturating_sub(self.waited)),
        });
        Some((used, busy))
    }
}

/// Returns the name of a thread for the kernel: at most 15 bytes.
fn thread_name(role: ThreadRole) -> &'static CStr {
    match role {
        ThreadRole::Walk => c"cp walk",
        ThreadRole::Read => c"cp read",
        ThreadRole::Send => c"cp send",
        ThreadRole::Receive => c"cp receive",
        ThreadRole::Write => c"cp write",
        ThreadRole::Finish => c"cp finish",
        ThreadRole::Control => c"cp control",
    }
}

fn waited(clock: ThreadClock) -> Duration {
    scheduling(clock.thread()).map(|times| times.waited).unwrap_or_default()
}

fn busier(one: Option<BusyThread>, other: Option<BusyThread>) -> Option<BusyThread> {
    let all = [one, other].into_iter().flatten();
    all.max_by(|a, b| a.load_percent().total_cmp(&b.load_percent()))
}

impl Default for CpuMeter {
    fn default() -> Self {
        let host = HostTimes::now().ok();
        let throttled = throttled();
        CpuMeter { running: Mutex::default(), ended: Mutex::default(), host, throttled }
    }
}

impl CpuMeter {
    /// Runs a thread's whole `work`, counting its CPU time.
    pub(crate) fn run<T>(&self, role: ThreadRole, work: impl FnOnce() -> T) -> T {
        let watched = Watched::begin(role);
        lock(&self.running).push(watched);
        let done = work();
        let mut running = lock(&self.running);
        running.retain(|other| other.clock != watched.clock);
        if let Some((used, busy)) = watched.sample() {
            let mut ended = lock(&self.ended);
            ended.used += used;
            ended.busiest = busier(ended.busiest, busy);
        }
        done
    }

    /// Runs `work` as a stage of a separate thread, which gets a name that top(1) and perf(1) show.
    pub(crate) fn stage<T>(&self, role: ThreadRole, work: impl FnOnce() -> T) -> T {
        // The work does not depend on the name.
        let _ = rustix::thread::set_name(thread_name(role));
        self.run(role, work)
    }

    /// Returns the CPU time and memory until now, over `elapsed`, without the use of the disk.
    pub(crate) fn report(&self, elapsed: Duration) -> TransferEnd {
        let running = lock(&self.running);
        let ended = lock(&self.ended);
        let used = running.iter().filter_map(Watched::sample);
        let whole = used.fold((ended.used, ended.busiest), |(sum, busiest), (used, busy)| {
            (sum + used, busier(busiest, busy))
        });
        let cpu_seconds = whole.0.as_secs_f64();
        TransferEnd {
            cpu_percent: 100.0 * cpu_seconds / elapsed.as_secs_f64().max(1e-9),
            cpu_seconds,
            peak_memory_bytes: Bytes::new(longhaul_sys::cpu::peak_memory_bytes()),
            host_busy: self.host_busy(),
            busiest: whole.1,
            throttled: self.throttled_share(elapsed),
            ..TransferEnd::default()
        }
    }

    /// The share of `elapsed` in which a CPU quota throttled the process.
    fn throttled_share(&self, elapsed: Duration) -> Option<f64> {
        let since = throttled()?.saturating_sub(self.throttled?);
        Some((since.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)).min(1.0))
    }

    fn host_busy(&self) -> Option<f64> {
        Some(HostTimes::now().ok()?.busy_since(self.host.as_ref()?))
    }
}

/// The number of cache lines of a counter. A thread uses one of them; with more threads, some share.
const LANES: usize = 32;

/// A part of a counter on a separate pair of cache lines, which processors prefetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

/// A counter. The connections of a copy count every piece of a block in such counters.
#[derive(Debug)]
pub(crate) struct Lanes(Box<[Lane]>);

impl Default for Lanes {
    fn default() -> Self {
        Lanes((0..LANES).map(|_| Lane::default()).collect())
    }
}

impl Lanes {
    /// Adds to the part of the calling thread.
    pub(crate) fn add(&self, count: u64) {
        self.own().fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts the earlier additions of the calling thread.
    pub(crate) fn subtract(&self, count: u64) {
        self.own().fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the sum over all threads.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, lane| sum.wrapping_add(lane.0.load(Ordering::Relaxed)))
    }

    fn own(&self) -> &AtomicU64 {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static LANE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % LANES);
        &self.0[LANE.with(|lane| *lane)].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_over_all_threads() {
        let lanes = Lanes::default();
        std::thread::scope(|scope| {
            for thread in 0..2 * LANES as u64 {
                let lanes = &lanes;
                scope.spawn(move || {
                    (0..100).for_each(|_| lanes.add(thread));
                    lanes.subtract(50 * thread);
                });
            }
        });
        let threads = 2 * LANES as u64;
        assert_eq!(lanes.sum(), 50 * threads * (threads - 1) / 2);
    }
}
