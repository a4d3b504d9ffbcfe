//! Diagnoses why the TUN device cannot be used.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use longhaul_sys::tun::DEVICE;
use rustix::io::Errno;

use super::Diagnosis;

/// The device node in the file system.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    /// The permissions; `None` if the node is missing or in a directory that the user may not read.
    mode: Option<u32>,
}

impl Node {
    /// Reads the state of the node.
    pub(super) fn read() -> Self {
        Node { mode: fs::metadata(DEVICE).ok().map(|node| node.mode() & 0o777) }
    }
}

pub(super) fn diagnose(error: &io::Error, node: &Node) -> Diagnosis {
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
            "this user may not look into /dev/net",
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
            (Errno::ACCESS, Node::default(), "look into", "chmod 0755 /dev/net"),
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
