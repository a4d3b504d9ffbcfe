use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_core::wire::{Hello, PROTOCOL_VERSION, Service, Welcome};
use rustls::{ClientConnection, Connection};
use socket2::{Domain, Protocol, Socket, Type};

use super::address::HostPort;
use super::channel::{ControlReceiver, ControlSender, control_over_tls};
use super::deadline::{OPENING_TIMEOUT, Until};
use super::identity::{ConfigDir, Identity, PublicKey};
use super::secret::SessionSecret;
use super::tls;
use super::trust::KnownHosts;
use crate::error::{EngineError, Result};

/// How long a connection may take to open: three SYNs over the longest path that matters.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Exporter label (RFC 8446, section 7.5) of the session's secret.
pub(super) const EXPORTER_LABEL: &[u8] = b"EXPORTER-longhaul-session-1";

/// Which servers are talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPolicy {
    /// Any but one whose recorded key differs: enough for a test, which sends nothing secret.
    RefuseChanged,
    /// Only this host itself and servers whose key is recorded: needed where files move.
    RequireKnown,
    /// As [`RequireKnown`](Self::RequireKnown), but an unknown server's key is recorded.
    AcceptNew,
}

/// How to open a session.
#[derive(Debug)]
pub struct ConnectOptions<'a> {
    /// Who we are.
    pub identity: &'a Identity,
    /// Where known hosts are recorded.
    pub config: &'a ConfigDir,
    /// Which servers are talked to.
    pub policy: HostPolicy,
}

/// An open session, seen from the client.
pub struct Session {
    sender: ControlSender,
    receiver: ControlReceiver,
    dialer: DataDialer,
}

impl Session {
    /// A session over a control channel that is already authenticated, such as ssh's.
    pub fn new(sender: ControlSender, receiver: ControlReceiver, dialer: DataDialer) -> Self {
        Session { sender, receiver, dialer }
    }

    /// Its two halves and the opener of its data connections.
    pub fn split(self) -> (ControlSender, ControlReceiver, DataDialer) {
        (self.sender, self.receiver, self.dialer)
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &str {
        self.sender.peer()
    }
}

/// Opens a session with `longhaul serve` at `target` for `service`.
///
/// # Errors
/// The host is unknown, refuses, is not longhaul, shows a key that the policy does not allow, or
/// does not offer the service.
pub fn connect(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
) -> Result<Session> {
    connect_queued(target, service, options, |_| true)
}

/// The same for a client that says how long the queue is: `queued` is called with its place, from
/// 1, when that changes and every few seconds; when it says no, the client leaves.
///
/// # Errors
/// As [`connect`]; [`EngineError::Interrupted`] when `queued` says no.
pub fn connect_queued(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
    queued: impl FnMut(u32) -> bool,
) -> Result<Session> {
    let (socket, address) = dial(target)?;
    let peer = target.to_string();
    let failed = |source| EngineError::Handshake { peer: peer.clone(), source };
    let name = rustls::pki_types::ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(tls::client_config(options.identity), name)
        .map_err(|error| failed(std::io::Error::other(error)))?;
    let mut connection = Connection::Client(connection);
    let mut opening = Until::opened(&socket);
    while connection.is_handshaking() {
        connection.complete_io(&mut opening).map_err(failed)?;
    }
    let key = tls::peer_key(&connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "it showed no key" })?;
    check_host(target, key, options)?;
    let secret = export_secret(&mut connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "no keying material" })?;
    let (sender, mut receiver) = control_over_tls(connection, socket, &peer).map_err(|source| {
        EngineError::System { operation: "share the control channel between threads", source }
    })?;
    greet(&sender, &mut receiver, service, queued)?;
    receiver.set_timeout(None)?;
    Ok(Session { sender, receiver, dialer: DataDialer::new(vec![address], secret) })
}

