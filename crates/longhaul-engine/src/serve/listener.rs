//! Accepts connections and tells control channels from data connections by their first byte.
//!
//! Every connection has a thread of its own, their number is bounded, and each has a deadline for
//! its first bytes: a silent or vanished client costs one thread for seconds, never the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::wire::{RefusalKind, Service, Welcome};
use socket2::{Domain, Protocol, Socket, Type};

use super::admission::{Admission, ClientLimits};
use super::event::{Client, DropReason, Event, SessionReport, SessionStart, canonical};
use crate::error::{EngineError, Result};
use crate::session::{
    AuthorisedKeys, Identity, KeySession, ServedSession, SessionRegistry, UdpDoor, serve_tls,
};

/// Most connections at once, of both kinds together; later ones are closed at once.
const CONNECTION_LIMIT: usize = 1024;
/// How often the accept loop looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// First byte of a TLS record that carries a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// How long a connection may take to send its first byte.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(20);
const LISTEN_BACKLOG: i32 = 256;
/// How many free TCP ports are tried for one that is free for UDP too.
const FREE_PORT_TRIES: u32 = 16;
/// How long sessions may take to end once the server is told to.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAVE_CHECK: Duration = Duration::from_millis(10);

const TOO_MANY_SESSIONS: &str = "this key has as many sessions as it may; end one, or wait";

/// A bound listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// Lets UDP flows in, on the same port.
    door: UdpDoor,
    address: SocketAddr,
}

/// Who the server is and whom it trusts.
#[derive(Debug)]
pub struct Host {
    /// Its key pair.
    pub identity: Identity,
    /// The keys that may reach files.
    pub authorised: AuthorisedKeys,
}

/// What is done with the sessions; one for each server.
pub trait Services: Send + Sync {
    /// Why `service` is not for this client, or `None` if it is.
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)>;

    /// Runs the service to its end on the calling thread.
    ///
    /// # Errors
    /// What went wrong; it is reported and the server goes on.
    fn run(&self, service: Service, session: ServedSession) -> Result<()>;

    /// Records an event; called on the thread of the connection, which waits for it.
    fn log(&self, _event: Event) {}
}

impl Listener {
    /// Listens on `address`, for TCP (and MPTCP, where the kernel has it) and UDP; port 0 takes
    /// any that is free for both. An IPv6 wildcard takes IPv4 as well.
    ///
    /// # Errors
    /// The address is taken, not ours, or not permitted.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |source| EngineError::Listen { address: address.to_string(), source };
        let mut tries = if address.port() == 0 { FREE_PORT_TRIES } else { 1 };
        loop {
            let socket = listen(address, Protocol::MPTCP)
                .or_else(|_| listen(address, Protocol::TCP))
                .map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            tries -= 1;
            match UdpDoor::bind(address) {
                Ok(door) => return Ok(Listener { socket, door, address }),
                // The port that was free for TCP is not for UDP.
                Err(_) if tries > 0 => {}
                Err(source) => {
                    return Err(EngineError::Listen { address: format!("UDP {address}"), source });
                }
            }
        }
    }

    /// The address listened on, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Admits the data connections of `registry` alone until `stop` is set: where the control
    /// channel is elsewhere, over ssh or opened by this end.
    pub fn run_data(self, registry: &SessionRegistry, stop: &AtomicBool) {
        self.accept_until(
            registry,
            || stop.load(Ordering::Relaxed),
            |socket| {
                let registry = registry.clone();
                spawn(move || {
                    registry.admit(socket);
                });
            },
        );
    }

    /// Serves until `stop` is set or, with `one_off`, one client has been served. Then the
    /// sessions still under way have a few seconds to put their things in order. What
    /// happens goes to [`Services::log`].
    pub fn run(
        self,
        host: Arc<Host>,
        services: Arc<dyn Services>,
        clients: ClientLimits,
        one_off: bool,
        stop: &AtomicBool,
    ) {
        let admission = Admission::new(clients);
        let registry = SessionRegistry::default();
        let connections = Arc::new(AtomicUsize::new(0));
        let sessions = Arc::new(AtomicUsize::new(0));
        let sessions_ended = Arc::new(AtomicUsize::new(0));
        let stopped = || {
            stop.load(Ordering::Relaxed) || one_off && sessions_ended.load(Ordering::Relaxed) > 0
        };
        self.accept_until(&registry, stopped, |socket| {
            let slot = Slot::take(&connections);
            if connections.load(Ordering::Relaxed) > CONNECTION_LIMIT {
                let address = address_of(&socket);
                services.log(Event::Dropped { address, reason: DropReason::Connections });
                return;
            }
            let host = host.clone();
            let services = services.clone();
            let registry = registry.clone();
            let (sessions, sessions_ended) = (sessions.clone(), sessions_ended.clone());
            let admission = admission.clone();
            spawn(move || {
                let _slot = slot;
                let door = Door { host: &host, services: &*services, admission: &admission };
                if door.serve_connection(socket, &registry, &sessions) {
                    sessions_ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        while sessions.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            thread::sleep(LEAVE_CHECK);
        }
    }

    fn accept_until(
        self,
        registry: &SessionRegistry,
        stopped: impl Fn() -> bool,
        mut take: impl FnMut(TcpStream),
    ) {
        let Listener { socket, door, .. } = self;
        let closed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| door.run(registry, || closed.load(Ordering::Relaxed)));
            while !stopped() {
                match socket.accept() {
                    Ok((socket, _)) => {
                        if socket.set_nonblocking(false).is_ok() {
                            take(socket);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        longhaul_sys::poll::readable(&socket, STOP_CHECK);
                    }
                    // A connection that was reset while it waited, or no file descriptors left:
                    // the next may do better, and a pause keeps the loop from spinning.
                    Err(_) => thread::sleep(STOP_CHECK),
                }
            }
            closed.store(true, Ordering::Relaxed);
        });
    }
}

/// A TCP socket that listens without blocking.
fn listen(address: SocketAddr, protocol: Protocol) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    let socket = TcpListener::from(socket);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Runs `work` on a thread of its own. A host that has none left drops the connection, which the
/// client sees as closed, and the server goes on.
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(thread::Builder::new().name("connection".into()).spawn(work));
}

