//! The scheduling of one thread: its time on a processor, its time waiting for one, and real-time
//! priority.
//!
//! The times are exact to the microsecond, so that a loss of a few milliseconds is detectable: if a
//! thread was neither running, waiting nor asleep, a hypervisor or the hardware had taken its
//! processor.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::cpu::ThreadClock;

/// The scheduling of a thread since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadSchedule {
    /// The time on a processor, without time that a hypervisor took if the kernel knows it
    /// (`CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    pub ran: Duration,
    /// The time in which the thread was ready but had no processor.
    pub waited: Duration,
}

/// Reads the [`ThreadSchedule`] of one thread, in 1 to 2 us and without opening a file.
#[derive(Debug)]
pub struct ScheduleGauge {
    clock: ThreadClock,
    table: File,
}

impl ScheduleGauge {
    /// Creates a gauge for the calling thread.
    ///
    /// # Errors
    /// `/proc` is missing, or the kernel has no such statistics (`CONFIG_SCHED_INFO`).
    pub fn current() -> io::Result<Self> {
        let table = File::open("/proc/thread-self/schedstat")?;
        Ok(ScheduleGauge { clock: ThreadClock::current(), table })
    }

    /// Reads the totals. Only the gauge's own thread may call this. The scheduler updates the
    /// table's first number only occasionally, so the time on a processor comes from the thread's
    /// clock.
    ///
    /// # Errors
    /// The thread has ended, or the kernel has no such statistics.
    pub fn read(&self) -> io::Result<ThreadSchedule> {
        let mut text = [0; 64];
        let length = self.table.read_at(&mut text, 0)?;
        let waited = parse_waited(&text[..length]).ok_or(io::ErrorKind::InvalidData)?;
        Ok(ThreadSchedule { ran: self.clock.elapsed()?, waited })
    }
}

/// Parses nanoseconds on a processor, nanoseconds waiting for one, and the number of time slices
/// (Documentation/scheduler/sched-stats.rst).
fn parse_waited(table: &[u8]) -> Option<Duration> {
    let waited = std::str::from_utf8(table).ok()?.split_whitespace().nth(1)?;
    waited.parse().ok().map(Duration::from_nanos)
}

/// The kernel's `struct sched_param` (linux/sched/types.h). That of musl has more fields.
#[repr(C)]
struct SchedParam {
    priority: libc::c_int,
}

/// Gives the calling thread priority over all threads of ordinary priority; its children do not
/// inherit this. Real-time threads with a larger `priority`, 1 to 99, run first. The kernel
/// reserves 5 % of each second for ordinary threads (`kernel.sched_rt_runtime_us`).
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_NICE` in the initial user namespace.
pub fn run_first(priority: i32) -> io::Result<()> {
    let scheduling = SchedParam { priority };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // musl's sched_setscheduler() always fails (ENOSYS), so the system call is made directly.
    // SAFETY: the call reads one sched_param, which lives across it; 0 means the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const scheduling) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        assert_eq!(parse_waited(b"574309058 555180 26\n"), Some(Duration::from_nanos(555_180)));
        assert_eq!(parse_waited(b"574309058\n"), None);
    }

    #[test]
    fn a_thread_that_ran_is_seen_to_have_run_and_one_that_slept_is_not() {
        let gauge = ScheduleGauge::current().unwrap();
        let before = gauge.read().unwrap();
        while gauge.read().unwrap().ran - before.ran < Duration::from_millis(20) {}
        let worked = gauge.read().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(gauge.read().unwrap().ran - worked.ran < Duration::from_millis(25));
    }

    #[test]
    fn a_thread_that_shares_its_processor_waits_for_it() {
        let cpu = crate::cpu::allowed().unwrap()[0];
        let work = move || {
            crate::cpu::bind_thread(&[cpu]).unwrap();
            let gauge = ScheduleGauge::current().unwrap();
            while gauge.read().unwrap().ran < Duration::from_millis(100) {}
            gauge.read().unwrap().waited
        };
        let other = std::thread::spawn(work);
        let waited = [std::thread::spawn(work), other].map(|thread| thread.join().unwrap());
        // Each thread needs 100 ms of one processor, so the slower one waits for about as long.
        assert!(waited.iter().max() >= Some(&Duration::from_millis(50)), "{waited:?}");
    }
}
