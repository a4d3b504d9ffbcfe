//! Datagrams with the kernel's times of departure and arrival (`SO_TIMESTAMPING`), and with their
//! traffic class and hop limit.
//!
//! Constants are those of linux/net_tstamp.h and linux/errqueue.h; the kernel describes the option in
//! Documentation/networking/timestamping.rst.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockAddr, SockRef};

use super::hardware::HardwareTime;
use super::receive::{hop_limit, meaning, message, waiting};
use super::{ReceivedProbe, Report, now_nanos};
use crate::socket::set;
use crate::udp::{destination, force_receive_buffer, message as receive_message};

/// The receive buffer in bytes: some 2000 packets of 100 bytes with the kernel's overhead, so that a
/// program that waits for a processor loses none.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The kernel's times of arrival.
const KERNEL_STAMPS: u32 = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;

/// Space for a local address, a hop limit, a traffic class and time stamp flags, with their headers.
const CONTROL_WORDS: usize = 16;

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped {
    /// The bytes, the time of arrival and the hop limit.
    pub received: ReceivedProbe,
    /// The source address.
    pub from: SocketAddr,
    /// The local destination address.
    pub to: Option<IpAddr>,
    /// The traffic class: the DSCP in the upper six bits, ECN in the lower two.
    pub class: u8,
    /// The time of the network interface, if it stamped the datagram.
    pub hardware: Option<HardwareTime>,
}

/// The header fields of a datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The destination; `None` on a connected socket.
    pub to: Option<SocketAddr>,
    /// The local source address; `None` leaves it to the kernel.
    pub from: Option<IpAddr>,
    /// True for an IPv6 socket.
    pub ipv6: bool,
    /// The traffic class.
    pub class: u8,
    /// True to receive the time of departure with [`receive_note`].
    pub stamp: bool,
    /// True to receive the time of the network interface instead of the kernel's, if the interface
    /// stamps the datagram. The socket needs [`prepare_hardware_stamps`].
    pub hardware: bool,
}

/// A note of the kernel about a sent datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The kernel passed the datagram to the network interface. The buffer has the frame; the
    /// payload is at its end.
    Departed {
        /// The number of bytes in the buffer.
        bytes: usize,
        /// The kernel's time in nanoseconds of `CLOCK_REALTIME`; 0 if it has none.
        at_nanos: u64,
        /// The time of the network interface, if it stamped the datagram.
        hardware: Option<HardwareTime>,
    },
    /// The datagram did not arrive.
    Failed(Report),
}

/// Prepares `socket` for [`receive_stamped`], [`send_stamped`] and [`receive_note`]: arrivals have
/// their time, hop limit, traffic class and destination; departures have a hop limit of 255.
///
/// # Errors
/// The kernel rejects an option.
pub fn prepare_stamped(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let options: &[_] = if ipv6 {
        &[
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        ]
    } else {
        &[
            (libc::IPPROTO_IP, libc::IP_RECVERR),
            (libc::IPPROTO_IP, libc::IP_RECVTTL),
            (libc::IPPROTO_IP, libc::IP_RECVTOS),
            (libc::IPPROTO_IP, libc::IP_PKTINFO),
        ]
    };
    for (level, name) in options {
        set(&socket, *level, *name, 1)?;
    }
    let socket_ref = SockRef::from(&socket);
    // Without the right to exceed the host's limit, the limit applies.
    force_receive_buffer(&socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| socket_ref.set_recv_buffer_size(RECEIVE_BUFFER_BYTES))?;
    // RFC 5357, section 4.2.1: packets leave with a hop limit of 255.
    if ipv6 {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 255)?;
    } else {
        set(&socket, libc::IPPROTO_IP, libc::IP_TTL, 255)?;
    }
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, KERNEL_STAMPS as libc::c_int)
}

