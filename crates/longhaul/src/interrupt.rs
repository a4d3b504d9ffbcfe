//! Ctrl-C and SIGTERM: the first ends the work in order, the second ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit;

/// Knows whether a signal has asked for the end.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Takes the two signals over.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            let code = i32::from(exit::SIGNAL_BASE) + number;
            // First, so that it sees what the signals before this one left.
            flag::register_conditional_shutdown(number, code, asked.clone())?;
            flag::register_usize(number, signal.clone(), number as usize)?;
            flag::register(number, asked.clone())?;
        }
        Ok(Interrupt { asked, signal })
    }

    /// Set by the first signal; may be set by the program too, to end the work in order.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.asked
    }

    /// The program's exit code when a signal came.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(exit::SIGNAL_BASE + signal as u8),
        }
    }
}
