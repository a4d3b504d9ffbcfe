//! Network interfaces of the calling thread's namespace, by the ioctls of `netdevice(7)` and, for
//! what these keep from the root of a user namespace, by `rtnetlink(7)`.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

/// One interface, by name.
#[derive(Debug)]
pub struct Interface {
    name: String,
    socket: OwnedFd,
    netlink: Socket,
}

/// The kernel's number of interface `name`, in the calling thread's network namespace.
///
/// # Errors
/// There is no such interface.
pub fn index(name: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    rustix::net::netdevice::name_to_index(&socket, name).map_err(io::Error::from)
}

impl Interface {
    /// A handle to interface `name` of the calling thread's network namespace; it stays with that
    /// namespace when the thread moves on. The interface need not exist yet.
    ///
    /// # Errors
    /// No socket could be made.
    pub fn named(name: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        let route = Protocol::from(libc::NETLINK_ROUTE);
        let netlink = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(route))?;
        Ok(Interface { name: name.to_owned(), socket: socket.into(), netlink })
    }

    /// Sets the address and the length of its network prefix.
    ///
    /// # Errors
    /// No such interface, or no `CAP_NET_ADMIN`.
    pub fn set_address(&self, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_addr = socket_address(address);
        self.ioctl(libc::SIOCSIFADDR, request)?;
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from(mask));
        self.ioctl(libc::SIOCSIFNETMASK, request)
    }

    /// Sets the largest packet, in bytes with the IP header.
    ///
    /// # Errors
    /// No such interface, no `CAP_NET_ADMIN`, or a size the device does not take.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
        self.ioctl(libc::SIOCSIFMTU, request)
    }

    /// Sets the number of packets, super-packets counting as one, that wait for a reader. On a
    /// TUN device this is the ring that drops when full.
    ///
    /// # Errors
    /// No such interface, or no `CAP_NET_ADMIN`.
    pub fn set_queue_length(&self, packets: u32) -> io::Result<()> {
        // SIOCSIFTXQLEN would need CAP_NET_ADMIN in the initial user namespace.
        let mut netlink = &self.netlink;
        netlink.write_all(&set_link_message(&self.name, libc::IFLA_TXQLEN, packets))?;
        let mut answer = [0; 256];
        let length = netlink.read(&mut answer)?;
        acknowledged(&answer[..length])
    }

    /// Brings the interface up.
    ///
    /// # Errors
    /// No such interface, or no `CAP_NET_ADMIN`.
    pub fn up(&self) -> io::Result<()> {
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        self.ioctl(libc::SIOCSIFFLAGS, request)
    }

    fn ioctl(&self, operation: libc::Ioctl, request: libc::ifreq) -> io::Result<()> {
        // SAFETY: every operation above reads one ifreq, which lives across the call.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), operation, &raw const request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// An `ifreq` for interface `name`, all else zero.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays for the terminator.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Bytes of `struct nlmsghdr`.
const MESSAGE_HEADER: usize = 16;

/// An `RTM_SETLINK` request that sets one number of interface `name`, to be acknowledged.
fn set_link_message(name: &str, attribute: u16, value: u32) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = vec![0; 4];
    message.extend(libc::RTM_SETLINK.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port, which one request at a time does not need; then a struct
    // ifinfomsg without an index, so that the name says which interface is meant.
    message.resize(MESSAGE_HEADER + 16, 0);
    let name: Vec<u8> = name.bytes().chain([0]).collect();
    for (kind, content) in [(libc::IFLA_IFNAME, &name[..]), (attribute, &value.to_ne_bytes())] {
        message.extend((4 + content.len() as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(content);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

/// The error in an `NLMSG_ERROR` answer, which is zero for an acknowledgement.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    match answer.get(MESSAGE_HEADER..).and_then(|rest| rest.first_chunk()) {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(code) => match i32::from_ne_bytes(*code) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        },
    }
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
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
    fn a_netlink_request_is_laid_out_in_words() {
        let message = set_link_message("wan0", libc::IFLA_TXQLEN, 0x0102_0304);
        assert_eq!(message.len(), 16 + 16 + 12 + 8);
        assert_eq!(message[..4], 52u32.to_ne_bytes());
        assert_eq!(message[32..36], [9u16.to_ne_bytes(), 3u16.to_ne_bytes()].concat());
        assert_eq!(message[36..44], *b"wan0\0\0\0\0");
        assert_eq!(message[48..], 0x0102_0304u32.to_ne_bytes());
    }

    #[test]
    fn an_interface_that_is_missing_is_an_error() {
        let missing = Interface::named("no-such-if").unwrap();
        // Without privilege the kernel refuses before it looks for the interface.
        let refused = |done: io::Result<()>| {
            matches!(done.unwrap_err().raw_os_error(), Some(libc::ENODEV | libc::EPERM))
        };
        assert!(refused(missing.set_mtu(1500)));
        assert!(refused(missing.set_queue_length(10)));
    }

    #[test]
    fn an_address_sits_after_the_port() {
        let address = socket_address(Ipv4Addr::new(198, 18, 0, 1));
        let bytes: Vec<u8> = address.sa_data.iter().map(|b| *b as u8).collect();
        assert_eq!(bytes[..8], [0, 0, 198, 18, 0, 1, 0, 0]);
    }
}
