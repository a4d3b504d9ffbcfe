//! The probers for hosts without longhaul: ICMP echo and closed ports.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use longhaul_core::result::Prober;
use longhaul_core::wire::{PROBE_BYTES, ProbeHeader, ProbeKind};
use longhaul_sys::poll;
use longhaul_sys::probe::{self, ECHO_HEADER_BYTES, EchoSocket, now_nanos};

use super::probe_socket::{ProbeReply, ProbeSocket, ProbeSpec, ReplyKind, past_reports, reported};
use crate::session::LocalAddress;

/// The largest packet.
const LARGEST: usize = 1 << 16;
/// The first port of traceroute, which no service uses (IANA).
const CLOSED_PORT: u16 = 33_434;
/// Linux reports a closed port once a second, and six times at first (`net.ipv4.icmp_ratelimit`,
/// icmp(7)).
const UNREACHABLE_PACE: Duration = Duration::from_millis(1100);
/// The length of a UDP header.
const UDP_HEADER_BYTES: u32 = 8;

fn ip_header_bytes(address: IpAddr) -> u32 {
    if address.is_ipv4() { 20 } else { 40 }
}

/// Waits until the socket is readable; returns false after the deadline.
fn readable_before(socket: impl AsFd, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        poll::readable(socket, left);
    }
    !left.is_zero()
}

/// Sends ICMP echo requests.
pub(super) struct Echo {
    socket: EchoSocket,
    far: IpAddr,
    number: u16,
    buffer: Vec<u8>,
}

impl Echo {
    /// Opens a socket for echo requests to `far` from `local`.
    ///
    /// # Errors
    /// `PermissionDenied` if this process may not use ICMP sockets.
    pub(super) fn open(far: IpAddr, local: Option<&LocalAddress>) -> io::Result<Self> {
        let local = local.map(LocalAddress::socket_address).transpose()?;
        let socket = EchoSocket::open(far, local)?;
        Ok(Echo { socket, far, number: 0, buffer: vec![0; LARGEST] })
    }

    fn take(&mut self) -> Option<ProbeReply> {
        while let Ok(Some((number, report))) = self.socket.receive_report(&mut self.buffer) {
            if number.is_some() || report.by.is_none() {
                return Some(reported(number.map(u32::from), &report, ReplyKind::Unreachable));
            }
        }
        loop {
            match self.socket.receive_reply(&mut self.buffer) {
                Ok(Some((Some(number), packet))) => {
                    return Some(ProbeReply {
                        number: Some(number.into()),
                        by: Some(self.far),
                        what: ReplyKind::Answer(None),
                        at_ns: packet.at_nanos,
                    });
                }
                // The answer belongs to another process, or the error repeats a report that was
                // read.
                Ok(Some((None, _))) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl ProbeSocket for Echo {
    fn send_probe(&mut self, spec: &ProbeSpec) -> io::Result<()> {
        let headers = ip_header_bytes(self.far) + ECHO_HEADER_BYTES as u32;
        let payload = vec![0; spec.packet_bytes.saturating_sub(headers) as usize];
        past_reports(|| self.socket.send_request(spec.number as u16, &payload, spec.hop_limit))
    }

    fn receive_reply(&mut self, until: Instant) -> Option<ProbeReply> {
        loop {
            let reply = self.take();
            if reply.is_some() || !readable_before(&self.socket, until) {
                return reply;
            }
        }
    }

    fn number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number.into()
    }

    fn prober(&self) -> Prober {
        Prober::Icmp
    }

    fn far(&self) -> IpAddr {
        self.far
    }

    fn least_bytes(&self) -> u32 {
        // With the default payload of ping(8).
        ip_header_bytes(self.far) + ECHO_HEADER_BYTES as u32 + 56
    }
}

/// Sends datagrams to a closed port, which the host reports.
pub(super) struct ClosedPort {
    socket: UdpSocket,
    far: IpAddr,
    number: u32,
    /// Identifies these datagrams in the parts that routers return.
    tag: u64,
    buffer: Vec<u8>,
}

impl ClosedPort {
    /// Opens a socket for datagrams to closed ports of `far` from `local`.
    ///
    /// # Errors
    /// There is no route to the host.
    pub(super) fn open(far: IpAddr, local: Option<&LocalAddress>) -> io::Result<Self> {
        let any: IpAddr = if far.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
        let any = SocketAddr::new(any, 0);
        let socket = UdpSocket::bind(local.map_or(Ok(any), LocalAddress::socket_address)?)?;
        socket.connect((far, CLOSED_PORT))?;
        probe::prepare(&socket, far.is_ipv6())?;
        Ok(ClosedPort { socket, far, number: 0, tag: now_nanos(), buffer: vec![0; LARGEST] })
    }

    /// Returns the local address of the route.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok().map(|address| address.ip())
    }

    fn take(&mut self) -> Option<ProbeReply> {
        while let Ok(Some(report)) = probe::receive_report(&self.socket, &mut self.buffer) {
            let header = ProbeHeader::decode(&self.buffer[..report.bytes]);
            let number = header.filter(|header| header.tag == self.tag).map(|h| h.number);
            if number.is_some() || report.by.is_none() {
                return Some(reported(number, &report, ReplyKind::Answer(None)));
            }
        }
        // Nothing is expected from an open port; a pending error repeats a report that was read.
        while let Ok(Some(_)) = probe::receive(&self.socket, &mut self.buffer) {}
        None
    }
}

impl ProbeSocket for ClosedPort {
    fn send_probe(&mut self, spec: &ProbeSpec) -> io::Result<()> {
        let headers = ip_header_bytes(self.far) + UDP_HEADER_BYTES;
        let payload = spec.packet_bytes.saturating_sub(headers).max(PROBE_BYTES as u32);
        let header = ProbeHeader {
            tag: self.tag,
            kind: ProbeKind::Request,
            train: 0,
            answer_bytes: 0,
            number: spec.number,
            sent_ns: now_nanos(),
            arrived_ns: 0,
            last: 0,
        };
        let mut packet = vec![0; payload as usize];
        packet[..PROBE_BYTES].copy_from_slice(&header.encode());
        let ipv6 = self.far.is_ipv6();
        past_reports(|| probe::send(&self.socket, &packet, spec.hop_limit, ipv6).map(drop))
    }

    fn receive_reply(&mut self, until: Instant) -> Option<ProbeReply> {
        loop {
            let reply = self.take();
            if reply.is_some() || !readable_before(&self.socket, until) {
                return reply;
            }
        }
    }

    fn number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    fn prober(&self) -> Prober {
        Prober::ClosedPort
    }

    fn far(&self) -> IpAddr {
        self.far
    }

    fn pause(&self) -> Duration {
        UNREACHABLE_PACE
    }

    fn least_bytes(&self) -> u32 {
        ip_header_bytes(self.far) + UDP_HEADER_BYTES + PROBE_BYTES as u32
    }
}
