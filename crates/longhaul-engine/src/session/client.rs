//! Sessions and data connections at the client.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_core::wire::{Hello, PROTOCOL_VERSION, Service, Welcome};
use rustls::{AlertDescription, ClientConnection, Connection};
use socket2::{Domain, Protocol, Socket, Type};

use super::address::HostPort;
use super::channel::{ControlReceiver, ControlSender, control_over_tls};
use super::config_dir::ConfigDir;
use super::data_dialer::DataDialer;
use super::deadline::{CONNECT_TIMEOUT, DeadlineSocket};
use super::identity::Identity;
use super::known_hosts::KnownHosts;
use super::local_address::{Family, LocalAddress, bind_to};
use super::public_key::PublicKey;
use super::rotation::Learner;
use super::tls;
use crate::HASTE;
use crate::error::{EngineError, HandshakeRefusal, Result};

/// The number of attempts at a crowded server, and the pause between them.
const CROWDED_TRIES: u32 = 3;
const CROWDED_PAUSE: Duration = Duration::from_millis(700 / HASTE);

/// The policy for keys of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPolicy {
    /// Any server except one whose recorded key differs: enough for a test, which sends no secrets.
    RefuseChanged,
    /// Only this host and servers with a recorded key: required for files.
    RequireKnown,
    /// As [`RequireKnown`](Self::RequireKnown), but the key of an unknown server is recorded.
    AcceptNew,
}

/// The options of a session.
#[derive(Debug)]
pub struct ConnectOptions<'a> {
    /// The client's identity.
    pub identity: &'a Identity,
    /// The directory of `known_hosts`.
    pub config: &'a ConfigDir,
    /// The policy for keys of servers.
    pub policy: HostPolicy,
    /// The versions of IP that are tried.
    pub family: Family,
    /// The local address of the control channel and of all data connections and UDP flows.
    pub local: Option<&'a LocalAddress>,
}

/// An open session, seen from the client.
pub struct Session {
    sender: ControlSender,
    receiver: ControlReceiver,
    dialer: DataDialer,
    datagram_bytes: Option<Bytes>,
    rtt: Option<Duration>,
    /// Gets the client's place until it is welcome.
    queued: Option<Queued>,
}

/// A function that gets the client's place in a server's queue, from 1. If it returns false, the
/// client leaves.
pub type Queued = Box<dyn FnMut(u32) -> bool + Send>;

impl Session {
    /// Creates a session over a control channel that is already authenticated, such as that of ssh.
    pub fn new(sender: ControlSender, receiver: ControlReceiver, dialer: DataDialer) -> Self {
        Session { sender, receiver, dialer, datagram_bytes: None, rtt: None, queued: None }
    }

    /// Splits the session into its two halves and the opener of its data connections. The client is
    /// [welcome](Self::welcomed).
    pub fn split(self) -> (ControlSender, ControlReceiver, DataDialer) {
        debug_assert!(self.queued.is_none(), "the server has not answered yet");
        (self.sender, self.receiver, self.dialer)
    }

    /// Waits for the server's welcome unless it has arrived.
    ///
    /// # Errors
    /// The server refuses or is silent, or the user has left the queue.
    pub fn welcomed(mut self) -> Result<Self> {
        if let Some(queued) = self.queued.take() {
            await_welcome(self.sender.peer(), &mut self.receiver, queued)?;
            self.receiver.set_timeout(None)?;
        }
        Ok(self)
    }

    /// Splits the session of a client that sends its request before it is welcome; it must
    /// [wait](await_welcome) later.
    pub fn split_early(self) -> (ControlSender, ControlReceiver, DataDialer, Option<Queued>) {
        (self.sender, self.receiver, self.dialer, self.queued)
    }

    /// Spreads the data connections over `addresses`.
    pub fn spread_over(mut self, addresses: Vec<SocketAddr>) -> Self {
        let local = self.dialer.local.take();
        self.dialer = DataDialer::spread(addresses, self.dialer.secret).bound_to(local);
        self
    }

    /// Binds the data connections and UDP flows to `local`, for a session whose control channel has
    /// another address, such as that of ssh.
    ///
    /// # Errors
    /// The peer has no address of the same version of IP.
    pub fn bound_to(mut self, local: Option<LocalAddress>) -> Result<Self> {
        if let Some(local) = local
            && self.dialer.is_direct()
        {
            let addresses = std::mem::take(&mut self.dialer.addresses);
            self.dialer.addresses = local.matching(self.sender.peer(), addresses)?;
            self.dialer.local = Some(local);
        }
        Ok(self)
    }

    /// Returns the addresses of the data connections.
    pub fn data_addresses(&self) -> &[SocketAddr] {
        self.dialer.addresses()
    }

    /// Returns the name of the peer.
    pub fn peer(&self) -> &str {
        self.sender.peer()
    }

