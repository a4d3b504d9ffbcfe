//! UDP sockets beyond the standard library: many datagrams per call by segmentation and merging in
//! the kernel ([`segment_sends`], [`merge_receives`]), and drop counters.
//!
//! The functions work on any UDP socket. Constants are those of linux/udp.h, linux/in.h and
//! asm-generic/socket.h.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use socket2::SockAddr;

use crate::socket::set;

/// The index of the drop counter in the result of `SO_MEMINFO` (`SK_MEMINFO_DROPS`,
/// linux/sock_diag.h).
const MEMINFO_DROPS: usize = 8;
/// The number of counters (`SK_MEMINFO_VARS`).
const MEMINFO_VARS: usize = 9;

/// Makes the kernel split sends into datagrams of `bytes` each (`UDP_SEGMENT`, Linux 4.18), at most
/// 64 per send. The last may be shorter. 0 disables this.
///
/// # Errors
/// The kernel does not support the option.
pub fn segment_sends(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Makes the kernel return several datagrams of one size together (`UDP_GRO`, Linux 5.0);
/// [`receive`] returns their size.
///
/// # Errors
/// The kernel does not support the option.
pub fn merge_receives(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Makes [`receive`] return the drop counter of the socket (`SO_RXQ_OVFL`).
///
/// # Errors
/// The kernel rejects the option.
pub fn count_drops(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Makes a send fail with `ENOBUFS` if the interface's queue drops the datagram, and enables errors
/// from the network (`IP_RECVERR`). Without this option the kernel drops silently (ip(7)).
///
/// # Errors
/// The kernel rejects the option.
pub fn report_send_drops(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)
    }
}

/// Makes [`receive_addressed`] return the destination address of a datagram (`IP_PKTINFO`,
/// `IPV6_RECVPKTINFO`).
///
/// # Errors
/// The kernel rejects the option.
pub fn enable_destination(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    }
}

