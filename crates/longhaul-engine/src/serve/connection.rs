//! One connection of a server, from its first byte to its end.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::wire::{FrameError, RefusalKind, Service, Welcome};

use super::admission::{Admission, Denied, Kind, Pass};
use super::descriptors::Descriptors;
use super::event::{CloseReason, ServeEvent, SessionClient, SessionReport, SessionStart};
use super::limiter::{ConnectionLimiter, Fresh, Place, failure_of};
use super::limits::ClientLimits;
use super::penalties::Failure;
use super::{ServerKeys, Services};
use crate::error::{EngineError, Result};
use crate::lock;
use crate::session::{
    Admitted, KeySession, Opening, ServedSession, SessionRegistry, canonical, serve_tls,
};
use crate::share::{QuotaPart, SessionPart};

/// The first byte of a TLS record with a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

const TOO_MANY_SESSIONS: &str = "this key has the maximum number of sessions; end one, or wait";
/// The maximum number of dropped connections that are logged per second, so that a flood does not
/// fill the log.
const DROPPED_PER_SECOND: u32 = 20;

/// A server, shared by the threads of its connections.
pub(super) struct Server {
    host: Arc<ServerKeys>,
    services: Arc<dyn Services>,
    admission: Arc<Admission>,
    pub(super) registry: SessionRegistry,
    limiter: ConnectionLimiter,
    descriptors: Descriptors,
    /// The start of the present second, and the dropped connections logged in it.
    dropped: Mutex<(Instant, u32)>,
    /// The number of open sessions.
    pub(super) sessions: AtomicUsize,
    /// The number of clients served.
    pub(super) served: AtomicUsize,
}

impl Server {
    /// Creates a server that may use `descriptors`, which limit its connections.
    pub(super) fn new(
        host: Arc<ServerKeys>,
        services: Arc<dyn Services>,
        mut limits: ClientLimits,
        descriptors: u64,
    ) -> Arc<Self> {
        let descriptors = Descriptors::divide(descriptors, &mut limits);
        let limiter =
            ConnectionLimiter::new(limits.startups, limits.penalties, descriptors.opening.clone());
        Arc::new(Server {
            host,
            services,
            admission: Admission::new(limits),
            registry: SessionRegistry::default(),
            limiter,
            descriptors,
            dropped: Mutex::new((Instant::now(), 0)),
            sessions: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
        })
    }

    /// Counts a fresh connection; `None` if it was refused.
    pub(super) fn admit(&self, socket: TcpStream) -> Option<Fresh> {
        let address = address_of(&socket);
        let dropped = |reason| self.log_dropped(address, reason);
        self.limiter.admit(socket).map_err(dropped).ok()
    }

    /// Counts a fresh connection of another program's client; `None` if it was refused.
    pub(super) fn admit_guest(&self, socket: TcpStream) -> Option<Fresh> {
        let address = address_of(&socket);
        let dropped = |reason| self.log_dropped(address, reason);
        self.limiter.admit_guest(socket).map_err(dropped).ok()
    }

