//! The CPUs near a network interface: NUMA nodes and interrupts, from sysfs and procfs.
//!
//! A fact that the kernel does not provide is `None` or empty: virtual interfaces have no node.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The host to read, as a root directory with `sys` and `proc`.
#[derive(Debug, Clone)]
pub struct HostTopology {
    root: PathBuf,
}

impl HostTopology {
    /// Returns the topology of this host.
    pub fn host() -> Self {
        HostTopology { root: "/".into() }
    }

    /// Returns a topology whose `sys` and `proc` are below `root`.
    pub fn beneath(root: &Path) -> Self {
        HostTopology { root: root.to_owned() }
    }

    /// Returns the number of online NUMA nodes; 1 if the kernel reports none.
    pub fn nodes(&self) -> usize {
        self.list("sys/devices/system/node/online").map_or(1, |nodes| nodes.len().max(1))
    }

    /// Returns the node of the device of `interface`.
    pub fn node_of(&self, interface: &str) -> Option<u32> {
        // -1 means no node (drivers/base/node.c).
        self.text(&format!("sys/class/net/{interface}/device/numa_node"))?.parse().ok()
    }

    /// Returns the CPUs of `node`.
    pub fn cpus_of(&self, node: u32) -> Vec<u32> {
        self.list(&format!("sys/devices/system/node/node{node}/cpulist")).unwrap_or_default()
    }

    /// Returns the CPUs that handle the interrupts of `interface`.
    pub fn interrupt_cpus(&self, interface: &str) -> Vec<u32> {
        let directory = format!("sys/class/net/{interface}/device/msi_irqs");
        let Ok(entries) = fs::read_dir(self.root.join(directory)) else { return Vec::new() };
        let mut cpus: Vec<u32> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|irq| self.list(&format!("proc/irq/{irq}/effective_affinity_list")))
            .flatten()
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    /// Reads a list in the kernel's format: `0-3,8` (Documentation/admin-guide/cputopology.rst).
    fn list(&self, path: &str) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for item in self.text(path)?.split(',').filter(|item| !item.is_empty()) {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            found.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
        }
        Some(found)
    }
}

/// Returns the interface with `address` in the calling thread's network namespace.
///
/// # Errors
/// The kernel does not list the addresses.
pub fn interface_of(address: IpAddr) -> io::Result<Option<String>> {
    let found = interface_addresses()?.into_iter().find(|(_, one)| *one == address);
    Ok(found.map(|(name, _)| name))
}

/// Returns the interfaces and their addresses in the calling thread's network namespace. An interface with
/// several addresses has an entry per address.
///
/// # Errors
/// The kernel does not list the addresses.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut head = std::ptr::null_mut();
    // SAFETY: `head` is valid for writing; on success it is a list that must be freed.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut entry = head;
    while !entry.is_null() {
        // SAFETY: entries of the list are valid until it is freed below; names end with zero, and
        // an address is null or has the length of its family.
        unsafe {
            let address = (*entry).ifa_addr;
            let ip = (!address.is_null()).then(|| ip_of(address)).flatten();
            let name = std::ffi::CStr::from_ptr((*entry).ifa_name).to_str();
            found.extend(name.ok().zip(ip).map(|(name, ip)| (name.to_owned(), ip)));
            entry = (*entry).ifa_next;
        }
    }
    // SAFETY: `head` came from getifaddrs(3) and is freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `address` points to a socket address of the length of its family.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(u32::from_be(v4.sin_addr.s_addr).to_be_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_two_nodes_is_read() {
        let root = std::env::temp_dir().join(format!("longhaul-topology-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/node/online", "0-1\n");
        write("sys/devices/system/node/node1/cpulist", "8-15,24-25\n");
        write("sys/class/net/eth0/device/numa_node", "1\n");
        write("sys/class/net/eth1/device/numa_node", "-1\n");
        for (irq, cpu) in [("40", "9"), ("41", "8"), ("42", "9")] {
            write(&format!("sys/class/net/eth0/device/msi_irqs/{irq}"), "msix\n");
            write(&format!("proc/irq/{irq}/effective_affinity_list"), cpu);
        }
        let host = HostTopology::beneath(&root);
        assert_eq!((host.nodes(), host.node_of("eth0"), host.node_of("eth1")), (2, Some(1), None));
        assert_eq!(host.cpus_of(1), [8, 9, 10, 11, 12, 13, 14, 15, 24, 25]);
        assert_eq!(host.interrupt_cpus("eth0"), [8, 9]);
        assert_eq!((host.node_of("lo"), host.interrupt_cpus("lo")), (None, vec![]));
        fs::remove_dir_all(root).unwrap();
        assert!(HostTopology::host().nodes() >= 1);
    }

    #[test]
    fn loopback_is_the_interface_of_its_address() {
        assert_eq!(interface_of([127, 0, 0, 1].into()).unwrap().as_deref(), Some("lo"));
        assert_eq!(interface_of([192, 0, 2, 1].into()).unwrap(), None);
    }
}
