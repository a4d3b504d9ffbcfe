//! Protects the memory of this process.

use std::io;

use super::only_thread;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_no_new_privs};

/// Gives up all capabilities but those in `keep`, for good: no program that is run later gets more.
///
/// # Errors
/// The kernel refuses, or the process has other threads.
pub fn keep_capabilities(keep: CapabilitySet) -> io::Result<()> {
    only_thread()?;
    let mut sets = capabilities(None)?;
    sets.permitted &= keep;
    sets.effective &= keep;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets)?;
    Ok(set_no_new_privs(true)?)
}

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
