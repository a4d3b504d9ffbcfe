//! Sends probes that are never fragmented, and the socket options for them.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::socket::set;

/// Space for one int and its header.
const CONTROL_WORDS: usize = 4;

/// The maximum number of packets of one sendmmsg(2) (`UIO_MAXIOV`).
const MOST_AT_ONCE: usize = 1024;

/// Sends a packet on a connected socket, with an individual hop limit if one is given. `ipv6` is
/// true for an IPv6 socket.
///
/// # Errors
/// The kernel's error: `EMSGSIZE` if the packet exceeds the interface's MTU, `ENOBUFS` if the
/// interface's queue is full. Each ICMP error received since the previous call is also returned
/// once (`EHOSTUNREACH` and similar); the packet is not sent then.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    hop_limit: Option<u8>,
    ipv6: bool,
) -> io::Result<usize> {
    let mut space = [0u64; CONTROL_WORDS];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a C structure for which all zeroes is valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if let Some(limit) = hop_limit {
        let (level, kind) = if ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IPPROTO_IP, libc::IP_TTL)
        };
        header.msg_control = space.as_mut_ptr().cast();
        // SAFETY: the control space fits a header and an int, its length is their
        // CMSG_SPACE, and it is aligned for a header.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as _;
            let entry = libc::CMSG_FIRSTHDR(&raw const header);
            (*entry).cmsg_level = level;
            (*entry).cmsg_type = kind;
            (*entry).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as _;
            libc::CMSG_DATA(entry).cast::<libc::c_int>().write_unaligned(limit.into());
        }
    }
    // SAFETY: the header points to the vector and the control space with their lengths; the kernel
    // only reads them during the call.
    let sent =
        unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Sends all of `bytes` as packets of `packet_bytes` each on a connected socket, back to back as
/// fast as the kernel accepts them (sendmmsg(2)). Returns the number of packets sent.
///
/// # Errors
/// The kernel accepted none.
pub fn send_train(socket: impl AsFd, bytes: &[u8], packet_bytes: usize) -> io::Result<usize> {
    let mut sent = 0;
    for part in bytes.chunks(packet_bytes.max(1) * MOST_AT_ONCE) {
        let mut vectors: Vec<libc::iovec> = part
            .chunks(packet_bytes.max(1))
            .map(|packet| libc::iovec {
                iov_base: packet.as_ptr().cast_mut().cast(),
                iov_len: packet.len(),
            })
            .collect();
        // SAFETY: a C structure for which all zeroes is valid.
        let mut messages: Vec<libc::mmsghdr> =
            vectors.iter().map(|_| unsafe { zeroed() }).collect();
        for (message, vector) in messages.iter_mut().zip(&mut vectors) {
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let count = messages.len() as libc::c_uint;
        // SAFETY: each header points to one vector, and that to bytes of its length. All of them
        // live, unmoved, until the call returns; the kernel writes only the lengths in the headers.
        let taken =
            unsafe { libc::sendmmsg(socket.as_fd().as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        if taken < 0 {
            let error = io::Error::last_os_error();
            return if sent > 0 { Ok(sent) } else { Err(error) };
        }
        sent += taken as usize;
        if (taken as usize) < messages.len() {
            break;
        }
    }
    Ok(sent)
}

/// Prepares `socket` for probes. Its packets are never fragmented, for any path MTU that the kernel
/// assumes (`IP_PMTUDISC_PROBE`), so a packet larger than the interface's MTU fails with
/// `EMSGSIZE`. ICMP errors are kept for [`receive_report`](super::receive_report) (`IP_RECVERR`).
/// Arrivals have a time stamp and their remaining hop limit.
///
/// # Errors
/// The kernel rejects an option.
pub fn prepare(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let options: &[_] = if ipv6 {
        &[
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            // Without this option the host fragments packets larger than the interface's MTU
            // (__ip6_append_data(), net/ipv6/ip6_output.c).
            (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
        ]
    } else {
        &[
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        ]
    };
    for (level, name, value) in options {
        set(&socket, *level, *name, *value)?;
    }
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Returns the time of `CLOCK_REALTIME`, the clock of arrivals, in nanoseconds.
pub fn now_nanos() -> u64 {
    // A clock before 1970 is invalid; its times are not compared.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
