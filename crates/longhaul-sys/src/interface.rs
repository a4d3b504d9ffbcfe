//! Network interfaces of the calling thread's namespace, their addresses and routes, by
//! `rtnetlink(7)`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

use crate::netlink::{NestedAttributes, Netlink, Request};

/// A network interface.
#[derive(Debug)]
pub struct Interface {
    index: u32,
    netlink: Netlink,
}

/// Creates a pair of Ethernet devices: `name` in the calling thread's network namespace, `peer` in
/// that of `other`, both with MTU `mtu`. Device `name` has the Ethernet address `address` and no
/// ARP: it also sends all its frames to `address`.
///
/// # Errors
/// `CAP_NET_ADMIN` over one of the namespaces is missing, a name is in use or too long, or the
/// kernel has no `veth`.
pub fn create_pair(
    name: &str,
    peer: &str,
    other: BorrowedFd<'_>,
    mtu: u32,
    address: [u8; 6],
) -> io::Result<()> {
    const VETH_INFO_PEER: u16 = 1; // include/uapi/linux/veth.h
    let named = |name: &str| [name.as_bytes(), &[0]].concat();
    // struct ifinfomsg: family, padding and type; then index, flags and mask of 32 bits.
    let mut structure = vec![0; 8];
    structure.extend(libc::IFF_NOARP.to_ne_bytes());
    structure.extend(libc::IFF_NOARP.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let peer = NestedAttributes::new(&[0; 16])
        .with(libc::IFLA_IFNAME, &named(peer))
        .with(libc::IFLA_MTU, &mtu.to_ne_bytes())
        .with(libc::IFLA_NET_NS_FD, &other.as_raw_fd().to_ne_bytes());
    let data = NestedAttributes::new(&[]).with(VETH_INFO_PEER, peer.bytes());
    let info = NestedAttributes::new(&[])
        .with(libc::IFLA_INFO_KIND, b"veth")
        .with(libc::IFLA_INFO_DATA, data.bytes());
    let request = Request::new(libc::RTM_NEWLINK, flags, &structure)
        .with(libc::IFLA_IFNAME, &named(name))
        .with(libc::IFLA_MTU, &mtu.to_ne_bytes())
        .with(libc::IFLA_ADDRESS, &address)
        .with(libc::IFLA_LINKINFO, info.bytes());
    Netlink::open(libc::NETLINK_ROUTE)?.request(request)
}

/// Returns the kernel's index of interface `name` in the calling thread's network namespace.
///
/// # Errors
/// The interface does not exist.
pub fn index(name: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    rustix::net::netdevice::name_to_index(&socket, name).map_err(io::Error::from)
}

impl Interface {
    /// Returns the index in its network namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns a handle to interface `name` of the calling thread's network namespace. The handle
    /// stays in that namespace when the thread leaves it.
    ///
    /// # Errors
    /// The interface does not exist, or no socket could be created.
    pub fn named(name: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        let index = rustix::net::netdevice::name_to_index(&socket, name)?;
        Ok(Interface { index, netlink: Netlink::open(libc::NETLINK_ROUTE)? })
    }

    /// Assigns an address with its prefix length. An IPv6 address is usable at once, without
    /// duplicate address detection (RFC 4862, section 5.4).
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing, or the family is unsupported: the kernel has no IPv6, or the
    /// interface's MTU is below 1280.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, octets) = family_and_octets(address);
        // struct ifaddrmsg (include/uapi/linux/if_addr.h): family, prefix, flags, scope, index.
        let mut structure = vec![family, prefix, libc::IFA_F_NODAD as u8, libc::RT_SCOPE_UNIVERSE];
        structure.extend(self.index.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let request = Request::new(libc::RTM_NEWADDR, flags, &structure)
            .with(libc::IFA_LOCAL, &octets)
            .with(libc::IFA_ADDRESS, &octets);
        self.netlink.request(request)
    }

    /// Adds a route to host `to` through this interface, or replaces the present one. Its packets
    /// have the source address `source`, unless the program sets another one.
    ///
    /// # Errors
    /// The interface is down, `source` is not an address of this host, or `CAP_NET_ADMIN` is
    /// missing.
    pub fn set_host_route(&self, to: IpAddr, source: IpAddr) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = self.host_route(libc::RTM_NEWROUTE, flags, to);
        self.netlink.request(request.with(libc::RTA_PREFSRC, &family_and_octets(source).1))
    }

    /// Removes the route to host `to` through this interface.
    ///
    /// # Errors
    /// There is no such route, or `CAP_NET_ADMIN` is missing.
    pub fn remove_host_route(&self, to: IpAddr) -> io::Result<()> {
        self.netlink.request(self.host_route(libc::RTM_DELROUTE, 0, to))
    }

    fn host_route(&self, message: u16, flags: libc::c_int, to: IpAddr) -> Request {
        let (family, octets) = family_and_octets(to);
        let scope = if to.is_ipv4() { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
        let bits = octets.len() as u8 * 8;
        // struct rtmsg: family, destination's and source's prefix, type of service, table,
        // protocol, scope, type; then 32 bits of flags.
        let table = libc::RT_TABLE_MAIN;
        let kind = libc::RTN_UNICAST;
        let structure = [family, bits, 0, 0, table, libc::RTPROT_STATIC, scope, kind, 0, 0, 0, 0];
        Request::new(message, flags, &structure)
            .with(libc::RTA_DST, &octets)
            .with(libc::RTA_OIF, &self.index.to_ne_bytes())
    }

    /// Sets the MTU in bytes, including the IP header.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing, or the device does not support the size.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.set(0, 0, Some((libc::IFLA_MTU, mtu)))
    }

    /// Sets the number of packets that can wait for a reader; a super-packet counts as one. On a
    /// TUN device this is the length of the ring that drops packets when it is full.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing.
    pub fn set_queue_length(&self, packets: u32) -> io::Result<()> {
        self.set(0, 0, Some((libc::IFLA_TXQLEN, packets)))
    }

    /// Brings the interface up.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing.
    pub fn up(&self) -> io::Result<()> {
        self.set(libc::IFF_UP, libc::IFF_UP, None)
    }

    /// Removes the interface.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing, or the interface cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        let mut structure = vec![0; 4];
        structure.extend(self.index.to_ne_bytes());
        structure.resize(16, 0);
        self.netlink.request(Request::new(libc::RTM_DELLINK, 0, &structure))
    }

    /// Takes the interface down, which removes its routes.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing.
    pub fn down(&self) -> io::Result<()> {
        self.set(0, libc::IFF_UP, None)
    }

    /// Disables multicast on the interface, so that the kernel sends no membership reports (RFC
    /// 3810).
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing.
    pub fn without_multicast(&self) -> io::Result<()> {
        self.set(0, libc::IFF_MULTICAST, None)
    }

    /// Sets the interface flags in `mask` to their values in `flags`, and sets one attribute.
    fn set(
        &self,
        flags: libc::c_int,
        mask: libc::c_int,
        number: Option<(u16, u32)>,
    ) -> io::Result<()> {
        // struct ifinfomsg: family, padding and type; then index, flags and mask of 32 bits.
        let mut structure = vec![0; 4];
        structure.extend(self.index.to_ne_bytes());
        structure.extend(flags.to_ne_bytes());
        structure.extend(mask.to_ne_bytes());
        let mut request = Request::new(libc::RTM_SETLINK, 0, &structure);
        if let Some((attribute, value)) = number {
            request = request.with(attribute, &value.to_ne_bytes());
        }
        self.netlink.request(request)
    }
}

pub(crate) fn family_and_octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

/// Returns an `ifreq` for interface `name` with all other fields zero.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is reserved for the terminating zero.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        assert!(request("wan0").is_ok());
        assert_eq!(request("sixteen-is-long!").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_interface_that_is_missing_is_an_error() {
        let missing = Interface::named("no-such-if").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
        assert!(Interface::named("lo").is_ok());
    }
}
