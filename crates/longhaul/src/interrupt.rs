//! Ctrl-C and SIGTERM: the first signal stops the work in order, the second exits at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit;

/// The state of the signals that stop the program.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Installs the handlers of both signals.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub(crate) fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            let code = i32::from(exit::SIGNAL_BASE) + number;
            // Registered first, so that it sees the flag of an earlier signal.
            flag::register_conditional_shutdown(number, code, asked.clone())?;
            flag::register_usize(number, signal.clone(), number as usize)?;
            flag::register(number, asked.clone())?;
        }
        Ok(Interrupt { asked, signal })
    }

    /// Returns the flag that the first signal sets. The program may set it, too.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.asked
    }

    /// Returns the exit code if a signal was received.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(exit::SIGNAL_BASE + signal as u8),
        }
    }
}
