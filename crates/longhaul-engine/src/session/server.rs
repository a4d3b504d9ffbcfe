use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::wire::{
    AnyHello, DataHello, GreetingKind, HELLO_BYTES, PROTOCOL_VERSION, RefusalKind, Service,
    SessionId, Welcome,
};
use rustls::{Connection, ServerConnection};
use socket2::SockRef;

use super::channel::{ControlReceiver, ControlSender, control_over_tls};
use super::client::{export_secret, set_timeouts};
use super::deadline::Until;
use super::grant::Grant;
use super::identity::{Identity, PublicKey};
use super::secret::SessionSecret;
use super::tls;
use super::udp::{self, FlowAnswers};
use super::work::WorkRecord;
use crate::error::{EngineError, Result};

/// What is sent to a client and not acknowledged for this long ends its session.
const VANISHED: Duration = Duration::from_secs(30);
/// How long the hello of a data connection may be ahead of the end of its session's handshake, which
/// is sent before it: when a segment of that was lost, for as long as it is sent again.
const OVERTAKEN: Duration = Duration::from_secs(3);
/// Most data connections that may wait to be taken by their session.
const WAITING_STREAMS: usize = 256;
/// How often flows already accepted are looked at while others are awaited.
const ANSWER_LOOK: Duration = Duration::from_millis(20);

/// The sessions that wait for data connections, shared by all threads of a server.
#[derive(Clone, Default)]
pub struct SessionRegistry(Arc<Sessions>);

#[derive(Default)]
struct Sessions {
    waiting: Mutex<HashMap<SessionId, Waiting>>,
    added: Condvar,
}

struct Waiting {
    secret: SessionSecret,
    streams: Sender<(u32, TcpStream)>,
    flows: Sender<(u32, UdpSocket)>,
    /// A connection that proves itself is answered by our proof.
    mutual: bool,
}

impl SessionRegistry {
    /// Lets the session of `secret` take data connections until the acceptor is dropped.
    pub fn register(&self, secret: SessionSecret) -> DataAcceptor {
        self.add(secret, false)
    }

    /// As [`register`](Self::register), for connections that expect to be answered: the server of
    /// the control channel opens them, and must know whom it sends to.
    pub(crate) fn register_mutual(&self, secret: SessionSecret) -> DataAcceptor {
        self.add(secret, true)
    }

    fn add(&self, secret: SessionSecret, mutual: bool) -> DataAcceptor {
        let id = secret.session_id();
        let (streams, arrivals) = bounded(WAITING_STREAMS);
        let (flows, flow_arrivals) = bounded(WAITING_STREAMS);
        self.lock().insert(id, Waiting { secret: secret.clone(), streams, flows, mutual });
        self.0.added.notify_all();
        DataAcceptor { registry: self.clone(), id, secret, arrivals, flow_arrivals }
    }

    /// Reads the hello of a fresh data connection and passes it to its session. A connection
    /// that proves nothing is closed without an answer. Returns whether it belongs to a session.
    pub fn admit(&self, socket: TcpStream) -> bool {
        let mut bytes = [0; HELLO_BYTES];
        if Until::opened(&socket).read_exact(&mut bytes).is_err() {
            return false;
        }
        let Ok((hello, mac)) = DataHello::decode(&bytes) else { return false };
        let unknown = |sessions: &mut HashMap<_, _>| !sessions.contains_key(&hello.session);
        let sessions = self.0.added.wait_timeout_while(self.lock(), OVERTAKEN, unknown);
        let sessions = sessions.unwrap_or_else(PoisonError::into_inner).0;
        let Some(waiting) = sessions.get(&hello.session) else { return false };
        if !waiting.secret.verify_hello(&hello, &mac) {
            return false;
        }
        if waiting.mutual {
            let answer = waiting.secret.greeting(GreetingKind::Accept, hello.stream, [0; 7]);
            // A fresh connection takes 64 bytes without waiting.
            if (&socket).write_all(&answer).is_err() {
                return true;
            }
        }
        if set_timeouts(&socket, None).is_ok() {
            let _ = waiting.streams.try_send((hello.stream, socket));
        }
        true
    }

