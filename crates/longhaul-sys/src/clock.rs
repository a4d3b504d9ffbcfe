//! How well the host's clock is kept, by adjtimex(2).

use std::io;
use std::time::Duration;

/// What the kernel knows of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// A program keeps it in step with the world's.
    pub synchronised: bool,
    /// How far it may be off at most, by that program.
    pub max_error: Duration,
}

/// Asks the kernel; it changes nothing.
///
/// # Errors
/// A sandbox forbids the call.
pub fn state() -> io::Result<ClockState> {
    // SAFETY: timex is plain data for which all zeroes is a value: no mode, so nothing is set.
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
