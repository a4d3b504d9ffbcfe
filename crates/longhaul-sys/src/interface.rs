//! Network interfaces of the calling thread's namespace, by the ioctls of `netdevice(7)`.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// One interface, by name.
#[derive(Debug)]
pub struct Interface {
    name: String,
    socket: OwnedFd,
}

impl Interface {
    /// A handle to interface `name` of the calling thread's network namespace; it stays with that
    /// namespace when the thread moves on. The interface need not exist yet.
    ///
    /// # Errors
    /// No socket could be made.
    pub fn named(name: &str) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        Ok(Interface { name: name.to_owned(), socket: socket.into() })
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
        let mut request = request(&self.name)?;
        // ifr_qlen shares its place in the union with ifr_metric.
        request.ifr_ifru.ifru_metric = packets as libc::c_int;
        self.ioctl(libc::SIOCSIFTXQLEN, request)
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
    fn an_address_sits_after_the_port() {
        let address = socket_address(Ipv4Addr::new(198, 18, 0, 1));
        let bytes: Vec<u8> = address.sa_data.iter().map(|b| *b as u8).collect();
        assert_eq!(bytes[..8], [0, 0, 198, 18, 0, 1, 0, 0]);
    }
}
