//! The opener of the data connections of a session.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

use longhaul_core::plan::LinkAddress;
use longhaul_core::wire::copy::Introduction;
use longhaul_core::wire::{Greeting, GreetingKind, HELLO_BYTES};
use socket2::{Domain, Protocol, Socket, Type};

use super::deadline::{CONNECT_TIMEOUT, DeadlineSocket, OPENING_TIMEOUT, set_timeouts};
use super::local_address::{LocalAddress, scoped};
use super::secret::SessionSecret;
use super::udp;
use crate::error::{EngineError, Result};

/// Creates the data connection with a number by other means than the network.
pub type Tunnel = dyn Fn(u32) -> io::Result<TcpStream> + Send + Sync;

/// Opens the data connections of a session.
#[derive(Clone)]
pub struct DataDialer {
    pub(super) addresses: Vec<SocketAddr>,
    /// True if each connection begins with the next address.
    spread: bool,
    /// Creates connections if no address can be dialed.
    tunnel: Option<Arc<Tunnel>>,
    pub(super) secret: SessionSecret,
    /// The local address, unless a route has another one.
    pub(super) local: Option<LocalAddress>,
    /// True if the acceptor must authenticate, too, before the connection counts.
    mutual: bool,
}

/// The addresses of a data connection, where the routing table does not choose them.
#[derive(Debug, Clone, Default)]
pub(crate) struct DataRoute {
    /// The local address.
    pub local: Option<LinkAddress>,
    /// The remote address, at the port of the session.
    pub remote: Option<LinkAddress>,
}

impl DataDialer {
    /// Connects to the first of `addresses` that answers.
    pub fn new(addresses: Vec<SocketAddr>, secret: SessionSecret) -> Self {
        DataDialer { addresses, spread: false, tunnel: None, secret, local: None, mutual: false }
    }

    /// Spreads connections over all of `addresses`, and skips those that do not answer.
    pub fn spread(addresses: Vec<SocketAddr>, secret: SessionSecret) -> Self {
        DataDialer { spread: true, ..DataDialer::new(addresses, secret) }
    }

    /// Binds the connections to `local`, unless a route has another address.
    pub(super) fn bound_to(self, local: Option<LocalAddress>) -> Self {
        DataDialer { local, ..self }
    }

    /// Connects as the client of both servers asks: to the sink of its session.
    pub(crate) fn introduced(to: &Introduction) -> Self {
        let secret = SessionSecret::from_keying_material(to.keying());
        DataDialer { spread: to.spread, ..DataDialer::new(to.addresses.clone(), secret) }
    }

    /// Returns the addresses and the key by which another host opens the data connections.
    pub(crate) fn introduction(&self) -> Introduction {
        let mut lent = Introduction::new(&self.addresses, self.secret.keying_material());
        lent.spread = self.spread;
        lent
    }

    /// Creates connections by `tunnel`.
    pub fn through(tunnel: Arc<Tunnel>, secret: SessionSecret) -> Self {
        DataDialer { tunnel: Some(tunnel), ..DataDialer::new(Vec::new(), secret) }
    }

    /// Returns the addresses of the connections; none if a tunnel creates them.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns whether a connection's socket is on the path itself.
    pub(crate) fn is_direct(&self) -> bool {
        self.tunnel.is_none()
    }

    /// Returns the local address that the user chose.
    pub(crate) fn local(&self) -> Option<&LocalAddress> {
        self.local.as_ref()
    }

    /// Connects to `address`, which must authenticate before anything is sent to it.
    pub(crate) fn to_be_proved(address: SocketAddr, secret: SessionSecret) -> Self {
        DataDialer { mutual: true, ..DataDialer::new(vec![address], secret) }
    }

    /// Returns the session's secret.
    pub fn secret(&self) -> &SessionSecret {
        &self.secret
    }

    /// Opens data connection `stream`. `prepare` sets the options that must be in place before
    /// the connection is made: buffers, congestion control, MSS.
    ///
    /// # Errors
    /// No address answers, or an option is refused.
    pub fn open(
        &self,
        stream: u32,
        prepare: impl Fn(&Socket) -> io::Result<()>,
    ) -> Result<TcpStream> {
        if let Some(tunnel) = &self.tunnel {
            return tunnel(stream)
                .and_then(|mut socket| {
                    socket.write_all(&self.secret.hello(stream))?;
                    Ok(socket)
                })
                .map_err(|source| EngineError::DataConnect {
                    stream,
                    address: "the tunnel".to_owned(),
                    source,
                });
        }
        self.open_tcp(stream, Protocol::TCP, &DataRoute::default(), prepare)
    }

