//! Receives probes and ICMP error reports.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use crate::udp;

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedProbe {
    /// The number of bytes in the buffer.
    pub bytes: usize,
    /// The time at which the network interface passed the packet to the kernel, in nanoseconds of
    /// `CLOCK_REALTIME`; 0 if the kernel does not report it.
    pub at_nanos: u64,
    /// The remaining hop limit.
    pub hop_limit: Option<u8>,
}

/// A report of a router, the far host or this kernel about a sent packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedReport {
    /// The number of bytes of the packet's payload in the buffer, for ICMP echo including its
    /// header.
    pub bytes: usize,
    /// The address of the reporter; `None` for this host's kernel.
    pub by: Option<IpAddr>,
    /// The content of the report.
    pub what: Report,
    /// The arrival time, as in [`ReceivedProbe`].
    pub at_nanos: u64,
}

/// The content of a report about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The hop limit was used up at the reporter.
    HopLimit,
    /// The packet exceeds the MTU of the next link, which is given in bytes; 0 if it is not stated.
    TooBig(u32),
    /// The packet reached the host, but no program listens on the port.
    PortClosed,
    /// The packet is administratively prohibited.
    Prohibited,
    /// There is no route to the destination.
    Unreachable,
    /// Another error.
    Other,
}

/// Receives a waiting packet; `None` if no packet waits.
///
/// # Errors
/// The kernel's error. An ICMP error is also returned here, once; the next call continues.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<ReceivedProbe>> {
    let mut received = ReceivedProbe { bytes: 0, at_nanos: 0, hop_limit: None };
    let got = message(socket, buffer, 0, |level, kind, data| match (level, kind) {
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => received.at_nanos = nanos(data),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            received.hop_limit = hop_limit(data);
        }
        _ => {}
    })?;
    Ok(got.map(|bytes| ReceivedProbe { bytes, ..received }))
}

pub(super) fn hop_limit(data: *const u8) -> Option<u8> {
    // SAFETY: the kernel stores an int with this type of control message (ip(7) and ipv6(7)).
    let limit = unsafe { data.cast::<libc::c_int>().read_unaligned() };
    u8::try_from(limit).ok()
}

/// Receives a waiting error report; `None` if no report waits.
///
/// # Errors
/// The kernel's error.
pub fn receive_report(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<ReceivedReport>> {
    let mut reported = ReceivedReport { bytes: 0, by: None, what: Report::Other, at_nanos: 0 };
    let got = message(socket, buffer, libc::MSG_ERRQUEUE, |level, kind, data| {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => reported.at_nanos = nanos(data),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                // SAFETY: the kernel stores this structure here, followed by the address of the
                // reporter (ip_recv_error(), ipv6_recv_error()).
                let (error, by) = unsafe {
                    let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                    (error, offender(data.add(size_of::<libc::sock_extended_err>())))
                };
                reported.what = meaning(&error);
                // The kernel's own errors have no reporter.
                reported.by = by.filter(|_| error.ee_origin != libc::SO_EE_ORIGIN_LOCAL);
            }
            _ => {}
        }
    })?;
    Ok(got.map(|bytes| ReceivedReport { bytes, ..reported }))
}

pub(super) fn meaning(error: &libc::sock_extended_err) -> Report {
    const UNREACHABLE: u8 = 3; // ICMP_DEST_UNREACH
    const EXCEEDED: u8 = 11; // ICMP_TIME_EXCEEDED
    const V6_UNREACHABLE: u8 = 1; // ICMPV6_DEST_UNREACH
    const V6_TOO_BIG: u8 = 2; // ICMPV6_PKT_TOOBIG
    const V6_EXCEEDED: u8 = 3; // ICMPV6_TIME_EXCEED
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (libc::SO_EE_ORIGIN_LOCAL, ..) if error.ee_errno == libc::EMSGSIZE as u32 => {
            Report::TooBig(error.ee_info)
        }
        // Codes of ICMP: 0 in transit, 4 fragmentation needed, 3 port; 9, 10 and 13 prohibited.
        (libc::SO_EE_ORIGIN_ICMP, EXCEEDED, 0) => Report::HopLimit,
        (libc::SO_EE_ORIGIN_ICMP, UNREACHABLE, 4) => Report::TooBig(error.ee_info),
        (libc::SO_EE_ORIGIN_ICMP, UNREACHABLE, 3) => Report::PortClosed,
        (libc::SO_EE_ORIGIN_ICMP, UNREACHABLE, 9 | 10 | 13) => Report::Prohibited,
        (libc::SO_EE_ORIGIN_ICMP, UNREACHABLE, _) => Report::Unreachable,
        // Codes of ICMPv6: 4 port, 1 prohibited.
        (libc::SO_EE_ORIGIN_ICMP6, V6_EXCEEDED, 0) => Report::HopLimit,
        (libc::SO_EE_ORIGIN_ICMP6, V6_TOO_BIG, _) => Report::TooBig(error.ee_info),
        (libc::SO_EE_ORIGIN_ICMP6, V6_UNREACHABLE, 4) => Report::PortClosed,
        (libc::SO_EE_ORIGIN_ICMP6, V6_UNREACHABLE, 1) => Report::Prohibited,
        (libc::SO_EE_ORIGIN_ICMP6, V6_UNREACHABLE, _) => Report::Unreachable,
        _ => Report::Other,
    }
}

