//! The privileges that a link needs, and the diagnosis of a missing privilege.

mod namespaces;
mod tun;

use std::borrow::Cow;
use std::io;

use longhaul_sys::namespace;
use rustix::thread::CapabilitySet;

use crate::EmuError;

/// The cause of a missing privilege, and the command that removes it.
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

/// Acquires the privileges to create links. Root has them; any other user enters a user namespace
/// in which the process keeps its identity and has every capability.
///
/// A command that creates a link must call this first, while the process has one thread.
///
/// # Errors
/// The user may not create namespaces; the error has the command that permits it.
pub fn acquire_privileges() -> Result<(), EmuError> {
    if !has_capabilities() {
        namespace::enter_user_namespace().map_err(namespaces_error)?;
    }
    Ok(())
}

/// Returns whether this thread may create namespaces and configure interfaces now.
fn has_capabilities() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Returns the error, with its cause, for namespaces that cannot be created.
pub(crate) fn namespaces_error(source: io::Error) -> EmuError {
    let Diagnosis { reason, remedy } = namespaces::diagnose(&source, &namespaces::System::read());
    EmuError::Namespaces { reason, remedy, source }
}

/// Returns the error, with its cause, if neither a TUN device nor a packet socket is available.
pub(crate) fn tun_error(source: io::Error) -> EmuError {
    let Diagnosis { reason, remedy } = tun::diagnose(&source, &tun::Node::read());
    EmuError::Tun { reason, remedy, source }
}
