//! The data connections that this end opens.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::TestPlan;
use longhaul_core::result::End;
use longhaul_engine::session::LocalAddress;
use longhaul_engine::test::set_options;
use longhaul_sys::tcp::socket_memory;
use socket2::{Domain, Protocol, Socket, Type};

use super::accept::Ports;
use super::channel::{Deadline, STEP_LIMIT};
use crate::client::{bind_to, connect_to};
use crate::nuttcp::Parameters;

/// The interval between attempts to connect to a port that is not yet open: the peer opens the
/// ports one after the other, and the first one after its answer.
const RETRY: Duration = Duration::from_millis(10);

/// The sockets of the streams, in their order.
#[derive(Debug)]
pub(super) enum Sockets {
    Tcp(Vec<TcpStream>),
    Udp(Vec<UdpSocket>),
}

/// The data connections of an end.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) sockets: Sockets,
    /// The time of the first connect, if this end connected over TCP.
    pub(super) rtt: Option<Duration>,
}

impl Opened {
    /// Returns the send buffer and the receive buffer of the first socket.
    pub(super) fn windows(&self) -> (u64, u64) {
        let memory = match &self.sockets {
            Sockets::Tcp(streams) => streams.first().and_then(|s| socket_memory(s).ok()),
            Sockets::Udp(sockets) => sockets.first().and_then(|s| socket_memory(s).ok()),
        };
        memory.map_or((0, 0), |memory| (memory.send_buffer_bytes, memory.receive_buffer_bytes))
    }
}

/// The data connections to open.
#[derive(Clone, Copy)]
pub(super) struct Opener<'a> {
    pub(super) parameters: &'a Parameters,
    pub(super) plan: &'a TestPlan,
    pub(super) role: End,
    /// The address of the peer's control connection.
    pub(super) peer: SocketAddr,
    /// The local address of the connections that this end opens.
    pub(super) local: Option<&'a LocalAddress>,
    /// Returns false once the wait is futile.
    pub(super) alive: &'a dyn Fn() -> bool,
}

/// Returns true if the end with this `role` waits for the data connections or datagrams.
pub(super) fn waits(parameters: &Parameters, role: End) -> bool {
    (role == End::Receiver) != parameters.flip
}

impl Opener<'_> {
    /// Connects, or accepts at `ports`.
    pub(super) fn open(&self, ports: Option<Ports>) -> io::Result<Opened> {
        let (sockets, rtt) = match ports {
            Some(Ports::Udp(sockets)) => (Sockets::Udp(sockets), None),
            Some(Ports::Tcp(listeners)) => {
                let options = (self.plan, self.role);
                let streams = Ports::accept(listeners, self.peer.ip(), options, self.alive)?;
                (Sockets::Tcp(streams), None)
            }
            None if self.parameters.udp => (Sockets::Udp(self.each(|at| self.send_to(at))?), None),
            None => {
                let mut rtt = None;
                let streams = self.each(|at| self.connect(at, &mut rtt))?;
                (Sockets::Tcp(streams), rtt)
            }
        };
        Ok(Opened { sockets, rtt })
    }

    fn each<T>(&self, mut open: impl FnMut(SocketAddr) -> io::Result<T>) -> io::Result<Vec<T>> {
        let ports = self.parameters.port..=self.parameters.last_port();
        ports
            .map(|port| {
                let mut address = self.peer;
                address.set_port(port);
                open(address)
            })
            .collect()
    }

    fn connect(&self, address: SocketAddr, rtt: &mut Option<Duration>) -> io::Result<TcpStream> {
        let deadline = Deadline::after(STEP_LIMIT);
        loop {
            let begun = Instant::now();
            let stream = connect_to(address, |socket| {
                set_options(self.plan, self.role, socket, false).map_err(io::Error::other)?;
                bind_to(socket, self.local)
            });
            match stream {
                Ok(stream) => {
                    rtt.get_or_insert_with(|| begun.elapsed());
                    return Ok(stream);
                }
                Err(e) if e.kind() != ErrorKind::ConnectionRefused => return Err(e),
                Err(e) if deadline.is_over() || !(self.alive)() => return Err(e),
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    fn send_to(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        set_options(self.plan, self.role, &socket, false).map_err(io::Error::other)?;
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let any = SocketAddr::new(any, 0);
        let mut local = self.local.map_or(Ok(any), LocalAddress::socket_address)?;
        local.set_port(self.parameters.source_port);
        socket.bind(&local.into())?;
        socket.connect(&address.into())?;
        Ok(socket.into())
    }
}
