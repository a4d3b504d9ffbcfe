//! The resources of the host that all connections share: cores, TCP memory, drops, quotas.
//!
//! All values come from `proc(5)`. The kernel only adds fields to these texts; a counter that a
//! kernel lacks reads as zero. Values of a network namespace are those of the calling thread
//! (`/proc/thread-self/net`; `/proc/net` is that of the first thread).

mod cores;
mod drops;
mod quota;
mod windows;

use std::time::Duration;
use std::{fs, io};

pub use cores::{CoreTimes, Scheduling, core_times, scheduling};
pub use drops::{Drops, TcpCounters, drops, tcp_counters};
pub use quota::throttled;
pub(crate) use windows::parse_memory as parse_tcp_memory;
pub use windows::{TcpMemory, WindowLimits, fastest_interface_bps, tcp_memory, window_limits};

/// Returns the text of a file, or an empty text for an unreadable file: in a container any file of
/// `/proc` may be missing.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number in column `at` of `line`, counted from 0; 0 if the column is missing.
fn number(line: &str, at: usize) -> u64 {
    line.split_ascii_whitespace().nth(at).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Returns the counter `name` of `group` in a file such as `/proc/net/snmp` or `netstat`, in which
/// a line of names precedes a line of values.
fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text
        .lines()
        .filter(|line| line.strip_prefix(group).is_some_and(|rest| rest.starts_with(": ")));
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        if let Some(at) = names.split_ascii_whitespace().position(|word| word == name) {
            return number(values, at);
        }
    }
    0
}

/// The state of the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// True if a program, such as an NTP client, synchronizes the clock.
    pub synchronised: bool,
    /// The largest error of the clock, as the synchronizing program states it.
    pub max_error: Duration,
}

/// Returns the identifier of this boot of the host (random(4)); `None` if the kernel does not report it.
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Reads the state of the clock without changing it.
///
/// # Errors
/// A sandbox forbids the call.
pub fn clock_state() -> io::Result<ClockState> {
    // SAFETY: timex is plain data for which all zeroes is valid; mode 0 changes nothing.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` is valid for reading and writing across the call.
    if unsafe { libc::adjtimex(&raw mut clock) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ClockState {
        synchronised: clock.status & libc::STA_UNSYNC == 0,
        max_error: Duration::from_micros(clock.maxerror.max(0) as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "TcpExt: A PruneCalled B\nTcpExt: 1 22 3\nIpExt: A X\nIpExt: 7 8\n";
        assert_eq!(counter(text, "TcpExt", "PruneCalled"), 22);
        assert_eq!(counter(text, "IpExt", "A"), 7);
        assert_eq!(counter(text, "TcpExt", "Missing"), 0);
        assert_eq!(counter("", "Tcp", "A"), 0);
    }

    #[test]
    fn the_clock_is_asked() {
        assert!(clock_state().is_ok());
    }
}
