//! Reduces the rights of this process: its user, the files it may open, access to its memory.
//!
//! Call these functions while the process has one thread; threads started later inherit the
//! restrictions. None of them can be undone.

mod account;
mod files;
mod process;

pub use account::{Account, AccountError};
pub use files::{Confinement, FileRules, NotConfined, confine_files};
pub use process::{hide_memory, keep_capabilities};

use std::io;

/// Returns an error if this process has another thread, which would keep its rights.
fn only_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("this process has {threads} threads, not one"))),
    }
}
