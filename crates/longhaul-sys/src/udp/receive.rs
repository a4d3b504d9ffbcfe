//! Receives datagrams.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use socket2::SockAddr;

/// Space for the merged size and the drop counter, or the destination, with their headers.
const CONTROL_WORDS: usize = 16;

/// One datagram, or several of one size that the kernel merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The number of payload bytes in the buffer.
    pub bytes: usize,
    /// The payload bytes of each datagram; the last may be shorter.
    pub segment_bytes: usize,
    /// The number of times that the socket's buffer had been full when this arrived, as a 32-bit
    /// counter; `None` while it never was, or without [`count_drops`](super::count_drops).
    pub drops: Option<u32>,
}

/// Waits for datagrams on a connected socket for as long as its timeout allows.
///
/// # Errors
/// The kernel's error: `WouldBlock` at the timeout, `ConnectionRefused` if the peer has no such
/// socket.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut found = Received { bytes: 0, segment_bytes: 0, drops: None };
    found.bytes = message(socket, buffer, None, |level, kind, data| {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the kernel stores an int here (udp_cmsg_recv() in include/linux/udp.h).
                let bytes = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                found.segment_bytes = usize::try_from(bytes).unwrap_or(0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: the kernel stores a u32 here (sock_recv_drops() in net/socket.c).
                found.drops = Some(unsafe { data.cast::<u32>().read_unaligned() });
            }
            _ => {}
        }
    })?;
    if found.segment_bytes == 0 {
        found.segment_bytes = found.bytes;
    }
    Ok(found)
}

/// A datagram with both its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressed {
    /// The number of payload bytes in the buffer.
    pub bytes: usize,
    /// The source address.
    pub from: SocketAddr,
    /// The local address that it was sent to; `None` without
    /// [`tell_destination`](super::tell_destination).
    pub to: Option<IpAddr>,
}

/// Waits for a datagram on an unconnected socket for as long as its timeout allows.
///
/// # Errors
/// The kernel's error: `WouldBlock` at the timeout.
pub fn receive_addressed(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Addressed> {
    let mut to = None;
    // SAFETY: the closure reports the length that the kernel wrote, or fails.
    let (bytes, from) = unsafe {
        SockAddr::try_init(|storage, length| {
            let bytes = message(&socket, buffer, Some((storage, length)), |level, kind, data| {
                match (level, kind) {
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        // The kernel stores this structure here (ip(7)).
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        // Not ipi_addr, which may be a broadcast address; this is the source
                        // address for an answer.
                        let ip = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
                        to = Some(ip.into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        // The kernel stores this structure here (ipv6(7)).
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    _ => {}
                }
            })?;
            Ok(bytes)
        })?
    };
    let from = from.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok(Addressed { bytes, from, to })
}

/// Does one `recvmsg(2)` and passes level, type and data of each control message to `control`.
fn message(
    socket: impl AsFd,
    buffer: &mut [u8],
    name: Option<(*mut socket2::SockAddrStorage, *mut libc::socklen_t)>,
    mut control: impl FnMut(libc::c_int, libc::c_int, *const u8),
) -> io::Result<usize> {
    let mut space = [0u64; CONTROL_WORDS];
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a C structure for which all zeroes is valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    if let Some((storage, length)) = name {
        header.msg_name = storage.cast();
        // SAFETY: the caller's pointers are valid, and the length is that of the storage.
        header.msg_namelen = unsafe { *length };
    }
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
    // SAFETY: the header points to the vector, the control space and the name with their lengths,
    // all of which live, unshared, until the call returns.
    let bytes = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, 0) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some((_, length)) = name {
        // SAFETY: as above.
        unsafe { *length = header.msg_namelen };
    }
    // SAFETY: the kernel has written the control space and its length; the macros stay within.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(&raw const header);
        while !entry.is_null() {
            control((*entry).cmsg_level, (*entry).cmsg_type, libc::CMSG_DATA(entry));
            entry = libc::CMSG_NXTHDR(&raw const header, entry);
        }
    }
    Ok(bytes as usize)
}

/// An IPv6 socket shows an IPv4 address as `::ffff:a.b.c.d`; [`Addressed::canonical`] converts it.
impl Addressed {
    /// Returns both addresses, with IPv4-mapped ones converted to IPv4.
    #[must_use]
    pub fn canonical(self) -> Self {
        let from = match self.from {
            SocketAddr::V6(v6) => unmapped(v6),
            v4 => v4,
        };
        Addressed { from, to: self.to.map(|ip| ip.to_canonical()), ..self }
    }
}

fn unmapped(address: SocketAddrV6) -> SocketAddr {
    match address.ip().to_ipv4_mapped() {
        Some(ip) => SocketAddr::new(ip.into(), address.port()),
        None => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::udp;

    fn pair(local: &str) -> (UdpSocket, UdpSocket) {
        let near = UdpSocket::bind(local).unwrap();
        let far = UdpSocket::bind(local).unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (near, far)
    }

    #[test]
    fn segments_come_together_and_say_their_size() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (near, far) = pair(local);
            udp::segment_sends(&near, 1000).unwrap();
            udp::merge_receives(&far).unwrap();
            assert_eq!(near.send(&[7; 2500]).unwrap(), 2500);
            let mut buffer = [0; 65536];
            let found = receive(&far, &mut buffer).unwrap();
            assert_eq!(found, Received { bytes: 2500, segment_bytes: 1000, drops: None });
            near.send(&[7; 3]).unwrap();
            let found = receive(&far, &mut buffer).unwrap();
            assert_eq!((found.bytes, found.segment_bytes), (3, 3));
        }
    }

    #[test]
    fn a_full_buffer_counts_its_drops() {
        let (near, far) = pair("127.0.0.1:0");
        udp::count_drops(&far).unwrap();
        for _ in 0..10_000 {
            near.send(&[7; 1000]).unwrap();
        }
        let dropped = udp::drops(&far).unwrap();
        assert!(dropped > 0, "10 MB do not fit an ordinary buffer");
        let mut buffer = [0; 2000];
        far.set_nonblocking(true).unwrap();
        while receive(&far, &mut buffer).is_ok() {}
        near.send(&[7; 1000]).unwrap();
        assert_eq!(receive(&far, &mut buffer).unwrap().drops, Some(dropped));
    }

    #[test]
    fn a_datagram_says_where_it_came_from_and_to() {
        let door = UdpSocket::bind("[::]:0").unwrap();
        udp::tell_destination(&door, true).unwrap();
        udp::tell_destination(&door, false).unwrap();
        let port = door.local_addr().unwrap().port();
        for (local, ip) in [("127.0.0.2:0", "127.0.0.3"), ("[::1]:0", "::1")] {
            let ip: IpAddr = ip.parse().unwrap();
            let near = UdpSocket::bind(local).unwrap();
            near.send_to(b"hello", (ip, port)).unwrap();
            let found = receive_addressed(&door, &mut [0; 64]).unwrap().canonical();
            assert_eq!(found.from, near.local_addr().unwrap());
            assert_eq!((found.bytes, found.to), (5, Some(ip)));
        }
    }
}
