//! UDP sockets with full information about each datagram: batches, segmentation and merging by the
//! kernel, arrival time, ECN bits, and the length of truncated datagrams.
//!
//! Constants are those of linux/udp.h, asm-generic/socket.h, linux/in.h and linux/in6.h. This
//! module does not retry, pace or count.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::socket::set;

/// The maximum number of datagrams that one call receives.
const BATCH: usize = 16;

/// The maximum number of bytes of a datagram, or of several that the kernel merged.
const LARGEST: usize = 65_535;

/// Space for the control messages: a `timespec`, the merged size, the traffic class and their
/// headers.
const CONTROL_BYTES: usize = 128;

/// Creates a socket that sends from any port to `to` with these two ECN bits (RFC 3168). The kernel
/// divides a larger send into datagrams of `segment_bytes` (`UDP_SEGMENT`).
///
/// # Errors
/// The kernel's error for the first option that it rejects.
pub fn sender(to: SocketAddr, segment_bytes: u16, ecn: u8) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    let (level, class) = match to {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    set(&socket, level, class, libc::c_int::from(ecn & 3))?;
    set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, libc::c_int::from(segment_bytes))?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Sets the socket's receive buffer to `bytes`. Values above the host's limit need `CAP_NET_ADMIN`
/// over the network namespace; otherwise the limit applies.
fn set_receive_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    let wanted = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted)
        .or_else(|_| SockRef::from(socket).set_recv_buffer_size(bytes))
}

/// A received datagram, or several of one size that the kernel merged.
#[derive(Debug, Clone, Copy)]
pub struct MergedDatagrams<'a> {
    /// The bytes that fit into the buffer.
    pub bytes: &'a [u8],
    /// The length of the datagrams in bytes, including truncated bytes.
    pub length: usize,
    /// The size of each datagram except the last, which may be shorter.
    pub segment_bytes: usize,
    /// The time at which the network interface passed the datagram to the kernel, in nanoseconds of
    /// `CLOCK_REALTIME`.
    pub at_nanos: u64,
    /// The ECN bits.
    pub ecn: u8,
}

/// A socket that receives [`MergedDatagrams`]s.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    /// The number of bytes to keep of each arrival.
    room: usize,
    bytes: Vec<u8>,
    control: Vec<[u64; CONTROL_BYTES / 8]>,
}

impl Receiver {
    /// Binds to `address` with a receive buffer of about `buffer_bytes`, and keeps at most `room`
    /// bytes of each arrival.
    ///
    /// # Errors
    /// The address is in use or unavailable, or the kernel rejects an option (merging needs Linux
    /// 5.0).
    pub fn bind(address: SocketAddr, buffer_bytes: usize, room: usize) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        set_receive_buffer(&socket, buffer_bytes)?;
        set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        match address {
            SocketAddr::V4(_) => set(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?,
            SocketAddr::V6(_) => {
                set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            }
        }
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        let room = room.min(LARGEST);
        Ok(Receiver {
            socket: socket.into(),
            room,
            bytes: vec![0; BATCH * room],
            control: vec![[0; CONTROL_BYTES / 8]; BATCH],
        })
    }

    /// Receives at most one batch of waiting datagrams and calls `visit` with each. Returns the
    /// number of arrivals; 0 if no datagram waits.
    ///
    /// # Errors
    /// The kernel's error, except `WouldBlock`.
    pub fn receive(&mut self, mut visit: impl FnMut(MergedDatagrams<'_>)) -> io::Result<usize> {
        // SAFETY: both are plain C structures for which all zeroes is valid.
        let (mut vectors, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        for (index, (vector, message)) in vectors.iter_mut().zip(&mut messages).enumerate() {
            vector.iov_base = self.bytes[index * self.room..].as_mut_ptr().cast();
            vector.iov_len = self.room;
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = self.control[index].as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        let flags = libc::MSG_TRUNC as libc::c_uint | libc::MSG_DONTWAIT as libc::c_uint;
        // SAFETY: each header points to a vector and to control space of the stated lengths. All of
        // them live, unmoved and unshared, until the call returns.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        for (index, message) in messages.iter().take(received as usize).enumerate() {
            let length = message.msg_len as usize;
            let control = read_control(&message.msg_hdr);
            visit(MergedDatagrams {
                bytes: &self.bytes[index * self.room..][..length.min(self.room)],
                length,
                segment_bytes: control.segment_bytes.unwrap_or(length),
                at_nanos: control.at_nanos,
                ecn: control.ecn,
            });
        }
        Ok(received as usize)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Default)]
struct Control {
    segment_bytes: Option<usize>,
    at_nanos: u64,
    ecn: u8,
}

fn read_control(header: &libc::msghdr) -> Control {
    let mut control = Control::default();
    // SAFETY: the kernel has written the control space of `header`, which outlives this call, and
    // set its length; the macros stay within it. The data of each type are at least as long as the
    // value read here, and are read unaligned.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(header);
        while !entry.is_null() {
            let data = libc::CMSG_DATA(entry);
            match ((*entry).cmsg_level, (*entry).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let bytes = data.cast::<libc::c_int>().read_unaligned();
                    control.segment_bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let at = data.cast::<libc::timespec>().read_unaligned();
                    control.at_nanos = at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64;
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => control.ecn = data.read() & 3,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = data.cast::<libc::c_int>().read_unaligned();
                    control.ecn = (class & 3) as u8;
                }
                _ => {}
            }
            entry = libc::CMSG_NXTHDR(header, entry);
        }
    }
    control
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::poll::readable;

    fn all(receiver: &mut Receiver) -> Vec<(Vec<u8>, usize, usize, u64, u8)> {
        assert!(readable(&*receiver, Duration::from_secs(5)));
        let mut arrivals = Vec::new();
        let visit = |a: MergedDatagrams<'_>| {
            arrivals.push((a.bytes.to_vec(), a.length, a.segment_bytes, a.at_nanos, a.ecn));
        };
        receiver.receive(visit).unwrap();
        arrivals
    }

    #[test]
    fn segments_arrive_with_their_time_and_marks() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let mut receiver = Receiver::bind(local.parse().unwrap(), 1 << 20, 256).unwrap();
            assert_eq!(receiver.receive(|_| panic!("nothing was sent")).unwrap(), 0);
            let to = receiver.socket.local_addr().unwrap();
            let sent: Vec<u8> = (0..250).collect();
            sender(to, 100, 2).unwrap().send(&sent).unwrap();
            let mut bytes = Vec::new();
            while bytes.len() < sent.len() {
                for (part, length, segment, at, ecn) in all(&mut receiver) {
                    assert_eq!(part.len(), length);
                    assert!(segment == 100 || length < 100, "{segment} of {length}");
                    assert_eq!(ecn, 2);
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                    assert!(now - Duration::from_nanos(at) < Duration::from_secs(5));
                    bytes.extend(part);
                }
            }
            assert_eq!(bytes, sent);
        }
    }

    #[test]
    fn dropped_datagrams_are_counted() {
        let mut receiver = Receiver::bind("127.0.0.1:0".parse().unwrap(), 1 << 20, 8).unwrap();
        let to = receiver.socket.local_addr().unwrap();
        sender(to, 1000, 0).unwrap().send(&[7; 1000]).unwrap();
        let arrivals = all(&mut receiver);
        assert_eq!((arrivals[0].0.as_slice(), arrivals[0].1), ([7; 8].as_slice(), 1000));
    }
}
