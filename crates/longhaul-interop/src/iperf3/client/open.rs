//! The data connections and the first datagrams of a client.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Direction, Protocol};
use longhaul_core::result::End;
use longhaul_engine::EngineError;
use longhaul_engine::session::LocalAddress;
use longhaul_engine::test::set_options;
use longhaul_sys::poll;
use socket2::{Domain, Socket, Type};

use super::Session;
use crate::client::{bind_to, connect_to};
use crate::error::{InteropError, PeerName, PeerOption, Result, Step};
use crate::iperf3::direction::{Sockets, TestDirection};
use crate::iperf3::state::State;

/// The time in which a server has to answer the first datagram of a flow.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// The first datagram of a flow, from the client.
const HELLO: [u8; 4] = [0x39, 0x38, 0x37, 0x36];
/// The longest wait for the first data of the second half of a bidirectional test.
const FIRST_DATA: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Opens all streams, one after the other, because the server numbers them as they arrive.
    pub(super) fn open(&mut self) -> Result<Vec<(TestDirection, Sockets)>> {
        let mut halves = Vec::new();
        for half in TestDirection::all(self.plan.direction, true) {
            let count = self.plan.streams;
            let sockets = match self.plan.protocol {
                Protocol::Udp => {
                    let flows = (0..count).map(|_| self.open_udp(half.role)).collect();
                    Sockets::Udp(flows_or(flows, half, &self.control.peer)?)
                }
                Protocol::Tcp | Protocol::Mptcp => Sockets::Tcp(
                    (0..count).map(|n| self.open_tcp(half.role, n)).collect::<Result<_>>()?,
                ),
            };
            halves.push((half, sockets));
        }
        Ok(halves)
    }

    fn open_tcp(&self, role: End, number: u32) -> Result<std::net::TcpStream> {
        let address = self.server.to_string();
        let failed = |source| EngineError::DataConnect { stream: number, address, source };
        let stream = connect_to(self.server, |socket| {
            set_options(self.plan, role, socket, false).map_err(io::Error::other)?;
            bind_to(socket, self.local)
        });
        let stream = stream.and_then(|mut stream| {
            io::Write::write_all(&mut stream, &self.cookie)?;
            Ok(stream)
        });
        Ok(stream.map_err(failed)?)
    }

    fn open_udp(&self, role: End) -> Result<UdpSocket> {
        let host = |source| InteropError::Host { operation: "open a UDP socket", source };
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let domain = Domain::for_address(self.server);
        let socket =
            Socket::new(domain, Type::DGRAM, Some(socket2::Protocol::UDP)).map_err(host)?;
        set_options(self.plan, role, &socket, false)?;
        let any = SocketAddr::new(any, 0);
        let local = self.local.map_or(Ok(any), LocalAddress::socket_address);
        socket.bind(&local.map_err(host)?.into()).map_err(host)?;
        socket.connect(&self.server.into()).map_err(host)?;
        let socket = UdpSocket::from(socket);
        socket.send(&HELLO).map_err(host)?;
        self.await_answer(&socket)?;
        Ok(socket)
    }

    /// Waits for the answer to the first datagram. Versions differ in its value, and a server that
    /// sends may be faster with its data.
    fn await_answer(&self, socket: &UdpSocket) -> Result<()> {
        let until = Instant::now() + HELLO_LIMIT;
        let mut bytes = [0; 2048];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = left.max(Duration::from_millis(1));
            let received =
                socket.set_read_timeout(Some(timeout)).and_then(|()| socket.recv(&mut bytes));
            match received {
                Ok(4) => return Ok(()),
                Ok(_) if !left.is_zero() => {}
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    return Err(self.no_answer(Some(e)));
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => return Err(self.no_answer(None)),
            }
        }
    }

    fn no_answer(&self, source: Option<io::Error>) -> InteropError {
        let (peer, during) = (self.control.peer.clone(), Step::FirstDatagram);
        match source {
            Some(_) => InteropError::Closed { peer, during, source },
            None => InteropError::Silent { peer, during, limit: HELLO_LIMIT },
        }
    }

    /// Checks that the server has accepted the second half of the streams: a version before 3.7
    /// refuses them as those of another client.
    pub(super) fn check_both_directions(&self, halves: &[(TestDirection, Sockets)]) -> Result<()> {
        let late = halves.iter().filter(|(half, _)| half.reverse);
        let late = late.filter_map(|(_, sockets)| match sockets {
            Sockets::Tcp(streams) => streams.last(),
            Sockets::Udp(_) => None,
        });
        if self.plan.direction == Direction::Both && late.into_iter().any(is_refused) {
            return Err(both_directions(&self.control.peer));
        }
        Ok(())
    }
}

/// Returns the flows of a direction. A version before 3.7 answers the first half of a bidirectional
/// test only.
fn flows_or(
    flows: Result<Vec<UdpSocket>>,
    half: TestDirection,
    peer: &PeerName,
) -> Result<Vec<UdpSocket>> {
    flows.map_err(|error| match error {
        InteropError::Silent { during: Step::FirstDatagram, .. }
        | InteropError::Closed { during: Step::FirstDatagram, .. }
            if half.reverse =>
        {
            both_directions(peer)
        }
        error => error,
    })
}

fn both_directions(peer: &PeerName) -> InteropError {
    let (peer, wanted) = (peer.clone(), PeerOption::BothDirections);
    InteropError::Unsupported { peer, wanted, since: Some("3.7") }
}

/// Waits for the first data of a stream, and returns whether the server closes it instead: a busy
/// server sends one byte.
fn is_refused(stream: &std::net::TcpStream) -> bool {
    let until = Instant::now() + FIRST_DATA;
    let mut bytes = [0; 2];
    while Instant::now() < until {
        poll::readable(stream, until.saturating_duration_since(Instant::now()));
        let _ = stream.set_nonblocking(true);
        let peeked = stream.peek(&mut bytes);
        let _ = stream.set_nonblocking(false);
        match peeked {
            Ok(1) if bytes[0] == State::AccessDenied.byte() => return true,
            Ok(1) => thread::sleep(Duration::from_millis(5)),
            Ok(2) => return false,
            Ok(_) => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
    }
    false
}
