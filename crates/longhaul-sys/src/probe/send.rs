use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};

/// Room for one int and its header.
const CONTROL_WORDS: usize = 4;

/// The most packets of one sendmmsg(2) (`UIO_MAXIOV`).
const MOST_AT_ONCE: usize = 1024;

/// Sends a packet on a connected socket, with this hop limit of its own where one is given.
/// `ipv6` is the socket's family.
///
/// # Errors
/// The kernel's: `EMSGSIZE` when it is larger than the interface's MTU, `ENOBUFS` when the
/// interface's queue is full, and once for each report of a router that came since (its
/// `EHOSTUNREACH` and the like), when nothing was sent.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    hop_limit: Option<u8>,
    ipv6: bool,
) -> io::Result<usize> {
    let mut space = [0u64; CONTROL_WORDS];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a C structure for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if let Some(limit) = hop_limit {
        let (level, kind) = match ipv6 {
            false => (libc::IPPROTO_IP, libc::IP_TTL),
            true => (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT),
        };
        header.msg_control = space.as_mut_ptr().cast();
        // SAFETY: the control space has room for a header and an int, CMSG_SPACE of which is set as
        // its length, and is aligned for a header.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as _;
            let entry = libc::CMSG_FIRSTHDR(&raw const header);
            (*entry).cmsg_level = level;
            (*entry).cmsg_type = kind;
            (*entry).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as _;
            libc::CMSG_DATA(entry).cast::<libc::c_int>().write_unaligned(limit.into());
        }
    }
    // SAFETY: the header points to the vector and the control space, of the lengths stated; the
    // kernel reads them during the call and writes none of them.
    let sent =
        unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Sends all of `bytes` as packets of `packet_bytes` each on a connected socket, one behind the
/// other as fast as the kernel takes them (sendmmsg(2)). Returns how many it took.
///
/// # Errors
/// The kernel took none.
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
        // SAFETY: a C structure for which all zeroes is a valid value.
        let mut messages: Vec<libc::mmsghdr> =
            vectors.iter().map(|_| unsafe { zeroed() }).collect();
        for (message, vector) in messages.iter_mut().zip(&mut vectors) {
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let count = messages.len() as libc::c_uint;
        // SAFETY: each header points to one vector, and that to bytes of its length, all of which
        // live, unmoved, until the call returns; the kernel writes only the headers' lengths.
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