/// Adds the times of network interfaces to a socket after [`prepare_stamped`], where an interface
/// has them.
///
/// # Errors
/// The kernel rejects the option.
pub fn prepare_hardware_stamps(socket: impl AsFd) -> io::Result<()> {
    // With OPT_CMSG, the note of a departure has the interface.
    let stamps = KERNEL_STAMPS
        | libc::SOF_TIMESTAMPING_RX_HARDWARE
        | libc::SOF_TIMESTAMPING_RAW_HARDWARE
        | libc::SOF_TIMESTAMPING_OPT_CMSG;
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamps as libc::c_int)
}

/// Receives a waiting datagram; `None` if no datagram waits.
///
/// # Errors
/// The kernel's error. An ICMP error is also returned here, once; the next call continues.
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Stamped>> {
    let mut received = ReceivedProbe { bytes: 0, at_nanos: 0, hop_limit: None };
    let (mut to, mut class) = (None, 0);
    let mut stamps = Stamps::default();
    // SAFETY: the closure returns the length that the kernel wrote, or fails.
    let got = unsafe {
        SockAddr::try_init(|storage, length| {
            let flags = libc::MSG_DONTWAIT;
            let name = Some((storage, length));
            receive_message(&socket, buffer, name, flags, |level, kind, data| {
                match (level, kind) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => stamps.read_times(data),
                    (libc::IPPROTO_IP, libc::IP_TTL)
                    | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                        received.hop_limit = hop_limit(data);
                    }
                    // One byte (ip_cmsg_recv_tos()).
                    (libc::IPPROTO_IP, libc::IP_TOS) => class = data.read(),
                    // An int (ip6_datagram_recv_specific_ctl()).
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        class = data.cast::<libc::c_int>().read_unaligned() as u8;
                    }
                    _ => {
                        to = destination(level, kind, data).or(to);
                        stamps.read_interface(level, kind, data);
                    }
                }
            })
        })
    };
    let Some((bytes, from)) = waiting(got)? else { return Ok(None) };
    let from = from.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    // The kernel turns on its timestamps asynchronously, so the first datagrams can lack one.
    let at_nanos = if stamps.kernel == 0 { now_nanos() } else { stamps.kernel };
    let received = ReceivedProbe { bytes, at_nanos, ..received };
    Ok(Some(Stamped { received, from, to, class, hardware: stamps.hardware() }))
}

/// Receives a waiting note about a sent datagram; `None` if no note waits.
///
/// # Errors
/// The kernel's error.
pub fn receive_note(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Note>> {
    let (mut departed, mut failed) = (false, Report::Other);
    let mut stamps = Stamps::default();
    let got = message(socket, buffer, libc::MSG_ERRQUEUE, |level, kind, data| {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                departed = true;
                // SAFETY: the closure gets the data of a message that the kernel wrote.
                unsafe { stamps.read_times(data) };
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                // SAFETY: the kernel stores this structure here (ip_recv_error(),
                // ipv6_recv_error()).
                let error = unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
                if error.ee_origin != libc::SO_EE_ORIGIN_TIMESTAMPING {
                    (departed, failed) = (false, meaning(&error));
                }
            }
            // SAFETY: as above.
            _ => unsafe { stamps.read_interface(level, kind, data) },
        }
    })?;
    Ok(got.map(|bytes| {
        if departed {
            Note::Departed { bytes, at_nanos: stamps.kernel, hardware: stamps.hardware() }
        } else {
            Note::Failed(failed)
        }
    }))
}

/// The times and the interface in the control messages of a datagram or a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stamps {
    kernel: u64,
    raw: u64,
    interface: u32,
}

impl Stamps {
    /// # Safety
    /// `data` is that of a control message `SCM_TIMESTAMPING`.
    unsafe fn read_times(&mut self, data: *const u8) {
        // SAFETY: the kernel stores struct scm_timestamping: the kernel's time, an unused one, and the
        // interface's time.
        let times = unsafe { data.cast::<[libc::timespec; 3]>().read_unaligned() };
        let nanos = |at: libc::timespec| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64;
        (self.kernel, self.raw) = (nanos(times[0]), nanos(times[2]));
    }

