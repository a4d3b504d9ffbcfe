//! The host names of the sites, for every program that uses the system's resolver.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use super::network;
use super::spec::Host;

/// The directory in which the files are created before they are bound to their places. It only has
/// to exist: a tmpfs covers it briefly, in this thread's namespace only.
const STAGING: &str = "/tmp";

/// Without a `nameserver` line the resolver queries the local host, where no server listens.
const RESOLV: &str = "# No name server is reachable from an emulated site.\n";

/// Prefers IPv4 to IPv6 if a program requests neither (gai.conf(5), RFC 6724 section 10.3), so that
/// figures do not depend on the IPv6 support of the host.
const PREFERENCE: &str = "precedence ::ffff:0:0/96  100\n";

/// Gives the calling thread's mount namespace an `/etc/hosts` with every site, and an
/// `/etc/resolv.conf` without a server, so that the lookup of any other name fails at once instead
/// of waiting for an unreachable server.
///
/// The files exist only in memory and in this namespace.
pub(super) fn install(sites: &[Host]) -> io::Result<()> {
    rustix::mount::mount("longhaul", STAGING, "tmpfs", MountFlags::NOSUID, None)?;
    let installed = bind("hosts", &hosts(sites, network::speaks_ipv6()))
        .and_then(|()| bind("resolv.conf", RESOLV))
        .and_then(|()| bind("gai.conf", PREFERENCE));
    // The bound files keep the unmounted file system in memory.
    rustix::mount::unmount(STAGING, UnmountFlags::DETACH)?;
    installed
}

fn hosts(sites: &[Host], ipv6: bool) -> String {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    if ipv6 {
        text.push_str("::1 localhost\n");
    }
    for host in sites {
        for address in host.addresses().filter(|address| ipv6 || address.is_ipv4()) {
            text.push_str(&format!("{address} {}\n", host.name));
        }
    }
    text
}

fn bind(name: &str, content: &str) -> io::Result<()> {
    let target = Path::new("/etc").join(name);
    // A system without the file does not need it, and a bind mount could not create it.
    if !target.exists() {
        return Ok(());
    }
    let made = Path::new(STAGING).join(name);
    fs::write(&made, content)?;
    Ok(rustix::mount::mount_bind(&made, &target)?)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn every_site_is_named_in_both_families() {
        let host = |name: &str, last: u8| Host {
            name: name.to_owned(),
            ipv4: Ipv4Addr::new(198, 18, 0, last),
            ipv6: Some(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, last.into())),
        };
        let sites = [host("near", 1), host("far", 2)];
        assert_eq!(
            hosts(&sites, true),
            "127.0.0.1 localhost\n::1 localhost\n198.18.0.1 near\n2001:2::1 near\n\
             198.18.0.2 far\n2001:2::2 far\n"
        );
        let without = "127.0.0.1 localhost\n198.18.0.1 near\n198.18.0.2 far\n";
        assert_eq!(hosts(&sites, false), without);
    }
}