    /// Passes a UDP flow, which has proved itself, to its session.
    pub(super) fn admit_flow(&self, session: SessionId, stream: u32, flow: UdpSocket) {
        if let Some(waiting) = self.lock().get(&session) {
            let _ = waiting.flows.try_send((stream, flow));
        }
    }

    /// The secret of a session that waits for data connections.
    pub(super) fn secret(&self, session: SessionId) -> Option<SessionSecret> {
        self.lock().get(&session).map(|waiting| waiting.secret.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Waiting>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the data connections of one session, seen from the server.
pub struct DataAcceptor {
    registry: SessionRegistry,
    id: SessionId,
    secret: SessionSecret,
    arrivals: Receiver<(u32, TcpStream)>,
    flow_arrivals: Receiver<(u32, UdpSocket)>,
}

impl DataAcceptor {
    /// The next authenticated data connection and its number.
    ///
    /// # Errors
    /// None came within `timeout`.
    pub fn accept(&self, timeout: Duration) -> Result<(u32, TcpStream)> {
        self.arrivals
            .recv_timeout(timeout)
            .map_err(|_| EngineError::DataMissing { peer: "the client".to_owned() })
    }

    /// All `count` connections of the session, in the order of their numbers.
    ///
    /// # Errors
    /// They did not come within `timeout`, or a number came twice or is out of range.
    pub fn accept_all(&self, count: u32, timeout: Duration) -> Result<Vec<TcpStream>> {
        let deadline = Instant::now() + timeout;
        let mut sockets = Numbered::new(count);
        for _ in 0..count {
            sockets.put(self.accept(deadline.saturating_duration_since(Instant::now()))?)?;
        }
        Ok(sockets.in_order())
    }

    /// The next UDP flow and its number.
    ///
    /// # Errors
    /// None came within `timeout`.
    pub(super) fn accept_flow(&self, timeout: Duration) -> Result<(u32, UdpSocket)> {
        self.flow_arrivals
            .recv_timeout(timeout)
            .map_err(|_| EngineError::DataMissing { peer: "the client".to_owned() })
    }

    /// All `count` UDP flows of the session, in the order of their numbers, and what answers on
    /// them until data may come.
    ///
    /// # Errors
    /// As [`accept_all`](Self::accept_all).
    pub(crate) fn accept_all_flows(
        &self,
        count: u32,
        timeout: Duration,
    ) -> Result<(Vec<UdpSocket>, FlowAnswers)> {
        let deadline = Instant::now() + timeout;
        let mut flows = Numbered::new(count);
        let mut found = 0;
        while found < count {
            match self.accept_flow(ANSWER_LOOK) {
                Ok(flow) => {
                    flows.put(flow)?;
                    found += 1;
                }
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => udp::answer_again(flows.so_far(), &self.secret),
            }
        }
        let flows = flows.in_order();
        let answers = FlowAnswers::start(&flows, &self.secret)
            .map_err(|source| EngineError::System { operation: "start a thread", source })?;
        Ok((flows, answers))
    }

    /// The session's secret.
    pub fn secret(&self) -> &SessionSecret {
        &self.secret
    }
}

/// Connections that arrive in any order.
struct Numbered<T>(Vec<Option<T>>);

impl<T> Numbered<T> {
    fn new(count: u32) -> Self {
        Numbered((0..count).map(|_| None).collect())
    }

    fn put(&mut self, (stream, socket): (u32, T)) -> Result<()> {
        match self.0.get_mut(stream as usize) {
            Some(place @ None) => {
                *place = Some(socket);
                Ok(())
            }
            _ => Err(EngineError::Protocol {
                peer: "the client".to_owned(),
                what: "a data connection has a wrong number",
            }),
        }
    }

    fn so_far(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    fn in_order(self) -> Vec<T> {
        self.0.into_iter().flatten().collect()
    }
}

impl Drop for DataAcceptor {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.id);
    }
}

/// An open session, seen from the server: greeted, its service chosen.
pub struct ServedSession {
    /// To the client.
    pub sender: ControlSender,
    /// From the client.
    pub receiver: ControlReceiver,
    /// Its data connections.
    pub streams: DataAcceptor,
    /// Whether the client's key is in the authorised list.
    pub authorised: bool,
    /// What it is allowed, if it is.
    pub grant: Grant,
    /// The client's key; `None` where the channel needs none.
    pub key: Option<PublicKey>,
    /// The account that the service keeps of its work.
    pub record: WorkRecord,
}

impl ServedSession {
    /// Reads what the client asks for: `allow` says which services are offered, by a refusal or
    /// nothing. Returns the service to [welcome](Self::welcome) the client to.
    ///
    /// # Errors
    /// The channel broke, or the client was refused (and told so).
    pub fn asked(
        &mut self,
        allow: impl FnOnce(Service, bool) -> Option<(RefusalKind, String)>,
    ) -> Result<Service> {
        let hello: AnyHello = self.receiver.receive()?;
        if hello.protocol != PROTOCOL_VERSION {
            let reason = format!(
                "it speaks protocol {PROTOCOL_VERSION} (longhaul {}), the client {} (longhaul \
                 {}); use the same version at both ends",
                env!("CARGO_PKG_VERSION"),
                hello.protocol,
                hello.short_version()
            );
            return Err(self.refuse(RefusalKind::Version, reason));
        }
        let Some(service) = hello.service() else {
            let reason = "it does not know what the client asks for".to_owned();
            return Err(self.refuse(RefusalKind::Invalid, reason));
        };
        match allow(service, self.authorised) {
            None => Ok(service),
            Some((kind, reason)) => Err(self.refuse(kind, reason)),
        }
    }

    /// Tells the client that the service may be asked for now.
    ///
    /// # Errors
    /// The channel broke.
    pub fn welcome(&self) -> Result<()> {
        self.sender.send(&Welcome::Ready { version: env!("CARGO_PKG_VERSION").to_owned() })
    }

    /// Turns the client away; the error says so, or that it could not even be told.
    pub fn refuse(&self, kind: RefusalKind, reason: String) -> EngineError {
        match self.sender.send(&Welcome::Refused { kind, reason: reason.clone() }) {
            Ok(()) => EngineError::Refused { peer: self.sender.peer().to_owned(), kind, reason },
            Err(error) => error,
        }
    }
}

/// Makes a session of a fresh connection that begins with a TLS handshake.
pub(crate) fn serve_tls(
    socket: TcpStream,
    identity: &Identity,
    authorised: impl FnOnce(&PublicKey) -> Option<Grant>,
    registry: &SessionRegistry,
) -> Result<ServedSession> {
    let peer = socket.peer_addr().map_or_else(|_| "a client".to_owned(), |peer| peer.to_string());
    let failed = |source| EngineError::Handshake { peer: peer.clone(), source };
    let connection = ServerConnection::new(tls::server_config(identity))
        .map_err(|error| failed(std::io::Error::other(error)))?;
    let mut connection = Connection::Server(connection);
    let _ = socket.set_nodelay(true);
    // A client whose host is gone answers nothing, not even that.
    let _ = SockRef::from(&socket).set_tcp_user_timeout(Some(VANISHED));
    let mut opening = Until::opened(&socket);
    while connection.is_handshaking() {
        connection.complete_io(&mut opening).map_err(failed)?;
    }
    let key = tls::peer_key(&connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "it showed no key" })?;
    let secret = export_secret(&mut connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "no keying material" })?;
    // Registered before the first message, so that a data connection cannot come too early.
    let streams = registry.register(secret);
    let (sender, receiver) = control_over_tls(connection, socket, &peer).map_err(failed)?;
    let grant = authorised(&key);
    let authorised = grant.is_some();
    Ok(ServedSession {
        sender,
        receiver,
        streams,
        authorised,
        grant: grant.unwrap_or_default(),
        key: Some(key),
        record: WorkRecord::default(),
    })
}
