//! Configures the calling thread's network namespace: sysctls, interfaces, addresses and routes.

use std::fs;
use std::io;
use std::path::Path;

use longhaul_sys::interface::Interface;

use super::routes::InstalledRoutes;
use super::{Host, SiteSpec};

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
    for wanted in &spec.interfaces {
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
