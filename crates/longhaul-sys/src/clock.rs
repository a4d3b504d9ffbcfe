//! The synchronisation of the host's clock, from adjtimex(2).

use std::io;
use std::time::Duration;

/// The state of the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// True if a program, such as an NTP client, synchronises the clock.
    pub synchronised: bool,
    /// The largest error of the clock, as the synchronising program states it.
    pub max_error: Duration,
}

/// Reads the state of the clock without changing it.
///
/// # Errors
/// A sandbox forbids the call.
pub fn state() -> io::Result<ClockState> {
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
    fn the_clock_is_asked() {
        assert!(state().is_ok());
    }
}