/// Returns the address that follows a `sock_extended_err`.
///
/// # Safety
/// `at` points to a `sockaddr_in` or a `sockaddr_in6`, according to its family field.
unsafe fn offender(at: *const u8) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller; both structures start with the family.
    unsafe {
        match libc::c_int::from(at.cast::<libc::sa_family_t>().read_unaligned()) {
            libc::AF_INET => {
                let address = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

pub(super) fn nanos(data: *const u8) -> u64 {
    // SAFETY: the kernel stores a timespec with this type of control message (socket(7)).
    let at = unsafe { data.cast::<libc::timespec>().read_unaligned() };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Does one non-blocking `recvmsg(2)` and passes level, type and data of each control message.
pub(super) fn message(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: libc::c_int,
    control: impl FnMut(libc::c_int, libc::c_int, *const u8),
) -> io::Result<Option<usize>> {
    waiting(udp::message(socket, buffer, None, flags | libc::MSG_DONTWAIT, control))
}

/// Returns `None` for the error that nothing waits.
pub(super) fn waiting<T>(received: io::Result<T>) -> io::Result<Option<T>> {
    match received {
        Ok(received) => Ok(Some(received)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::poll::readable;
    use crate::probe::{now_nanos, prepare, send, send_train};

    fn pair(local: &str) -> (UdpSocket, UdpSocket, bool) {
        let near = UdpSocket::bind(local).unwrap();
        let far = UdpSocket::bind(local).unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        let ipv6 = local.starts_with('[');
        prepare(&near, ipv6).unwrap();
        prepare(&far, ipv6).unwrap();
        (near, far, ipv6)
    }

    #[test]
    fn packets_arrive_with_their_time_and_hop_limit() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (near, far, ipv6) = pair(local);
            let mut buffer = [0; 64];
            assert_eq!(receive(&far, &mut buffer).unwrap(), None);
            let before = now_nanos();
            send(&near, b"hello", Some(7), ipv6).unwrap();
            assert!(readable(&far, Duration::from_secs(5)));
            let received = receive(&far, &mut buffer).unwrap().unwrap();
            assert_eq!((received.bytes, received.hop_limit), (5, Some(7)));
            assert!((before..=now_nanos()).contains(&received.at_nanos));
            assert_eq!(send_train(&near, &[9; 25], 10).unwrap(), 3);
            let mut sizes = Vec::new();
            while sizes.len() < 3 && readable(&far, Duration::from_secs(5)) {
                sizes.extend(receive(&far, &mut buffer).unwrap().map(|received| received.bytes));
            }
            assert_eq!(sizes, [10, 10, 5]);
        }
    }

    #[test]
    fn a_closed_port_is_reported_with_the_packet_it_was_for() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (near, far, ipv6) = pair(local);
            let ip = far.local_addr().unwrap().ip();
            drop(far);
            send(&near, b"anybody there?", None, ipv6).unwrap();
            let mut buffer = [0; 64];
            // A pending error makes the socket readable.
            assert!(readable(&near, Duration::from_secs(5)));
            let reported = receive_report(&near, &mut buffer).unwrap().unwrap();
            assert_eq!((reported.what, reported.by), (Report::PortClosed, Some(ip)));
            assert_eq!(&buffer[..reported.bytes], b"anybody there?");
            assert!(reported.at_nanos > 0);
            assert_eq!(receive_report(&near, &mut buffer).unwrap(), None);
        }
    }

    #[test]
    fn a_packet_larger_than_the_mtu_is_not_fragmented() {
        // The loopback MTU is 65536: no IPv4 packet is larger, but an IPv6 packet may be.
        let (near, _far, ipv6) = pair("[::1]:0");
        let error = send(&near, &[0; 65_500], None, ipv6).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        send(&near, &[0; 65_488], None, ipv6).unwrap();
    }
}