    /// Waits for a session for another program's client from `source`, while `waits` returns true.
    ///
    /// # Errors
    /// The reason of a refusal; `None` if the wait ended.
    pub(super) fn enter_guest(
        &self,
        source: IpAddr,
        waits: impl Fn() -> bool,
    ) -> std::result::Result<Pass, Option<Denied>> {
        let keep_waiting = |_| if waits() { Ok(()) } else { Err(EngineError::Interrupted) };
        match self.admission.enter(Kind::Anonymous, source, keep_waiting) {
            Ok(entered) => entered.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// Takes the descriptor of a control connection of another program's client.
    pub(super) fn guest_descriptor(&self) -> Option<QuotaPart> {
        self.descriptors.session(Kind::Anonymous)
    }

    /// Takes the descriptors of the data connections of another program's client; `None` if too
    /// few are left.
    pub(super) fn guest_streams(&self, count: u32) -> Option<SessionPart> {
        let portion = self.descriptors.guest_streams(count.into());
        (portion.granted() >= u64::from(count)).then_some(portion)
    }

    /// Adds a failure to the penalty of an address.
    pub(super) fn blame_guest(&self, source: IpAddr, failure: Failure) {
        self.limiter.failed(source, failure);
    }

    pub(super) fn log(&self, event: ServeEvent) {
        self.services.log(event);
    }

    /// Logs a dropped connection, unless too many were logged.
    fn log_dropped(&self, address: Option<SocketAddr>, reason: CloseReason) {
        let mut logged = lock(&self.dropped);
        if logged.0.elapsed() >= Duration::from_secs(1) {
            *logged = (Instant::now(), 0);
        }
        logged.1 += 1;
        let log = logged.1 <= DROPPED_PER_SECOND;
        drop(logged);
        if log {
            self.services.log(ServeEvent::Dropped { address, reason });
        }
    }

    /// Serves one connection to its end on the calling thread.
    pub(super) fn serve(&self, fresh: Fresh) {
        let _crash = CrashGuard { limiter: &self.limiter, source: fresh.source };
        match fresh.first_byte() {
            Ok(TLS_HANDSHAKE) => self.serve_client(fresh),
            Ok(_) => self.admit_data(fresh),
            Err(error) => {
                self.drop_silent(
                    address_of(&fresh.socket),
                    Some(&fresh.place),
                    CloseReason::Silent,
                );
                self.penalize(fresh.source, Some(&fresh.place), failure_of(&error));
            }
        }
    }

    fn admit_data(&self, fresh: Fresh) {
        let Fresh { socket, source, deadline, place } = fresh;
        let address = address_of(&socket);
        let mut place = Some(place);
        let admitted = self.registry.admit(socket, deadline, || drop(place.take()));
        let failure = match admitted {
            Admitted::Passed => return,
            Admitted::Unwanted => None,
            Admitted::Wrong => Some(Failure::Authentication),
            Admitted::Incomplete(error) => Some(failure_of(&error)),
        };
        self.drop_silent(address, place.as_ref(), CloseReason::NoSession);
        if let Some(failure) = failure {
            self.penalize(source, place.as_ref(), failure);
        }
    }

    fn serve_client(&self, fresh: Fresh) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        let _open = Counted(&self.sessions);
        let start = Instant::now();
        let address = address_of(&fresh.socket);
        let session = match self.handshake(&fresh) {
            Ok(session) => session,
            Err(error) => {
                self.blame_client(&fresh, &error);
                self.services.log(ServeEvent::NoHandshake { address, error });
                return;
            }
        };
        let client = SessionClient::of(&session, address);
        let record = session.record.clone();
        let mut steps = Steps::default();
        let outcome = self.serve_session(session, fresh, &client, &mut steps);
        let Steps { service, began } = steps;
        let (duration, work) = (start.elapsed(), record.read());
        let report = SessionReport { client, service, began, duration, work, outcome };
        self.services.log(ServeEvent::Ended(Box::new(report)));
        self.served.fetch_add(usize::from(began), Ordering::Relaxed);
    }

    fn handshake(&self, fresh: &Fresh) -> Result<ServedSession> {
        let opening = Opening { socket: fresh.socket.clone(), deadline: fresh.deadline };
        let address = address_of(&fresh.socket).map_or(fresh.source, |address| address.ip());
        let authorized = |key: &_| self.host.authorized.find(key, address);
        let descriptors = |authorized| self.descriptors.streams(Kind::of(authorized));
        serve_tls(opening, &self.host.identity, authorized, &self.registry, descriptors)
    }

    /// Serves a client, whose session counts among those of its key.
    fn serve_session(
        &self,
        mut session: ServedSession,
        fresh: Fresh,
        client: &SessionClient,
        steps: &mut Steps,
    ) -> Result<()> {
        let request = session.read_request(|service, known| {
            steps.service = Some(service);
            self.services.refusal(service, known)
        });
        request.inspect_err(|error| self.blame_client(&fresh, error))?;
        // The client is authenticated.
        let source = fresh.source;
        drop(fresh);
        let peer = session.sender.peer().to_owned();
        let counted =
            self.count(&session, client.address.map_or(source, |address| address.ip()))?;
        session.rate = counted.as_ref().and_then(KeySession::rate);
        session.quota = counted.as_ref().and_then(KeySession::quota);
        let outcome = self.serve_in_turn(session, source, client, steps);
        match counted.and_then(|counted| counted.lapse()) {
            Some(lapse) => Err(EngineError::Lapsed { peer, lapse }),
            None => outcome,
        }
    }

    /// Counts the session among those of its key; anonymous sessions are not counted here.
    fn count(&self, session: &ServedSession, address: IpAddr) -> Result<Option<KeySession>> {
        let Some(key) = session.key.filter(|_| session.authorized) else { return Ok(None) };
        let end = session.receiver.closer();
        let counted = self.host.authorized.begin(key, &session.grant, address, end);
        let refuse = || session.refuse(RefusalKind::Limit, TOO_MANY_SESSIONS.to_owned());
        counted.ok_or_else(refuse).map(Some)
    }

    /// Waits for the client's turn and serves it.
    fn serve_in_turn(
        &self,
        session: ServedSession,
        source: IpAddr,
        client: &SessionClient,
        steps: &mut Steps,
    ) -> Result<()> {
        let kind = Kind::of(session.authorized);
        let Some(_descriptor) = self.descriptors.session(kind) else {
            let reason = "it has too few file descriptors left for more clients; try again later";
            return Err(session.refuse(RefusalKind::Limit, reason.to_owned()));
        };
        let arrived = Instant::now();
        let report = |place| session.sender.send(&Welcome::Queued { place });
        let _pass = match self.admission.enter(kind, source, report)? {
            Ok(pass) => pass,
            Err(denied) => return Err(session.refuse(RefusalKind::Limit, denied)),
        };
        // Held until the session has closed its data connections.
        let _descriptors = session.streams.allowance();
        session.welcome()?;
        steps.began = true;
        let (client, waited) = (client.clone(), arrived.elapsed());
        let Some(service) = steps.service else { return Err(EngineError::Interrupted) };
        self.services.log(ServeEvent::Began(SessionStart { client, service, waited }));
        session.receiver.set_timeout(None)?;
        self.services.run(service, session)
    }

    /// Logs a connection that ended before its client was known.
    fn drop_silent(&self, address: Option<SocketAddr>, place: Option<&Place>, reason: CloseReason) {
        let dropped = place.is_some_and(Place::was_dropped);
        let reason = if dropped { CloseReason::Unauthenticated } else { reason };
        self.log_dropped(address, reason);
    }

    /// Adds a failure to the penalty of an address, unless the connection was dropped for another
    /// one.
    fn penalize(&self, source: IpAddr, place: Option<&Place>, failure: Failure) {
        if !place.is_some_and(Place::was_dropped) {
            self.limiter.failed(source, failure);
        }
    }

    fn blame_client(&self, fresh: &Fresh, error: &EngineError) {
        if let Some(failure) = self.failure_of(error) {
            self.penalize(fresh.source, Some(&fresh.place), failure);
        }
    }

    /// Returns the kind of failure of an unauthenticated client; `None` if the client is not to
    /// blame.
    fn failure_of(&self, error: &EngineError) -> Option<Failure> {
        match error {
            EngineError::Handshake { source, .. } => Some(failure_of(source)),
            EngineError::Control { source: FrameError::Io(error), .. } => Some(failure_of(error)),
            EngineError::Control { source: FrameError::Closed, .. } => Some(Failure::NothingSaid),
            EngineError::Control { .. } | EngineError::Protocol { .. } => {
                Some(Failure::Authentication)
            }
            EngineError::Refused { kind: RefusalKind::NotAuthorized, .. } => {
                let anybody = self.services.refusal(Service::Test, false).is_none();
                Some(if anybody { Failure::Authentication } else { Failure::Refused })
            }
            _ => None,
        }
    }
}

/// The progress of a session.
#[derive(Default)]
struct Steps {
    /// The requested service.
    service: Option<Service>,
    /// True after the client's turn has come.
    began: bool,
}

fn address_of(socket: &TcpStream) -> Option<SocketAddr> {
    socket.peer_addr().ok().map(canonical)
}

/// Decrements a counter when dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Records a panic of the thread.
struct CrashGuard<'a> {
    limiter: &'a ConnectionLimiter,
    source: IpAddr,
}

impl Drop for CrashGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.limiter.failed(self.source, Failure::Crash);
        }
    }
}
