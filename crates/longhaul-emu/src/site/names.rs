//! The names by which the sites find each other, for any program that asks the system's resolver.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use super::{Host, network};

/// Where the files are made before they are bound to their places. Any directory that is sure to
/// exist would do: a file system in memory covers it for a moment, and only for this thread.
const WORKSHOP: &str = "/tmp";

/// With no `nameserver` line the resolver asks the local host, where nothing listens.
const RESOLV: &str = "# No name server is reachable from an emulated site.\n";

/// IPv4 before IPv6 where a program asks for neither (gai.conf(5), RFC 6724 section 10.3), so that
/// a figure does not hang on whether the host has IPv6.
const PREFERENCE: &str = "precedence ::ffff:0:0/96  100\n";

/// Gives the calling thread's mount namespace an `/etc/hosts` that knows every site, and an
/// `/etc/resolv.conf` without a server, so that looking up any other name fails at once instead
/// of waiting for a server that no packet can reach.
///
/// The files live in memory and in this namespace alone; none is ever made on a disk.
pub(super) fn install(sites: &[Host]) -> io::Result<()> {
    rustix::mount::mount("longhaul", WORKSHOP, "tmpfs", MountFlags::NOSUID, None)?;
    let installed = bind("hosts", &hosts(sites, network::speaks_ipv6()))
        .and_then(|()| bind("resolv.conf", RESOLV))
        .and_then(|()| bind("gai.conf", PREFERENCE));
    // The bound files keep the file system alive under it.
    rustix::mount::unmount(WORKSHOP, UnmountFlags::DETACH)?;
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
    // Systems without the file need none: a bind mount could not make one either.
    if !target.exists() {
        return Ok(());
    }
    let made = Path::new(WORKSHOP).join(name);
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
