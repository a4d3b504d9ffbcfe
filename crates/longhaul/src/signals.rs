//! Signals. The first SIGINT or SIGTERM stops the work in order, the second one exits at once. SIGUSR1
//! and SIGUSR2 change the rate limit of a running copy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;
use longhaul_engine::copy::CopyProgress;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

use crate::exit;
use crate::output::print_message;

/// The state of the signals that stop the program.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    requested: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Installs the handlers of both signals.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub(crate) fn install() -> io::Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            let code = i32::from(exit::SIGNAL_BASE) + number;
            // Registered first, so that it sees the flag of an earlier signal.
            flag::register_conditional_shutdown(number, code, requested.clone())?;
            flag::register_usize(number, signal.clone(), number as usize)?;
            flag::register(number, requested.clone())?;
        }
        Ok(Interrupt { requested, signal })
    }

    /// Returns the flag that the first signal sets. The program may set it, too.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.requested
    }

    /// Waits for some time, or until a signal is received.
    pub(crate) fn wait(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let until = Instant::now() + time;
        while !self.requested.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(STEP));
        }
    }

    /// Returns the exit code if a signal was received.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(exit::SIGNAL_BASE + signal as u8),
        }
    }
}

/// The lowest limit.
const SLOWEST: Rate = Rate::from_bps(100_000);

/// The thread that handles the signals. SIGUSR1 halves the limit, or the present rate if there is
/// no limit. SIGUSR2 doubles the limit.
pub(crate) struct Throttle {
    signals: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Throttle {
    /// Starts to handle the signals, until the value is dropped.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub(crate) fn start(progress: Arc<CopyProgress>) -> io::Result<Self> {
        let mut signals = Signals::new([SIGUSR1, SIGUSR2])?;
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            for signal in &mut signals {
                let limit = changed(progress.limit(), progress.rate(), signal == SIGUSR1);
                progress.set_limit(limit);
                match limit {
                    Some(limit) => print_message(format_args!("the limit is now {limit}")),
                    None => print_message("the rate is now unlimited"),
                }
            }
        });
        Ok(Throttle { signals: handle, thread: Some(thread) })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.signals.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn changed(limit: Option<Rate>, rate: Rate, slower: bool) -> Option<Rate> {
    match (limit, slower) {
        (limit, true) => {
            let half = limit.unwrap_or(rate).bps() / 2;
            Some(Rate::from_bps(half.max(SLOWEST.bps())))
        }
        (Some(limit), false) => Some(Rate::from_bps(limit.bps().saturating_mul(2))),
        (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_halved_and_doubled() {
        let rate = |bps| Rate::from_bps(bps);
        let now = rate(8_000_000);
        assert_eq!(changed(None, now, true), Some(rate(4_000_000)));
        assert_eq!(changed(Some(rate(1_000_000)), now, true), Some(rate(500_000)));
        assert_eq!(changed(Some(rate(100_001)), now, true), Some(SLOWEST));
        assert_eq!(changed(Some(rate(1_000_000)), now, false), Some(rate(2_000_000)));
        assert_eq!(changed(None, now, false), None);
    }
}
