//! Options of UDP sockets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use crate::socket_option::set;

/// The index of the drop counter in the result of `SO_MEMINFO` (`SK_MEMINFO_DROPS`,
/// linux/sock_diag.h).
const MEMINFO_DROPS: usize = 8;
/// The number of counters (`SK_MEMINFO_VARS`).
const MEMINFO_VARS: usize = 9;

/// Lets the kernel split sends into datagrams of `bytes` each (`UDP_SEGMENT`, Linux 4.18), at most
/// 64 per send. The last may be shorter. 0 turns this off.
///
/// # Errors
/// The kernel does not support the option.
pub fn segment_sends(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Lets the kernel return several datagrams of one size at once (`UDP_GRO`, Linux 5.0);
/// [`receive`](super::receive) returns their size.
///
/// # Errors
/// The kernel does not support the option.
pub fn merge_receives(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Makes [`receive`](super::receive) return how often the socket's buffer was full (`SO_RXQ_OVFL`).
///
/// # Errors
/// The kernel refuses.
pub fn count_drops(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Makes a send fail with `ENOBUFS` if the interface's queue drops it, and enables errors from the
/// network (`IP_RECVERR`); otherwise the kernel drops silently (ip(7)).
///
/// # Errors
/// The kernel refuses.
pub fn report_send_drops(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)
    }
}

/// Makes [`receive_addressed`](super::receive_addressed) return the local address that a datagram
/// was sent to (`IP_PKTINFO`, `IPV6_RECVPKTINFO`).
///
/// # Errors
/// The kernel refuses.
pub fn tell_destination(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
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

/// Returns how often the socket's buffer was full since it was created (`SO_MEMINFO`). One drop may
/// affect several merged datagrams.
///
/// # Errors
/// It is not a socket.
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
