//! Takes rights away from this process: the user it runs as, the files it may open, its memory.
//!
//! Each call is for the only thread of a process, before it starts others, which inherit what is
//! left. Nothing here can be undone.

mod account;
mod files;
mod process;

pub use account::{Account, AccountError};
pub use files::{Confinement, FileRules, NotConfined, confine_files};
pub use process::hide_memory;

use std::io;

/// Fails if this process has another thread, which would keep the rights that are taken away.
fn only_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("this process has {threads} threads, not one"))),
    }
}