    /// # Safety
    /// `data` is that of a control message of this level and kind.
    unsafe fn read_interface(&mut self, level: libc::c_int, kind: libc::c_int, data: *const u8) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the kernel stores this structure here (ip(7)).
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                self.interface = info.ipi_ifindex as u32;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: the kernel stores this structure here (ipv6(7)).
                let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                // An int in some C libraries, unsigned in others.
                #[allow(clippy::unnecessary_cast)]
                let interface = info.ipi6_ifindex as u32;
                self.interface = interface;
            }
            _ => {}
        }
    }

    fn hardware(self) -> Option<HardwareTime> {
        let Stamps { raw, interface, .. } = self;
        (raw != 0).then_some(HardwareTime { interface, nanos: raw })
    }
}

/// Sends a datagram.
///
/// # Errors
/// The kernel's error: `ENOBUFS` if the interface's queue is full. Each ICMP error received since
/// the previous call is also returned once; the datagram is not sent then.
pub fn send_stamped(socket: impl AsFd, bytes: &[u8], header: &Header) -> io::Result<usize> {
    let name = header.to.map(SockAddr::from);
    let mut space = [0u64; CONTROL_WORDS];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a C structure for which all zeroes is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    if let Some(name) = &name {
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = name.len();
    }
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    let length = put_header(&mut space, header);
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = length as _;
    // SAFETY: the message points to the name, the vector and the control space with their lengths;
    // the kernel only reads them during the call.
    let sent = unsafe {
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Writes the control messages of `header` and returns their length.
fn put_header(space: &mut [u64; CONTROL_WORDS], header: &Header) -> usize {
    let mut at = 0;
    let class = libc::c_int::from(header.class);
    if header.ipv6 {
        put(space, &mut at, (libc::IPPROTO_IPV6, libc::IPV6_TCLASS), class);
    } else {
        put(space, &mut at, (libc::IPPROTO_IP, libc::IP_TOS), class);
    }
    match header.from {
        Some(IpAddr::V4(ip)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from(ip).to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            put(space, &mut at, (libc::IPPROTO_IP, libc::IP_PKTINFO), info);
        }
        Some(IpAddr::V6(ip)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            };
            put(space, &mut at, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
        }
        None => {}
    }
    if header.stamp {
        // With both, the kernel gives its own time only if the interface gives none.
        let hardware = if header.hardware { libc::SOF_TIMESTAMPING_TX_HARDWARE } else { 0 };
        let stamp = libc::SOF_TIMESTAMPING_TX_SOFTWARE | hardware;
        put(space, &mut at, (libc::SOL_SOCKET, libc::SO_TIMESTAMPING), stamp);
    }
    at
}

/// Appends a control message at byte `at`.
fn put<T>(
    space: &mut [u64; CONTROL_WORDS],
    at: &mut usize,
    (level, kind): (libc::c_int, libc::c_int),
    data: T,
) {
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
    let (whole, length) = unsafe {
        (libc::CMSG_SPACE(size_of::<T>() as u32) as usize, libc::CMSG_LEN(size_of::<T>() as u32))
    };
    assert!(*at + whole <= size_of::<[u64; CONTROL_WORDS]>(), "the control space is too small");
    // SAFETY: the header and the data are within the space, as asserted. `at` is a sum of
    // CMSG_SPACE, so the header is aligned.
    unsafe {
        let entry = space.as_mut_ptr().cast::<u8>().add(*at).cast::<libc::cmsghdr>();
        (*entry).cmsg_level = level;
        (*entry).cmsg_type = kind;
        (*entry).cmsg_len = length as _;
        libc::CMSG_DATA(entry).cast::<T>().write_unaligned(data);
    }
    *at += whole;
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::poll::readable;

    fn socket(local: &str) -> UdpSocket {
        let socket = UdpSocket::bind(local).unwrap();
        prepare_stamped(&socket, local.starts_with('[')).unwrap();
        socket
    }

    fn note(socket: &UdpSocket, buffer: &mut [u8]) -> Note {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            readable(socket, Duration::from_millis(100));
            if let Some(note) = receive_note(socket, buffer).unwrap() {
                return note;
            }
        }
        panic!("no note came");
    }

    #[test]
    fn a_datagram_has_its_header_fields_and_both_times() {
        let families = [("0.0.0.0:0", "127.0.0.1", "127.0.0.2"), ("[::]:0", "::1", "::1")];
        for ((any, near, far), hardware) in
            families.into_iter().flat_map(|f| [(f, false), (f, true)])
        {
            let (one, other) = (socket(any), socket(any));
            if hardware {
                prepare_hardware_stamps(&one).unwrap();
                prepare_hardware_stamps(&other).unwrap();
            }
            let (near, far): (IpAddr, IpAddr) = (near.parse().unwrap(), far.parse().unwrap());
            let to = SocketAddr::new(far, other.local_addr().unwrap().port());
            let (ipv6, to, from) = (near.is_ipv6(), Some(to), Some(near));
            // Loopback has no clock, so that the times are the kernel's.
            let header = Header { to, from, ipv6, class: 0xb9, stamp: true, hardware };
            let before = now_nanos();
            assert_eq!(send_stamped(&one, b"hello", &header).unwrap(), 5);
            let mut buffer = [0; 256];
            let Note::Departed { bytes, at_nanos, hardware: None } = note(&one, &mut buffer) else {
                panic!("the datagram failed");
            };
            assert!(buffer[..bytes].ends_with(b"hello") && at_nanos >= before);
            assert!(readable(&other, Duration::from_secs(5)));
            let found = receive_stamped(&other, &mut buffer).unwrap().unwrap();
            assert_eq!((&buffer[..found.received.bytes], found.class), (&b"hello"[..], 0xb9));
            assert_eq!((found.from.ip(), found.to), (near, Some(far)));
            assert_eq!(found.hardware, None);
            assert_eq!(found.received.hop_limit, Some(255));
            let now = now_nanos();
            let at = found.received.at_nanos;
            assert!((before..=now).contains(&at), "{before} {at} {now} {hardware}");
            assert_eq!(receive_stamped(&other, &mut buffer).unwrap(), None);
            assert_eq!(receive_note(&one, &mut buffer).unwrap(), None);
        }
    }

    #[test]
    fn control_messages_have_the_times_of_the_kernel_and_of_the_interface() {
        let at = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        // SAFETY: an `in_pktinfo` of zeros is valid.
        let mut info: libc::in_pktinfo = unsafe { zeroed() };
        info.ipi_ifindex = 3;
        for (times, kernel, hardware) in [
            ([at(7, 5), at(0, 0), at(0, 0)], 7_000_000_005, None),
            ([at(0, 0), at(9, 9), at(2, 1)], 0, Some(2_000_000_001)),
            ([at(7, 5), at(0, 0), at(2, 1)], 7_000_000_005, Some(2_000_000_001)),
        ] {
            let mut stamps = Stamps::default();
            // SAFETY: both structures are those that the functions expect.
            unsafe {
                stamps.read_times((&raw const times).cast());
                let kind = libc::IP_PKTINFO;
                stamps.read_interface(libc::IPPROTO_IP, kind, (&raw const info).cast());
            }
            assert_eq!(stamps.kernel, kernel);
            let expected = hardware.map(|nanos| HardwareTime { interface: 3, nanos });
            assert_eq!(stamps.hardware(), expected);
        }
    }

    #[test]
    fn a_closed_port_is_a_note_and_no_time() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (one, other) = (socket(local), socket(local));
            one.connect(other.local_addr().unwrap()).unwrap();
            drop(other);
            let header = Header { ipv6: local.starts_with('['), ..Header::default() };
            send_stamped(&one, b"hello", &header).unwrap();
            assert_eq!(note(&one, &mut [0; 256]), Note::Failed(Report::PortClosed));
        }
    }
}
