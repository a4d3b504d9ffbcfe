//! The privileges that a link needs, and the diagnosis of a missing privilege.

mod namespaces;

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use longhaul_sys::namespace;
use longhaul_sys::tun::DEVICE;
use rustix::io::Errno;
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
    let Diagnosis { reason, remedy } = diagnose(&source, &Node::read());
    EmuError::Tun { reason, remedy, source }
}

/// The device node in the file system.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// The permissions; `None` if the node is missing or in a directory that the user may not read.
    mode: Option<u32>,
}

impl Node {
    /// Reads the state of the node.
    fn read() -> Self {
        Node { mode: fs::metadata(DEVICE).ok().map(|node| node.mode() & 0o777) }
    }
}

fn diagnose(error: &io::Error, node: &Node) -> Diagnosis {
    match (Errno::from_io_error(error), node.mode) {
        (Some(Errno::NOENT), _) => Diagnosis::new(
            "the device is missing",
            "load it with: sudo modprobe tun; in a container, give it --device /dev/net/tun",
        ),
        (Some(Errno::ACCESS), Some(mode)) => Diagnosis::new(
            format!("this user may not open the device (mode {mode:04o})"),
            "run it with sudo, or open the device to users: sudo chmod 0666 /dev/net/tun",
        ),
        (Some(Errno::ACCESS), None) => Diagnosis::new(
            "this user may not access /dev/net",
            "run it with sudo, or allow access: sudo chmod 0755 /dev/net",
        ),
        // The mode permits opening the node, so the device list of a control group denies it.
        (Some(Errno::PERM), Some(mode)) if mode & 0o006 == 0o006 => Diagnosis::new(
            "the device is closed to this container, or CAP_NET_ADMIN is missing",
            "give the container --device /dev/net/tun --cap-add NET_ADMIN, or run it with sudo",
        ),
        (Some(Errno::PERM), _) => Diagnosis::new(
            "CAP_NET_ADMIN is missing",
            "run it with sudo; in a container, give it --cap-add NET_ADMIN",
        ),
        // ENXIO and ENODEV: the node exists but has no driver.
        _ => Diagnosis::new("the device does not work", "load its driver with: sudo modprobe tun"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagnosis_tells_a_missing_device_from_a_closed_one() {
        let mode = |mode| Node { mode: Some(mode) };
        for (error, node, reason, remedy) in [
            (Errno::NOENT, Node::default(), "missing", "modprobe tun"),
            (Errno::ACCESS, mode(0o600), "(mode 0600)", "chmod 0666 /dev/net/tun"),
            (Errno::ACCESS, Node::default(), "may not access", "chmod 0755 /dev/net"),
            (Errno::PERM, mode(0o666), "closed to this container", "--device /dev/net/tun"),
            (Errno::PERM, mode(0o600), "CAP_NET_ADMIN", "--cap-add NET_ADMIN"),
            (Errno::NXIO, mode(0o666), "does not work", "modprobe tun"),
        ] {
            let diagnosis = diagnose(&error.into(), &node);
            assert!(diagnosis.reason.contains(reason), "{diagnosis:?}");
            assert!(diagnosis.remedy.contains(remedy), "{diagnosis:?}");
        }
    }
}