    /// Returns the round-trip time of the control channel; `None` if it does not go over TCP.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns the payload of a UDP datagram that fits the path's MTU, as the control channel knows
    /// it; at most that of a jumbo frame.
    pub fn datagram_bytes(&self) -> Option<Bytes> {
        self.datagram_bytes
    }
}

/// The payload of a frame of 9000 bytes without the headers of IPv4 and UDP.
const JUMBO_PAYLOAD_BYTES: u32 = 8972;

fn datagram_bytes(control: &TcpStream) -> Option<Bytes> {
    let mtu = longhaul_sys::tcp::tcp_info(control).ok()?.path_mtu;
    let ip_header = if control.peer_addr().ok()?.is_ipv4() { 20 } else { 40 };
    let payload = mtu.checked_sub(ip_header + 8)?.min(JUMBO_PAYLOAD_BYTES);
    // A value below IPv4's smallest MTU was not measured.
    (payload >= 500).then(|| Bytes::new(payload.into()))
}

/// Opens a session with `longhaul serve` at `target` for `service`.
///
/// # Errors
/// The host is unknown or refuses, is not longhaul, shows a key that the policy rejects, or does
/// not offer the service.
pub fn connect(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
) -> Result<Session> {
    connect_queued(target, service, options, |_| true)
}

/// As [`connect`], for a client that reports its place in the queue: `queued` gets the place, from
/// 1, when it changes and every few seconds. If it returns false, the client leaves.
///
/// # Errors
/// As [`connect`]; [`EngineError::Interrupted`] if `queued` returns false.
pub fn connect_queued(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
    queued: impl FnMut(u32) -> bool,
) -> Result<Session> {
    let mut session = ask(target, service, options)?;
    await_welcome(session.sender.peer(), &mut session.receiver, queued)?;
    session.receiver.set_timeout(None)?;
    Ok(session)
}

/// As [`connect`], without waiting for the welcome, which saves a round trip: the next messages and
/// connections wait at the server until the client's turn.
///
/// # Errors
/// As [`connect`], except refusals, which [`Session::welcomed`] returns.
pub fn connect_early(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
    queued: Queued,
) -> Result<Session> {
    let session = ask(target, service, options)?;
    Ok(Session { queued: Some(queued), ..session })
}

/// Opens a session and requests `service`. A server that is crowded with silent connections drops
/// them when they are older than a handshake takes, so the request is repeated.
fn ask(target: &HostPort, service: Service, options: &ConnectOptions<'_>) -> Result<Session> {
    for _ in 0..CROWDED_TRIES {
        match ask_once(target, service, options) {
            Err(EngineError::HandshakeRefusal { reason: HandshakeRefusal::Crowded, .. }) => {
                std::thread::sleep(CROWDED_PAUSE);
            }
            outcome => return outcome,
        }
    }
    ask_once(target, service, options)
}

fn ask_once(target: &HostPort, service: Service, options: &ConnectOptions<'_>) -> Result<Session> {
    let session = connect_unasked(target, options)?;
    hello(&session.sender, service)?;
    Ok(session)
}

/// Opens a session without a request, for clients of tests and benchmarks.
///
/// # Errors
/// As [`connect`], except refusals.
#[doc(hidden)]
pub fn connect_unasked(target: &HostPort, options: &ConnectOptions<'_>) -> Result<Session> {
    match connect_once(target, options, FastOpen::Allowed) {
        // Another address of the server may answer.
        Err(EngineError::Handshake { source, .. }) if is_unreachable(&source) => {
            connect_once(target, options, FastOpen::Never)
        }
        done => done,
    }
}

/// The choice to send the first flight of the handshake with the SYN. The server may receive it
/// twice; its second answer has no receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FastOpen {
    Allowed,
    Never,
}

/// Returns whether the error of a first write means that there is no connection.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

fn connect_once(
    target: &HostPort,
    options: &ConnectOptions<'_>,
    fast_open: FastOpen,
) -> Result<Session> {
    let (socket, address) = dial(target, options, fast_open)?;
    let peer = target.to_string();
    let failed = |source| EngineError::Handshake { peer: peer.clone(), source };
    let name = rustls::pki_types::ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(tls::client_config(options.identity), name)
        .map_err(|error| failed(std::io::Error::other(error)))?;
    let mut connection = Connection::Client(connection);
    let mut opening = DeadlineSocket::opened(&socket);
    while connection.is_handshaking() {
        let step = connection.complete_io(&mut opening);
        step.map_err(|error| match turned_away(&error) {
            Some(reason) => EngineError::HandshakeRefusal { peer: peer.clone(), reason },
            None => failed(error),
        })?;
    }
    let key = tls::peer_key(&connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "it presented no key" })?;
    let recorded = check_host(target, key, options)?;
    let secret = tls::export_secret(&mut connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "no keying material" })?;
    let learner = recorded.then(|| Learner {
        config: options.config.clone(),
        host: peer.clone(),
        current: key,
        secret: secret.clone(),
    });
    let datagram_bytes = datagram_bytes(&socket);
    let rtt = longhaul_sys::tcp::tcp_info(&socket).ok().map(|info| info.rtt);
    let (sender, mut receiver) =
        control_over_tls(connection, Arc::new(socket), &peer).map_err(|source| {
            EngineError::System { operation: "share the control channel between threads", source }
        })?;
    receiver.set_learner(learner);
    let local = options.local.cloned();
    let dialer = DataDialer::new(vec![address], secret).bound_to(local);
    Ok(Session { sender, receiver, dialer, datagram_bytes, rtt, queued: None })
}