    /// As [`open`](Self::open), over TCP or MPTCP and by a given route.
    pub(crate) fn open_tcp(
        &self,
        stream: u32,
        protocol: Protocol,
        route: &DataRoute,
        prepare: impl Fn(&Socket) -> io::Result<()>,
    ) -> Result<TcpStream> {
        self.first_that_answers(stream, route, |local, address| {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
            prepare(&socket)?;
            bind(&socket, local)?;
            socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
            let mut socket = TcpStream::from(socket);
            set_timeouts(&socket, Some(OPENING_TIMEOUT))?;
            socket.write_all(&self.secret.hello(stream))?;
            if self.mutual {
                await_proof(DeadlineSocket::opened(&socket), &self.secret, stream)?;
            }
            set_timeouts(&socket, None)?;
            Ok(socket)
        })
    }

    /// Opens UDP flow `stream` by a given route; see [`super::udp`].
    pub(crate) fn open_flow(
        &self,
        stream: u32,
        route: &DataRoute,
        prepare: impl Fn(&Socket) -> io::Result<()>,
    ) -> Result<UdpSocket> {
        self.first_that_answers(stream, route, |local, address| {
            let socket =
                Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            prepare(&socket)?;
            bind(&socket, local)?;
            socket.connect(&address.into())?;
            let socket = UdpSocket::from(socket);
            udp::open_flow(&socket, &self.secret, stream)?;
            Ok(socket)
        })
    }

    fn first_that_answers<T>(
        &self,
        stream: u32,
        route: &DataRoute,
        attempt: impl Fn(Option<SocketAddr>, SocketAddr) -> io::Result<T>,
    ) -> Result<T> {
        let failed = |address: SocketAddr, source| {
            let address = address.to_string();
            EngineError::DataConnect { stream, address, source }
        };
        let mut failure = None;
        let first = if self.spread { stream as usize } else { 0 };
        for turn in 0..self.addresses.len() {
            let mut address = self.addresses[(first + turn) % self.addresses.len()];
            if let Some(remote) = &route.remote {
                address = scoped(remote, address.port()).map_err(|e| failed(address, e))?;
            }
            let local = route.local.as_ref().or(self.local.as_ref().map(LocalAddress::link));
            let local = local.map(|local| scoped(local, 0)).transpose();
            match local.and_then(|local| attempt(local, address)) {
                Ok(opened) => return Ok(opened),
                Err(source) => failure = Some(failed(address, source)),
            }
        }
        Err(failure.unwrap_or_else(|| EngineError::DataConnect {
            stream,
            address: "the peer".to_owned(),
            source: io::ErrorKind::AddrNotAvailable.into(),
        }))
    }
}

/// Waits for the greeting by which the acceptor of connection `stream` authenticates.
fn await_proof(
    mut socket: DeadlineSocket<'_>,
    secret: &SessionSecret,
    stream: u32,
) -> io::Result<()> {
    let mut answer = [0; HELLO_BYTES];
    socket.read_exact(&mut answer)?;
    let proved = Greeting::decode(&answer).is_some_and(|(greeting, mac)| {
        greeting.kind == GreetingKind::Accept
            && greeting.stream == stream
            && secret.verify_greeting(&greeting, &mac)
    });
    if proved { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn bind(socket: &Socket, local: Option<SocketAddr>) -> io::Result<()> {
    local.map_or(Ok(()), |local| socket.bind(&local.into()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn another_host_spreads_connections_only_on_demand() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses =
            listeners.each_ref().map(|listener| listener.local_addr().unwrap()).to_vec();
        let secret = || SessionSecret::from_keying_material(&[1; 32]);
        for (dialer, used) in [
            (DataDialer::new(addresses.clone(), secret()), 1),
            (DataDialer::spread(addresses.clone(), secret()), 2),
        ] {
            let other = DataDialer::introduced(&dialer.introduction());
            let sockets: Vec<_> = (0..4).map(|at| other.open(at, |_| Ok(())).unwrap()).collect();
            let peers = sockets.iter().map(|socket| socket.peer_addr().unwrap());
            assert_eq!(peers.collect::<std::collections::HashSet<_>>().len(), used);
        }
    }

    #[test]
    fn an_acceptor_cannot_extend_the_time_of_its_proof() {
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let proof = secret.greeting(GreetingKind::Accept, 3, [0; 7]);
        let dribble = thread::spawn(move || {
            for byte in proof {
                if far.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        // The 64 bytes of the proof take 1.3 s.
        let deadline = Instant::now() + Duration::from_millis(200);
        let socket = DeadlineSocket::at(&near, deadline);
        let error = await_proof(socket, &secret, 3).unwrap_err();
        let late = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(late.contains(&error.kind()), "{error}");
        drop(near);
        dribble.join().unwrap();
    }
}
