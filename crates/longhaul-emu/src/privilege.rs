//! The permissions that a link needs, and what to say when they are missing.

use std::io;

use longhaul_sys::namespace;
use rustix::thread::CapabilitySet;

use crate::EmuError;

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
    let (reason, remedy) = namespaces_diagnosis(
        source.kind(),
        &std::fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
            .unwrap_or_default(),
        &std::fs::read_to_string("/proc/sys/kernel/unprivileged_userns_clone").unwrap_or_default(),
    );
    EmuError::Namespaces { reason, remedy, source }
}

/// The reason and the remedy, from the kernel's answer and the contents of the two switches.
fn namespaces_diagnosis(
    kind: io::ErrorKind,
    apparmor_restrict: &str,
    userns_clone: &str,
) -> (&'static str, &'static str) {
    match kind {
        io::ErrorKind::PermissionDenied if apparmor_restrict.trim() == "1" => (
            "AppArmor keeps user namespaces from programs without a profile",
            "run it with sudo, or allow them: sudo sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        io::ErrorKind::PermissionDenied if userns_clone.trim() == "0" => (
            "user namespaces are closed to users",
            "run it with sudo, or allow them: sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        io::ErrorKind::PermissionDenied => (
            "CAP_SYS_ADMIN is missing and user namespaces are not permitted here",
            "run it with sudo; in a container, give it --cap-add SYS_ADMIN --cap-add NET_ADMIN",
        ),
        // ENOSPC: user.max_user_namespaces is reached, usually because it is 0.
        io::ErrorKind::StorageFull => (
            "the limit of user namespaces is reached",
            "run it with sudo, or raise the limit: sudo sysctl -w user.max_user_namespaces=15000",
        ),
        _ => (
            "the kernel refused them",
            "run it with sudo on a kernel with user, network, mount and PID namespaces",
        ),
    }
}

/// What stands in the way when the TUN device cannot be used.
pub(crate) fn tun_error(source: io::Error) -> EmuError {
    let (reason, remedy) = tun_diagnosis(source.kind());
    EmuError::Tun { reason, remedy, source }
}

fn tun_diagnosis(kind: io::ErrorKind) -> (&'static str, &'static str) {
    match kind {
        io::ErrorKind::NotFound => (
            "the device is missing",
            "load it with: sudo modprobe tun; in a container, give it --device /dev/net/tun",
        ),
        io::ErrorKind::PermissionDenied => (
            "this user may not open the device, or CAP_NET_ADMIN is missing",
            "run it with sudo, or open the device to users: sudo chmod 0666 /dev/net/tun",
        ),
        // ENXIO, ENODEV: the node exists and no driver is behind it.
        _ => ("the device does not work", "load its driver with: sudo modprobe tun"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagnosis_names_the_switch_that_is_off() {
        let denied = io::ErrorKind::PermissionDenied;
        for (kind, apparmor, clone, names) in [
            (denied, "1\n", "", "kernel.apparmor_restrict_unprivileged_userns=0"),
            (denied, "0\n", "0\n", "kernel.unprivileged_userns_clone=1"),
            (denied, "", "", "--cap-add NET_ADMIN"),
            (io::ErrorKind::StorageFull, "1\n", "", "user.max_user_namespaces"),
        ] {
            let (_, remedy) = namespaces_diagnosis(kind, apparmor, clone);
            assert!(remedy.contains(names), "{remedy}");
        }
    }

    #[test]
    fn the_diagnosis_tells_a_missing_device_from_a_closed_one() {
        assert!(tun_diagnosis(io::ErrorKind::NotFound).1.contains("modprobe tun"));
        assert!(tun_diagnosis(io::ErrorKind::PermissionDenied).1.contains("chmod 0666"));
    }
}
