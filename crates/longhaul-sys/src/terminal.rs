//! Who the terminal's keys signal.

/// Whether this process is in the foreground of a terminal on its standard input, so that Ctrl-C
/// is sent by the terminal to it and to its children in the same process group alike.
pub fn is_foreground() -> bool {
    // SAFETY: both calls only ask the kernel about this process.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}
