//! SIGHUP: a request to reload the keys, or the end of the terminal in which the server runs.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::termios::isatty;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

/// Returns the terminal whose end ends the server, if it has one and nohup(1) did not start it.
///
/// The call must precede the handlers of SIGHUP and the confinement of the server.
pub(super) fn terminal() -> Option<File> {
    if is_ignored() { None } else { File::open("/dev/tty").ok() }
}

/// Starts to handle SIGHUP, and returns the flag that requests a reload.
///
/// The kernel also sends SIGHUP when the terminal ends, for example with the `ssh -t` that started the
/// server. `stop` is then set.
///
/// # Errors
/// The kernel refuses the handler or the thread.
pub(super) fn watch(terminal: Option<File>, stop: Arc<AtomicBool>) -> io::Result<Arc<AtomicBool>> {
    let mut signals = Signals::new([SIGHUP])?;
    let reload = Arc::new(AtomicBool::new(false));
    let requested = reload.clone();
    thread::Builder::new().name("hangup".to_owned()).spawn(move || {
        for _ in &mut signals {
            // Every request to a terminal that has ended fails with EIO.
            let ended = terminal.as_ref().is_some_and(|terminal| !isatty(terminal));
            if ended { &stop } else { &requested }.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(reload)
}

/// Returns whether the process that started this one ignores SIGHUP, as nohup(1) does.
fn is_ignored() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_a_bit_of_the_status() {
        assert!(ignores_hangup("Name:\tlonghaul\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
