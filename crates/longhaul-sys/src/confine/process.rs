//! Protects the memory of this process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Prevents core files and access by other processes of the same user to the memory of this process
/// and the keys in it (`PR_SET_DUMPABLE`, `RLIMIT_CORE`).
///
/// # Errors
/// The kernel refuses.
pub fn hide_memory() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
