//! Sends datagrams from a chosen address.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::SockAddr;

/// Space for one `in6_pktinfo` and its header.
const CONTROL_WORDS: usize = 6;

/// Sends a datagram to `to` from the local address `from` on a socket that is bound to all
/// addresses. An answer needs this so that it comes from the address of the request.
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
    let mut space = [0u64; CONTROL_WORDS];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a C structure for which all zeroes is valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = name.as_ptr().cast_mut().cast();
    header.msg_namelen = name.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    // SAFETY: the control space has room for either structure with its header, its length is their
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
/// `header.msg_control` is aligned for a `cmsghdr` and has room for one with a `T`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        for (bind, asker, from) in [
            ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.2"),
            ("[::]:0", "127.0.0.1:0", "127.0.0.2"),
            ("[::]:0", "[::1]:0", "::1"),
        ] {
            let door = UdpSocket::bind(bind).unwrap();
            let asker = UdpSocket::bind(asker).unwrap();
            let from: IpAddr = from.parse().unwrap();
            send_from(&door, b"yes", asker.local_addr().unwrap(), from).unwrap();
            let (_, seen) = asker.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(seen, SocketAddr::new(from, door.local_addr().unwrap().port()));
        }
    }

    #[test]
    fn an_address_that_is_not_ours_is_refused() {
        let door = UdpSocket::bind("0.0.0.0:0").unwrap();
        let to = "127.0.0.1:9".parse().unwrap();
        assert!(send_from(&door, b"no", to, "192.0.2.1".parse().unwrap()).is_err());
    }
}
