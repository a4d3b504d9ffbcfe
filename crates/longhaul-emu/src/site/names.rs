//! The names by which the sites find each other, for any program that asks the system's resolver.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use longhaul_core::plan::Side;
use rustix::mount::{MountFlags, UnmountFlags};

/// Where the files are made before they are bound to their places. Any directory that is sure to
/// exist would do: a file system in memory covers it for a moment, and only for this thread.
const WORKSHOP: &str = "/tmp";

/// Gives the calling thread's mount namespace an `/etc/hosts` that knows both sites, and an
/// `/etc/resolv.conf` without a server, so that looking up any other name fails at once instead
/// of waiting for a server that no packet can reach.
///
/// The files live in memory and in this namespace alone; none is ever made on a disk.
pub(super) fn install(addresses: &[(Side, Ipv4Addr)]) -> io::Result<()> {
    rustix::mount::mount("longhaul", WORKSHOP, "tmpfs", MountFlags::NOSUID, None)?;
    let installed = bind("hosts", &hosts(addresses)).and_then(|()| bind("resolv.conf", RESOLV));
    // The bound files keep the file system alive under it.
    rustix::mount::unmount(WORKSHOP, UnmountFlags::DETACH)?;
    installed
}

/// With no `nameserver` line the resolver asks the local host, where nothing listens.
const RESOLV: &str = "# No name server is reachable from an emulated site.\n";

fn hosts(addresses: &[(Side, Ipv4Addr)]) -> String {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for (side, address) in addresses {
        text.push_str(&format!("{address} {side}\n"));
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
    use super::*;

    #[test]
    fn both_ends_are_named() {
        let text = hosts(&[
            (Side::Near, Ipv4Addr::new(198, 18, 0, 1)),
            (Side::Far, Ipv4Addr::new(198, 18, 0, 2)),
        ]);
        assert_eq!(text, "127.0.0.1 localhost\n198.18.0.1 near\n198.18.0.2 far\n");
    }
}
