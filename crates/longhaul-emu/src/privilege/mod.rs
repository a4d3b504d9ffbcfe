//! The permissions that a link needs, and what to say when they are missing.

mod namespaces;
mod tun;

use std::borrow::Cow;
use std::io;

use longhaul_sys::namespace;
use rustix::thread::CapabilitySet;

use crate::EmuError;

/// What stands in the way, and the command that removes it.
#[derive(Debug, PartialEq, Eq)]
struct Diagnosis {
    reason: Cow<'static, str>,
    remedy: Cow<'static, str>,
}

impl Diagnosis {
    fn new(
        reason: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Diagnosis {
        Diagnosis { reason: reason.into(), remedy: remedy.into() }
    }
}

/// Gets the permission to make links: nothing to do for root; any other user enters a user
/// namespace in which it keeps its identity and holds every capability.
///
/// Call it first thing in a command that makes a link, while the process has one thread.
///
/// # Errors
/// The system does not let this user make namespaces; the error names the command that grants it.
pub fn acquire_privileges() -> Result<(), EmuError> {
    if !has_capabilities() {
        namespace::enter_user_namespace().map_err(namespaces_error)?;
    }
    Ok(())
}

/// Whether this thread may make namespaces and configure interfaces as it is.
fn has_capabilities() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// What stands in the way when namespaces cannot be made.
pub(crate) fn namespaces_error(source: io::Error) -> EmuError {
    let Diagnosis { reason, remedy } = namespaces::diagnose(&source, &namespaces::System::read());
    EmuError::Namespaces { reason, remedy, source }
}

/// What stands in the way when neither the TUN device can be used nor what takes its place.
pub(crate) fn tun_error(source: io::Error) -> EmuError {
    let Diagnosis { reason, remedy } = tun::diagnose(&source, &tun::Node::read());
    EmuError::Tun { reason, remedy, source }
}
