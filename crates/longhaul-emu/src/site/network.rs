//! The network namespace of a site: its sysctls, interfaces, addresses and routes, and existing namespaces.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use longhaul_core::plan::Attachment;
use longhaul_sys::interface::Interface;
use longhaul_sys::namespace::NetworkNamespace;
use longhaul_sys::tun;
use rustix::process::{Pid, PidfdFlags};

use super::spec::{Host, InterfaceSpec, RouteSpec, SiteSpec};
use crate::edge::Edge;
use crate::guest::{HOST_ADDRESS, PREFIX};

/// The number of super-packets that a device queues for the emulator before it drops packets. The
/// default of 500 is half a millisecond of acknowledgements; an entry needs eight bytes.
const RING: u32 = 8192;

/// The sysctls for interfaces created later (ip-sysctl.rst). Links should carry only the packets of
/// commands and none of the kernel's own: no link-local address (`addr_gen_mode` 1), no duplicate
/// address detection, no router solicitation. Best effort: without a sysctl, links work and carry a
/// few more packets.
const QUIET: [(&str, &str); 6] = [
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // Routes depend on delays, which may differ by direction, so replies may arrive on another
    // interface.
    ("ipv4/conf/default/rp_filter", "0"),
];

/// Prepares the namespace before it has interfaces.
pub(super) fn prepare() {
    for (switch, value) in QUIET {
        let _ = set(switch, value);
    }
    // The stricter of the value of `all` and the value of the interface applies.
    let _ = set("ipv4/conf/all/rp_filter", "0");
    // Figures must not depend on metrics that an earlier connection stored for the path.
    let _ = set("ipv4/tcp_no_metrics_save", "1");
}

/// Lets connections end soon after their processes. Otherwise the kernel retransmits their data over
/// the removed links for minutes, and meanwhile connections of all namespaces have smaller windows
/// if this data fills the kernel's memory for TCP.
pub(super) fn abandon_connections() {
    let _ = set("ipv4/tcp_orphan_retries", "1");
}

/// Enables forwarding. The interfaces must exist already; otherwise each joins the multicast group
/// of routers and sends a report about it.
pub(super) fn forward() -> io::Result<()> {
    set("ipv4/ip_forward", "1")?;
    if speaks_ipv6() {
        set("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// Returns whether the kernel supports IPv6.
pub(super) fn speaks_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Assigns addresses and routes to the existing interfaces.
pub(super) fn configure(spec: &SiteSpec) -> io::Result<InstalledRoutes> {
    if spec.attachment.is_none() {
        Interface::named("lo")?.up()?;
    }
    let ipv6 = spec.own.ipv6.filter(|_| speaks_ipv6());
    let mut interfaces = Vec::new();
    // The addresses and routes of a virtual machine are inside of it.
    for wanted in spec.interfaces.iter().filter(|_| !spec.guest) {
        let interface = Interface::named(&wanted.name)?;
        interface.set_mtu(wanted.mtu)?;
        interface.set_queue_length(RING)?;
        interface.without_multicast()?;
        interface.up()?;
        interface.add_address(spec.own.ipv4.into(), 32)?;
        if let Some(ipv6) = ipv6.filter(|_| wanted.mtu >= SiteSpec::MIN_MTU_V6) {
            interface.add_address(ipv6.into(), 128)?;
        }
        interfaces.push(interface);
    }
    let own = Host { ipv6, ..spec.own.clone() };
    InstalledRoutes::install(own, interfaces, &spec.routes)
}

/// Creates the network card of a virtual machine, a TAP device, with the emulator's end of it and
/// an address for the ssh connection of commands.
pub(super) fn guest_card(spec: &SiteSpec, wanted: &InterfaceSpec) -> io::Result<Edge> {
    tun::create_tap(&wanted.name)?;
    quieten(&wanted.name);
    let interface = Interface::named(&wanted.name)?;
    interface.set_mtu(wanted.mtu)?;
    interface.set_queue_length(RING)?;
    interface.without_multicast()?;
    interface.up()?;
    interface.add_address(HOST_ADDRESS.into(), PREFIX)?;
    Edge::open(interface.index(), spec.own.clone())
}

/// Permits `ping` without privileges. In a user namespace only mapped groups can be named.
pub(super) fn open_ping() {
    const SWITCH: &str = "ipv4/ping_group_range";
    let own = rustix::process::getegid().as_raw();
    if set(SWITCH, "0 2147483647").is_err() {
        let _ = set(SWITCH, &format!("{own} {own}"));
    }
}

fn set(switch: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new("/proc/sys/net").join(switch), value)
}

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

/// The interfaces of a site and the routes over them.
#[derive(Debug)]
pub(super) struct InstalledRoutes {
    /// The site, with an IPv6 address only if the kernel supports it.
    own: Host,
    interfaces: Vec<Interface>,
    present: Vec<RouteSpec>,
}

impl InstalledRoutes {
    /// Adds `routes` over `interfaces` to the calling thread's namespace.
    ///
    /// # Errors
    /// A route cannot be added.
    pub(super) fn install(
        own: Host,
        interfaces: Vec<Interface>,
        routes: &[RouteSpec],
    ) -> io::Result<Self> {
        let mut installed = InstalledRoutes { own, interfaces, present: Vec::new() };
        for route in routes {
            installed.add(*route)?;
        }
        Ok(installed)
    }

    /// Replaces the routes. A program of the site may have removed an interface or a route, so
    /// errors are ignored.
    pub(super) fn set(&mut self, wanted: Vec<RouteSpec>) {
        let before = std::mem::take(&mut self.present);
        for route in &before {
            if !wanted.iter().any(|other| other.to == route.to)
                && let Some(interface) = self.interfaces.get(route.interface)
            {
                let _ = interface.remove_host_route(route.to);
            }
        }
        for route in wanted {
            if before.contains(&route) {
                self.present.push(route);
            } else {
                let _ = self.add(route);
            }
        }
    }

    fn add(&mut self, route: RouteSpec) -> io::Result<()> {
        let source = self.own.address_like(route.to);
        if let (Some(source), Some(interface)) = (source, self.interfaces.get(route.interface)) {
            interface.set_host_route(route.to, source)?;
            self.present.push(route);
        }
        Ok(())
    }
}
