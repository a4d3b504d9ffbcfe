//! CPUs: affinity, priority and CPU time of threads.
//!
//! CPU time is per thread, so that a server with several clients can attribute it. It includes time
//! in the kernel on behalf of a thread (system time, and network soft interrupts that interrupt the
//! thread), which dominates in data transfers.

use std::io;
use std::time::Duration;

use rustix::thread::CpuSet;

/// A thread's CPU clock, readable from any thread while the thread lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadClock {
    clock: libc::clockid_t,
}

impl ThreadClock {
    /// Returns the calling thread's clock.
    pub fn current() -> Self {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        // The id of a thread's CPU clock for clock_gettime(2) is the complement of the thread id,
        // shifted by 3, with CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED (linux/posix-timers.h).
        ThreadClock { clock: (!thread << 3) | 6 }
    }

    /// Returns the thread id.
    pub fn thread(self) -> i32 {
        !(self.clock >> 3)
    }

    /// Returns user and system time of the thread since it started.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn elapsed(self) -> io::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writing; an unknown clock only returns an error.
        let code = unsafe { libc::clock_gettime(self.clock, &raw mut time) };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// Restricts the calling thread to these CPUs.
///
/// # Errors
/// `InvalidInput` if none of them is online and allowed for the process.
pub fn bind_thread(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(io::Error::from)
}

/// Returns the CPUs below 1024 that the calling thread may use, in order.
///
/// # Errors
/// The kernel has more CPUs than the call supports.
pub fn allowed() -> io::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// The processor times of the whole host since boot, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTimes {
    idle: u64,
    stolen: u64,
    all: u64,
}

impl HostTimes {
    /// Reads the totals from the first line of `/proc/stat` (proc_stat(5)).
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn now() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/stat")?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses the text of `/proc/stat`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; user includes guest time.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let [_, _, _, idle, waiting, _, _, stolen] = ticks[..] else { return None };
        Some(HostTimes { idle: idle + waiting, stolen, all: ticks.iter().sum() })
    }

    /// Returns the time, summed over processors, in which this virtual machine had work but its
    /// hypervisor ran other guests; zero without a hypervisor.
    pub fn stolen(&self) -> Duration {
        Duration::from_secs(self.stolen) / rustix::param::clock_ticks_per_second() as u32
    }

    /// Returns the share of processor time since `earlier` that the hypervisor took, 0 to 1.
    pub fn stolen_since(&self, earlier: &HostTimes) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        if all == 0 { 0.0 } else { (stolen as f64 / all as f64).min(1.0) }
    }

    /// Returns the share of processor time since boot that the hypervisor took, 0 to 1.
    pub(crate) fn stolen_share(&self) -> f64 {
        self.stolen as f64 / self.all.max(1) as f64
    }

    /// Returns the share of processor time since `earlier` that was not idle, 0 to 1.
    pub fn busy_since(&self, earlier: &HostTimes) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let idle = self.idle.saturating_sub(earlier.idle);
        if all == 0 { 0.0 } else { 1.0 - (idle as f64 / all as f64).min(1.0) }
    }
}

/// Lowers the priority of the calling thread and of the threads that it starts later: niceness 10,
/// and the idle class of I/O (ioprio_set(2)), which only some I/O schedulers observe.
///
/// # Errors
/// The kernel rejects one of the two.
pub fn yield_to_others() -> io::Result<()> {
    const NICENESS: i32 = 10;
    // linux/ioprio.h: IOPRIO_WHO_PROCESS is 1, IOPRIO_CLASS_IDLE is 3, shifted by 13.
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3 << 13;
    // SAFETY: both calls take plain numbers; 0 means the calling thread.
    let codes = unsafe {
        [
            libc::c_long::from(libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS)),
            libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE),
        ]
    };
    if codes == [0, 0] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the peak resident set size of the process in bytes (`ru_maxrss`, getrusage(2)).
pub fn peak_memory_bytes() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writing a rusage; RUSAGE_SELF is always known.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all bit patterns of rusage are valid, and it was zeroed.
    let usage = unsafe { usage.assume_init() };
    // Linux reports KiB.
    usage.ru_maxrss as u64 * 1024
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_host_is_busy_when_all_its_processors_are() {
        let before = HostTimes::now().unwrap();
        assert_eq!(before.busy_since(&before), 0.0);
        let cores = std::thread::available_parallelism().unwrap().get();
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_millis(300) {
                        std::hint::spin_loop();
                    }
                });
            }
        });
        assert!(HostTimes::now().unwrap().busy_since(&before) > 0.5);
    }

    #[test]
    fn work_counts_and_sleep_does_not() {
        let clock = ThreadClock::current();
        assert_eq!(clock.thread(), rustix::thread::gettid().as_raw_nonzero().get());
        let before = clock.elapsed().unwrap();
        let begun = Instant::now();
        while clock.elapsed().unwrap() - before < Duration::from_millis(20) {}
        assert!(begun.elapsed() >= Duration::from_millis(19), "no faster than the wall clock");
        let worked = clock.elapsed().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(clock.elapsed().unwrap() - worked < Duration::from_millis(25));
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let table = "cpu  689960 72 423349 1163459 30982 0 57383 5215 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
        assert_eq!(HostTimes::parse(table).map(|times| times.stolen), Some(5215));
        let [before, after] = ["cpu 0 0 0 80 0 0 0 10", "cpu 0 0 0 150 0 0 0 40"]
            .map(|t| HostTimes::parse(t).unwrap());
        assert_eq!((after.stolen_since(&before), before.stolen_since(&before)), (0.3, 0.0));
        assert_eq!(HostTimes::parse("cpu0 1 2 3"), None);
    }

    #[test]
    fn a_thread_is_read_from_outside_until_it_ends() {
        let (send, receive) = std::sync::mpsc::channel();
        let (finish, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(ThreadClock::current()).unwrap();
            let _ = wait.recv();
        });
        let clock = receive.recv().unwrap();
        assert!(clock.elapsed().is_ok());
        drop(finish);
        thread.join().unwrap();
        // join returns when the thread has released its stack, shortly before the kernel removes
        // the thread.
        let deadline = Instant::now() + Duration::from_secs(5);
        while clock.elapsed().is_ok() {
            assert!(Instant::now() < deadline, "the clock of an ended thread still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_bound_thread_stays_where_it_is_put() {
        std::thread::spawn(|| {
            let all = allowed().unwrap();
            let last = *all.last().unwrap();
            bind_thread(&[last]).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
            assert!(bind_thread(&[8191]).is_err());
        })
        .join()
        .unwrap();
    }
}
