//! ICMP echo sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::receive::{ReceivedProbe, ReceivedReport, receive, receive_report};
use super::{prepare, send};

/// The size of an ICMP echo header in bytes.
pub const ECHO_HEADER_BYTES: usize = 8;

const REQUEST: u8 = 8; // ICMP_ECHO
const REPLY: u8 = 0; // ICMP_ECHOREPLY
const V6_REQUEST: u8 = 128; // ICMPV6_ECHO_REQUEST
const V6_REPLY: u8 = 129; // ICMPV6_ECHO_REPLY

/// The kind of socket for ICMP echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EchoKind {
    /// An unprivileged ping socket, permitted by `net.ipv4.ping_group_range` (icmp(7)).
    Ping,
    /// A raw socket, which needs `CAP_NET_RAW`.
    Raw,
}

/// A socket that sends echo requests to one host. Its packets are never fragmented.
#[derive(Debug)]
pub struct EchoSocket {
    socket: Socket,
    kind: EchoKind,
    ipv6: bool,
    /// The identifier of a raw socket's requests; the kernel sets it for ping sockets.
    identifier: u16,
}

impl EchoSocket {
    /// Opens a socket for `host`, bound to the address `local` if there is one.
    ///
    /// # Errors
    /// `PermissionDenied` if this process may open neither kind of socket; or the host has no route
    /// to `host`, or not the address `local`.
    pub fn open(host: IpAddr, local: Option<SocketAddr>) -> io::Result<Self> {
        let ipv6 = host.is_ipv6();
        let (domain, protocol) =
            if ipv6 { (Domain::IPV6, Protocol::ICMPV6) } else { (Domain::IPV4, Protocol::ICMPV4) };
        let (socket, kind) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, EchoKind::Ping),
            Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, EchoKind::Raw),
        };
        prepare(&socket, ipv6)?;
        if let Some(local) = local {
            socket.bind(&local.into())?;
        }
        socket.connect(&SocketAddr::new(host, 0).into())?;
        // Raw sockets of one process receive each other's replies.
        let identifier = std::process::id() as u16 ^ ((socket.as_raw_fd() as u16) << 10);
        Ok(EchoSocket { socket, kind, ipv6, identifier })
    }

    /// Returns the kind of the socket.
    pub fn kind(&self) -> EchoKind {
        self.kind
    }

    /// Sends an echo request with `payload` and number `sequence`.
    ///
    /// # Errors
    /// As for [`send`](super::send).
    pub fn send_request(
        &self,
        sequence: u16,
        payload: &[u8],
        hop_limit: Option<u8>,
    ) -> io::Result<()> {
        let mut packet = Vec::with_capacity(ECHO_HEADER_BYTES + payload.len());
        packet.extend([if self.ipv6 { V6_REQUEST } else { REQUEST }, 0, 0, 0]);
        packet.extend(self.identifier.to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend(payload);
        // The kernel computes the checksum for ICMPv6 and for ping sockets.
        if self.kind == EchoKind::Raw && !self.ipv6 {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        send(&self.socket, &packet, hop_limit, self.ipv6).map(drop)
    }

    /// Receives a waiting packet with the sequence number of the echo; `None` if no packet waits. A
    /// packet that is not a reply to this socket has no number.
    ///
    /// # Errors
    /// As for [`receive`](super::receive).
    pub fn receive_reply(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<Option<(Option<u16>, ReceivedProbe)>> {
        let Some(received) = receive(&self.socket, buffer)? else { return Ok(None) };
        let packet = &buffer[..received.bytes];
        // A raw IPv4 socket also returns the IP header; its length is in the low bits.
        let header = match (self.kind, self.ipv6) {
            (EchoKind::Raw, false) => usize::from(packet.first().map_or(0, |b| b & 15)) * 4,
            _ => 0,
        };
        let wanted = if self.ipv6 { V6_REPLY } else { REPLY };
        Ok(Some((self.number(packet.get(header..).unwrap_or_default(), wanted), received)))
    }

    /// Receives a waiting error report with the sequence number of the echo request.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receive_report(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<Option<(Option<u16>, ReceivedReport)>> {
        let Some(reported) = receive_report(&self.socket, buffer)? else { return Ok(None) };
        let wanted = if self.ipv6 { V6_REQUEST } else { REQUEST };
        Ok(Some((self.number(&buffer[..reported.bytes], wanted), reported)))
    }

    fn number(&self, packet: &[u8], wanted: u8) -> Option<u16> {
        let field = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        // A ping socket receives only its own replies.
        let ours = self.kind == EchoKind::Ping || field(4)? == self.identifier;
        (ours && packet.first() == Some(&wanted)).then(|| field(6)).flatten()
    }
}

impl AsFd for EchoSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Computes the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::poll::readable;

    #[test]
    #[ignore = "needs root"]
    fn this_host_echoes_to_who_asked() {
        for host in ["127.0.0.1", "::1"] {
            let (one, other) = (host.parse().unwrap(), host.parse().unwrap());
            let (one, other) =
                (EchoSocket::open(one, None).unwrap(), EchoSocket::open(other, None).unwrap());
            one.send_request(7, b"odd", None).unwrap();
            other.send_request(9, &[1; 1000], Some(3)).unwrap();
            for (socket, number) in [(&one, 7), (&other, 9)] {
                let until = Instant::now() + Duration::from_secs(5);
                let mut buffer = [0; 2000];
                loop {
                    assert!(Instant::now() < until, "no echo of {host}");
                    readable(socket, Duration::from_millis(100));
                    // Requests of other sockets, which a raw socket also receives, have no number.
                    if let Some((Some(found), received)) =
                        socket.receive_reply(&mut buffer).unwrap()
                    {
                        assert_eq!(found, number);
                        assert!(received.at_nanos > 0 && received.hop_limit.is_some());
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // RFC 1071, section 3: the sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0x01]), !0x0100);
    }
}