/// Counts one connection for as long as it lives.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Slot(connections.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a connection meets.
struct Door<'a> {
    host: &'a Host,
    services: &'a dyn Services,
    admission: &'a Arc<Admission>,
}

impl Door<'_> {
    /// Serves one connection to its end; true when a client was served.
    fn serve_connection(
        &self,
        socket: TcpStream,
        registry: &SessionRegistry,
        sessions: &Arc<AtomicUsize>,
    ) -> bool {
        let start = Instant::now();
        let address = address_of(&socket);
        let mut first = [0];
        let ready = socket.set_read_timeout(Some(FIRST_BYTE_TIMEOUT)).is_ok()
            && matches!(socket.peek(&mut first), Ok(1));
        if !ready {
            self.services.log(Event::Dropped { address, reason: DropReason::Silent });
            return false;
        }
        if first[0] != TLS_HANDSHAKE {
            if !registry.admit(socket) {
                self.services.log(Event::Dropped { address, reason: DropReason::NoSession });
            }
            return false;
        }
        let _session = Slot::take(sessions);
        let ip = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let authorised = |key: &_| self.host.authorised.find(key, ip);
        let session = match serve_tls(socket, &self.host.identity, authorised, registry) {
            Ok(session) => session,
            Err(error) => {
                self.services.log(Event::NoHandshake { address, error });
                return false;
            }
        };
        let client = Client::of(&session, address);
        let record = session.record.clone();
        let mut steps = Steps::default();
        let outcome = self.serve_session(session, &client, &mut steps);
        let Steps { service, began } = steps;
        let (duration, work) = (start.elapsed(), record.read());
        let report = SessionReport { client, service, began, duration, work, outcome };
        self.services.log(Event::Ended(Box::new(report)));
        began
    }

    /// Serves a client, whose session counts among those of its key until the key counts no more.
    fn serve_session(
        &self,
        mut session: ServedSession,
        client: &Client,
        steps: &mut Steps,
    ) -> Result<()> {
        let service = session.asked(|service, known| {
            steps.service = Some(service);
            self.services.refusal(service, known)
        })?;
        let ip = client.address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let peer = session.sender.peer().to_owned();
        let counted = self.count(&session, ip)?;
        let outcome = self.serve_in_turn(service, session, client, ip, steps);
        match counted.and_then(|counted| counted.lapse()) {
            Some(lapse) => Err(EngineError::Lapsed { peer, lapse }),
            None => outcome,
        }
    }

    /// Counts the session among those of its key; an anonymous one needs no count.
    fn count(&self, session: &ServedSession, address: IpAddr) -> Result<Option<KeySession>> {
        let Some(key) = session.key.filter(|_| session.authorised) else { return Ok(None) };
        let end = session.receiver.closer();
        let counted = self.host.authorised.begin(key, &session.grant, address, end);
        let refuse = || session.refuse(RefusalKind::Limit, TOO_MANY_SESSIONS.to_owned());
        counted.ok_or_else(refuse).map(Some)
    }

    /// Serves a client when its turn has come.
    fn serve_in_turn(
        &self,
        service: Service,
        session: ServedSession,
        client: &Client,
        ip: IpAddr,
        steps: &mut Steps,
    ) -> Result<()> {
        let arrived = Instant::now();
        let tell = |place| session.sender.send(&Welcome::Queued { place });
        let _pass = match self.admission.enter(ip, tell)? {
            Ok(pass) => pass,
            Err(denied) => return Err(session.refuse(RefusalKind::Limit, denied)),
        };
        session.welcome()?;
        steps.began = true;
        let (client, waited) = (client.clone(), arrived.elapsed());
        self.services.log(Event::Began(SessionStart { client, service, waited }));
        session.receiver.set_timeout(None)?;
        self.services.run(service, session)
    }
}

/// How far a session got.
#[derive(Default)]
struct Steps {
    /// The service that the client asked for.
    service: Option<Service>,
    /// Its turn has come.
    began: bool,
}

fn address_of(socket: &TcpStream) -> Option<SocketAddr> {
    socket.peer_addr().ok().map(canonical)
}

/// Greets the one client of an ssh connection and runs the service it asks for, to its end.
///
/// # Errors
/// The client was refused, or the service failed.
pub fn serve_session(mut session: ServedSession, services: &dyn Services) -> Result<()> {
    let service = session.asked(|service, authorised| services.refusal(service, authorised))?;
    session.welcome()?;
    session.receiver.set_timeout(None)?;
    services.run(service, session)
}