/// Returns the server's reason for closing the connection, if the `error` of the handshake contains
/// it.
fn turned_away(error: &io::Error) -> Option<HandshakeRefusal> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => return Some(HandshakeRefusal::Closed),
        _ => {}
    }
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(AlertDescription::InternalError) => {
            Some(HandshakeRefusal::Crowded)
        }
        rustls::Error::AlertReceived(AlertDescription::AccessDenied) => {
            Some(HandshakeRefusal::Penalty)
        }
        _ => None,
    }
}

/// Requests `service` on a fresh control channel and waits for the welcome. `queued` gets the
/// client's place and returns whether to wait.
///
/// # Errors
/// The server refuses or is silent, or `queued` returns false.
pub fn greet(
    sender: &ControlSender,
    receiver: &mut ControlReceiver,
    service: Service,
    queued: impl FnMut(u32) -> bool,
) -> Result<()> {
    hello(sender, service)?;
    await_welcome(sender.peer(), receiver, queued)
}

fn hello(sender: &ControlSender, service: Service) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    sender.send(&Hello { protocol: PROTOCOL_VERSION, version, service })
}

/// Waits for the welcome of `peer`. `queued` gets the client's place and returns whether to wait.
pub(crate) fn await_welcome(
    peer: &str,
    receiver: &mut ControlReceiver,
    mut queued: impl FnMut(u32) -> bool,
) -> Result<()> {
    loop {
        match receiver.receive()? {
            Welcome::Ready { host_keys, .. } => {
                host_keys.iter().for_each(|announced| receiver.learn(announced));
                return Ok(());
            }
            Welcome::Queued { place } if queued(place) => {}
            Welcome::Queued { .. } => return Err(EngineError::Interrupted),
            Welcome::Refused { kind, reason } => {
                let peer = peer.to_owned();
                return Err(EngineError::Refused { peer, kind, reason });
            }
        }
    }
}

fn dial(
    target: &HostPort,
    options: &ConnectOptions<'_>,
    fast_open: FastOpen,
) -> Result<(TcpStream, SocketAddr)> {
    let none = "it has no address of the requested family";
    let mut last = std::io::Error::new(std::io::ErrorKind::AddrNotAvailable, none);
    let (family, local) = (options.family, options.local);
    let all = target.resolve()?;
    let all = match local {
        Some(local) => local.matching(&target.host, all)?,
        None => all,
    };
    for address in all.into_iter().filter(|address| family.takes(address)) {
        match dial_address(&address, local, fast_open) {
            Ok(socket) => {
                // Control messages are small, and the peer waits for them.
                let _ = socket.set_nodelay(true);
                return Ok((socket, address));
            }
            Err(error) => last = error,
        }
    }
    Err(EngineError::Connect { address: target.to_string(), source: last })
}

fn dial_address(
    address: &SocketAddr,
    local: Option<&LocalAddress>,
    fast_open: FastOpen,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
    bind_to(&socket, local)?;
    if fast_open == FastOpen::Allowed {
        // Only saves a round trip.
        let _ = longhaul_sys::tcp::connect_with_data(&socket);
    }
    socket.connect_timeout(&(*address).into(), CONNECT_TIMEOUT)?;
    Ok(socket.into())
}

/// Returns whether the server's key is recorded; an error if the policy rejects it.
fn check_host(target: &HostPort, key: PublicKey, options: &ConnectOptions<'_>) -> Result<bool> {
    if key == options.identity.public() {
        return Ok(false);
    }
    let host = target.to_string();
    let mut known = KnownHosts::load(options.config)?;
    if known.keys_of(&host).any(|recorded| recorded == key) {
        return Ok(true);
    }
    match (known.find(&host), options.policy) {
        (Some(recorded), _) => Err(EngineError::KeyChanged {
            host,
            known: recorded.fingerprint(),
            offered: key.fingerprint(),
            file: known.file(),
        }),
        (None, HostPolicy::RefuseChanged) => Ok(false),
        (None, HostPolicy::AcceptNew) => known.add(&host, key).map(|()| true),
        (None, HostPolicy::RequireKnown) => {
            Err(EngineError::KeyUnknown { host, offered: key.fingerprint() })
        }
    }
}