/// Sets the receive buffer in bytes, beyond the host's `net.core.rmem_max` if necessary
/// (`SO_RCVBUFFORCE`).
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` over the network namespace.
pub fn force_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = bytes.try_into().unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

/// Returns the drop counter of the socket since its creation (`SO_MEMINFO`). One drop may affect
/// several merged datagrams.
///
/// # Errors
/// The descriptor is not a socket.
pub fn drops(socket: impl AsFd) -> io::Result<u32> {
    let mut counters = [0u32; MEMINFO_VARS];
    let mut length = size_of::<[u32; MEMINFO_VARS]>() as libc::socklen_t;
    // SAFETY: `counters` is valid for `length` bytes, and the kernel writes at most that many.
    let code = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            counters.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code == 0 { Ok(counters[MEMINFO_DROPS]) } else { Err(io::Error::last_os_error()) }
}

/// Space for one `in6_pktinfo` and its header.
const SEND_CONTROL_WORDS: usize = 6;

/// Sends a datagram to `to` from the local address `from`, on a socket that is bound to all
/// addresses. An answer needs this so that its source is the destination of the request.
///
/// # Errors
/// `from` is not a local address, or any error of sendmsg(2).
pub fn send_from(
    socket: &UdpSocket,
    bytes: &[u8],
    to: SocketAddr,
    from: IpAddr,
) -> io::Result<usize> {
    let ipv6 = socket.local_addr()?.is_ipv6();
    let to = match (to, ipv6) {
        (SocketAddr::V4(v4), true) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        _ => to,
    };
    let name = SockAddr::from(to);
    let mut space = [0u64; SEND_CONTROL_WORDS];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a C structure for which all zeroes is valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = name.as_ptr().cast_mut().cast();
    header.msg_namelen = name.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    // SAFETY: the control space fits either structure with its header, its length is their
    // CMSG_SPACE, and it is aligned for a header.
    unsafe {
        match from {
            IpAddr::V4(ip) if !ipv6 => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from(ip).to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                put(&mut header, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            ip => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    ipi6_ifindex: 0,
                };
                put(&mut header, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }
    // SAFETY: the header points to the name, the vector and the control space with their lengths;
    // the kernel only reads them during the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Makes `data` the only control message of `header`.
///
/// # Safety
/// `header.msg_control` is aligned for a `cmsghdr` and has space for one with a `T`.
unsafe fn put<T>(header: &mut libc::msghdr, level: libc::c_int, kind: libc::c_int, data: T) {
    // SAFETY: the caller guarantees the space; CMSG_FIRSTHDR is its start and not null for this
    // length.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<T>() as u32) as _;
        let entry = libc::CMSG_FIRSTHDR(&raw const *header);
        (*entry).cmsg_level = level;
        (*entry).cmsg_type = kind;
        (*entry).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
        libc::CMSG_DATA(entry).cast::<T>().write_unaligned(data);
    }
}

/// Space for all control messages of this crate's sockets together, with their headers: merged size,
/// drop counter, destination, hop limit, traffic class, time stamps, and a `sock_extended_err` with
/// an IPv6 address.
const RECEIVE_CONTROL_WORDS: usize = 64;

/// One datagram, or several of one size that the kernel merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpBatch {
    /// The number of payload bytes in the buffer.
    pub bytes: usize,
    /// The payload bytes of each datagram; the last may be shorter.
    pub segment_bytes: usize,
    /// The 32-bit drop counter of the socket when this datagram arrived; `None` before the first
    /// drop, or without [`count_drops`].
    pub drops: Option<u32>,
}

/// Waits for datagrams on a connected socket, up to the socket's timeout.
///
/// # Errors
/// The kernel's error: `WouldBlock` at the timeout, `ConnectionRefused` if the peer has no socket
/// at that port.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<UdpBatch> {
    let mut found = UdpBatch { bytes: 0, segment_bytes: 0, drops: None };
    found.bytes = message(socket, buffer, None, 0, |level, kind, data| {
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

/// A datagram with its source and destination addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressed {
    /// The number of payload bytes in the buffer.
    pub bytes: usize,
    /// The source address.
    pub from: SocketAddr,
    /// The local destination address of the datagram; `None` without [`enable_destination`].
    pub to: Option<IpAddr>,
}

/// Waits for a datagram on an unconnected socket, up to the socket's timeout.
///
/// # Errors
/// The kernel's error: `WouldBlock` at the timeout.
pub fn receive_addressed(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Addressed> {
    let mut to = None;
    // SAFETY: the closure returns the length that the kernel wrote, or fails.
    let (bytes, from) = unsafe {
        SockAddr::try_init(|storage, length| {
            let bytes =
                message(&socket, buffer, Some((storage, length)), 0, |level, kind, data| {
                    to = destination(level, kind, data).or(to);
                })?;
            Ok(bytes)
        })?
    };
    let from = from.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok(Addressed { bytes, from, to })
}

/// Returns the local address in a control message; `None` for other messages.
///
/// # Safety
/// `data` is that of a control message that the kernel wrote.
pub(crate) unsafe fn destination(
    level: libc::c_int,
    kind: libc::c_int,
    data: *const u8,
) -> Option<IpAddr> {
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: the kernel stores this structure here (ip(7)).
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            // `ipi_spec_dst` is the source address for an answer; `ipi_addr` may be a broadcast
            // address.
            Some(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into())
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: the kernel stores this structure here (ipv6(7)).
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// The place for the source address of a datagram, as `SockAddr::try_init` passes it.
pub(crate) type Name = (*mut socket2::SockAddrStorage, *mut libc::socklen_t);

/// Does one `recvmsg(2)` and calls `control` with level, type and data of each control message.
pub(crate) fn message(
    socket: impl AsFd,
    buffer: &mut [u8],
    name: Option<Name>,
    flags: libc::c_int,
    mut control: impl FnMut(libc::c_int, libc::c_int, *const u8),
) -> io::Result<usize> {
    let mut space = [0u64; RECEIVE_CONTROL_WORDS];
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
    header.msg_controllen = size_of::<[u64; RECEIVE_CONTROL_WORDS]>() as _;
    // SAFETY: the header points to the vector, the control space and the name with their lengths,
    // all of which live, unshared, until the call returns.
    let bytes = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        for (bind, asker, from) in [
            ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.2"),
            ("[::]:0", "127.0.0.1:0", "127.0.0.2"),
            ("[::]:0", "[::1]:0", "::1"),
        ] {
            let socket = UdpSocket::bind(bind).unwrap();
            let asker = UdpSocket::bind(asker).unwrap();
            let from: IpAddr = from.parse().unwrap();
            send_from(&socket, b"yes", asker.local_addr().unwrap(), from).unwrap();
            let (_, source) = asker.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(source, SocketAddr::new(from, socket.local_addr().unwrap().port()));
        }
    }

    #[test]
    fn an_address_that_is_not_ours_is_refused() {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let to = "127.0.0.1:9".parse().unwrap();
        assert!(send_from(&socket, b"no", to, "192.0.2.1".parse().unwrap()).is_err());
    }

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
            segment_sends(&near, 1000).unwrap();
            merge_receives(&far).unwrap();
            assert_eq!(near.send(&[7; 2500]).unwrap(), 2500);
            let mut buffer = [0; 65536];
            let found = receive(&far, &mut buffer).unwrap();
            assert_eq!(found, UdpBatch { bytes: 2500, segment_bytes: 1000, drops: None });
            near.send(&[7; 3]).unwrap();
            let found = receive(&far, &mut buffer).unwrap();
            assert_eq!((found.bytes, found.segment_bytes), (3, 3));
        }
    }

    #[test]
    fn a_full_buffer_counts_its_drops() {
        let (near, far) = pair("127.0.0.1:0");
        count_drops(&far).unwrap();
        for _ in 0..10_000 {
            near.send(&[7; 1000]).unwrap();
        }
        let dropped = drops(&far).unwrap();
        assert!(dropped > 0, "10 MB do not fit an ordinary buffer");
        let mut buffer = [0; 2000];
        far.set_nonblocking(true).unwrap();
        while receive(&far, &mut buffer).is_ok() {}
        near.send(&[7; 1000]).unwrap();
        assert_eq!(receive(&far, &mut buffer).unwrap().drops, Some(dropped));
    }

    #[test]
    fn a_datagram_has_its_source_and_destination() {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        enable_destination(&socket, true).unwrap();
        enable_destination(&socket, false).unwrap();
        let port = socket.local_addr().unwrap().port();
        for (local, ip) in [("127.0.0.2:0", "127.0.0.3"), ("[::1]:0", "::1")] {
            let ip: IpAddr = ip.parse().unwrap();
            let near = UdpSocket::bind(local).unwrap();
            near.send_to(b"hello", (ip, port)).unwrap();
            let found = receive_addressed(&socket, &mut [0; 64]).unwrap().canonical();
            assert_eq!(found.from, near.local_addr().unwrap());
            assert_eq!((found.bytes, found.to), (5, Some(ip)));
        }
    }
}
