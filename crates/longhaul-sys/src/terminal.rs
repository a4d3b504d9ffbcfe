//! The foreground process group of the terminal, to which the terminal's keys send signals.

/// Returns whether this process is in the foreground of the terminal on its standard input, so that
/// Ctrl-C reaches it and its children in the same process group.
pub fn is_foreground() -> bool {
    // SAFETY: both calls only query the kernel about this process.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}
