//! Sites in existing network namespaces: interfaces and routes are added there, and disappear with
//! the topology. Nothing else changes.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use longhaul_core::plan::Attachment;
use longhaul_sys::namespace::NetworkNamespace;
use rustix::process::{Pid, PidfdFlags};

/// An existing network namespace.
#[derive(Debug)]
pub(super) struct Foreign {
    pub(super) namespace: NetworkNamespace,
    /// The process to which it belongs, if the plan names one.
    pub(super) process: Option<OwnedFd>,
}

impl Foreign {
    /// Opens the namespace.
    ///
    /// # Errors
    /// It does not exist, or the user may not open it.
    pub(super) fn open(attachment: &Attachment) -> io::Result<Foreign> {
        let (path, process) = match attachment {
            Attachment::Interface(_) | Attachment::Tap(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Attachment::Namespace(name) => (PathBuf::from("/run/netns").join(name), None),
            Attachment::Process(id) => {
                let pid = i32::try_from(*id).ok().and_then(Pid::from_raw);
                let pid = pid.ok_or(io::ErrorKind::NotFound)?;
                // Opened first, so that the namespace is that of this process.
                let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
                (PathBuf::from(format!("/proc/{id}/ns/net")), Some(process))
            }
        };
        Ok(Foreign { namespace: NetworkNamespace::open(&path)?, process })
    }
}

/// Sets the sysctls of an interface that is down so that it carries only the packets of commands.
/// Best effort, as for other sites.
pub(super) fn quieten(interface: &str) {
    for (family, switch, value) in [
        ("ipv6", "disable_ipv6", "0"),
        ("ipv6", "addr_gen_mode", "1"),
        ("ipv6", "accept_ra", "0"),
        ("ipv6", "router_solicitations", "0"),
        ("ipv4", "rp_filter", "0"),
    ] {
        let _ = fs::write(format!("/proc/sys/net/{family}/conf/{interface}/{switch}"), value);
    }
}