/// Asks for `service` on a fresh control channel and waits for the welcome; `queued` is told the
/// client's place, and says whether to go on.
///
/// # Errors
/// The server refuses, or is silent, or `queued` says no.
pub fn greet(
    sender: &ControlSender,
    receiver: &mut ControlReceiver,
    service: Service,
    mut queued: impl FnMut(u32) -> bool,
) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    sender.send(&Hello { protocol: PROTOCOL_VERSION, version, service })?;
    loop {
        match receiver.receive()? {
            Welcome::Ready { .. } => return Ok(()),
            Welcome::Queued { place } if queued(place) => {}
            Welcome::Queued { .. } => return Err(EngineError::Interrupted),
            Welcome::Refused { kind, reason } => {
                let peer = sender.peer().to_owned();
                return Err(EngineError::Refused { peer, kind, reason });
            }
        }
    }
}

fn dial(target: &HostPort) -> Result<(TcpStream, SocketAddr)> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in target.resolve()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(socket) => {
                // Control messages are small and awaited.
                let _ = socket.set_nodelay(true);
                return Ok((socket, address));
            }
            Err(error) => last = error,
        }
    }
    Err(EngineError::Connect { address: target.to_string(), source: last })
}

fn check_host(target: &HostPort, key: PublicKey, options: &ConnectOptions<'_>) -> Result<()> {
    if key == options.identity.public() {
        return Ok(());
    }
    let host = target.to_string();
    let mut known = KnownHosts::load(options.config)?;
    match (known.find(&host), options.policy) {
        (Some(recorded), _) if recorded == key => Ok(()),
        (Some(recorded), _) => Err(EngineError::KeyChanged {
            host,
            known: recorded.fingerprint(),
            offered: key.fingerprint(),
            file: known.file(),
        }),
        (None, HostPolicy::RefuseChanged) => Ok(()),
        (None, HostPolicy::AcceptNew) => known.add(&host, key),
        (None, HostPolicy::RequireKnown) => {
            Err(EngineError::KeyUnknown { host, offered: key.fingerprint() })
        }
    }
}

pub(super) fn export_secret(connection: &mut Connection) -> Option<SessionSecret> {
    let material = connection.export_keying_material([0; 32], EXPORTER_LABEL, None).ok()?;
    Some(SessionSecret::from_keying_material(&material))
}

pub(super) fn set_timeouts(socket: &TcpStream, timeout: Option<Duration>) -> std::io::Result<()> {
    socket.set_read_timeout(timeout)?;
    socket.set_write_timeout(timeout)
}

/// Opens the data connections of a session.
#[derive(Clone)]
pub struct DataDialer {
    addresses: Vec<SocketAddr>,
    secret: SessionSecret,
}

impl DataDialer {
    /// Connections to the first of `addresses` that answers.
    pub fn new(addresses: Vec<SocketAddr>, secret: SessionSecret) -> Self {
        DataDialer { addresses, secret }
    }

    /// The session's secret.
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
        prepare: impl Fn(&Socket) -> std::io::Result<()>,
    ) -> Result<TcpStream> {
        let mut failure = None;
        for address in &self.addresses {
            let attempt = || {
                let socket =
                    Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
                prepare(&socket)?;
                socket.connect_timeout(&(*address).into(), CONNECT_TIMEOUT)?;
                let mut socket = TcpStream::from(socket);
                socket.set_write_timeout(Some(OPENING_TIMEOUT))?;
                socket.write_all(&self.secret.hello(stream))?;
                socket.set_write_timeout(None)?;
                Ok(socket)
            };
            match attempt() {
                Ok(socket) => return Ok(socket),
                Err(source) => failure = Some((address.to_string(), source)),
            }
        }
        let (address, source) = failure.unwrap_or_else(|| {
            ("the far side".to_owned(), std::io::ErrorKind::AddrNotAvailable.into())
        });
        Err(EngineError::DataConnect { stream, address, source })
    }
}
