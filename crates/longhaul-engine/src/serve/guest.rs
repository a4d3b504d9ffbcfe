//! The clients of other programs: listeners with other protocols that share the sessions, limits,
//! log and stop flag of a server.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::admission::Pass;
use super::connection::Server;
use super::event::{GuestReport, ServeEvent};
use super::limiter::{Fresh, Place};
use super::limits::network;
use super::penalties::Failure;
use crate::share::{QuotaPart, SessionPart};

/// A listener for the clients of another program.
pub trait Guest: Send + Sync {
    /// Returns the name of the program, as in the log.
    fn program(&self) -> &'static str;

    /// Serves clients on the calling thread, and on others that it starts, until
    /// [`Gate::stopped`]. All threads have ended when it returns.
    fn run(&self, gate: &Gate);
}

/// Admits the clients of other programs to a server. Clones admit to the same server.
#[derive(Clone)]
pub struct Gate {
    server: Arc<Server>,
    ending: Arc<AtomicBool>,
}

/// A connection whose client is not yet known. It counts as unauthenticated until it is dropped.
#[derive(Debug)]
pub struct GuestArrival {
    /// The connection.
    pub socket: Arc<TcpStream>,
    /// The client's address.
    pub address: SocketAddr,
    /// The time by which the client has to be known.
    pub deadline: Instant,
    source: IpAddr,
    place: Place,
}

/// The permission to run a test, and its descriptors; both are returned when dropped.
#[derive(Debug)]
pub struct Visit {
    _pass: Pass,
    _descriptor: QuotaPart,
    _streams: SessionPart,
}

/// The descriptors of data connections, which are returned when dropped.
#[derive(Debug)]
pub struct StreamPlaces {
    _portion: SessionPart,
}

/// The reason why a client gets no session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// All sessions are in use, and the client cannot wait longer.
    Busy,
    /// A limit on the address or on the queue; a sentence without a full stop.
    Limit(String),
    /// The server has too few file descriptors.
    Descriptors,
    /// The client has left.
    Left,
    /// The server ends.
    Stopping,
}

impl Gate {
    pub(super) fn new(server: Arc<Server>, ending: Arc<AtomicBool>) -> Self {
        Gate { server, ending }
    }

    /// Returns whether the server ends.
    pub fn stopped(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Counts a new connection as unauthenticated. Returns `None` if the connection is refused, and
    /// closes it.
    pub fn admit(&self, socket: TcpStream) -> Option<GuestArrival> {
        let address = crate::session::canonical(socket.peer_addr().ok()?);
        let Fresh { socket, source, deadline, place } = self.server.admit_guest(socket)?;
        Some(GuestArrival { socket, address, deadline, source, place })
    }

    /// Records that the client of `arrival` did not become known: it sent something else, or with
    /// `silent` nothing in time.
    pub fn failed(&self, arrival: &GuestArrival, silent: bool) {
        if !arrival.place.was_dropped() {
            let failure = if silent { Failure::GraceExceeded } else { Failure::Authentication };
            self.server.blame_guest(arrival.source, failure);
        }
    }

    /// Records that the client at `address` had no valid credentials.
    pub fn unauthorized(&self, address: SocketAddr) {
        self.server.blame_guest(network(address.ip()), Failure::Authentication);
    }

    /// Waits up to `limit` for a session for the client of `arrival`, which has `streams` data
    /// connections. Calls `present` repeatedly, and stops waiting when it returns false.
    ///
    /// # Errors
    /// No session is available.
    pub fn enter(
        &self,
        arrival: GuestArrival,
        streams: u32,
        limit: Duration,
        present: impl Fn() -> bool,
    ) -> std::result::Result<Visit, NoPlace> {
        let (source, until) = (arrival.source, Instant::now() + limit);
        // The client is known: it no longer counts as unauthenticated.
        drop(arrival);
        let descriptor = self.server.guest_descriptor().ok_or(NoPlace::Descriptors)?;
        let waits = || Instant::now() < until && !self.stopped() && present();
        let pass = self.server.enter_guest(source, waits).map_err(|denied| match denied {
            Some(_) if limit.is_zero() => NoPlace::Busy,
            Some(denied) => NoPlace::Limit(denied),
            None if self.stopped() => NoPlace::Stopping,
            None if !present() => NoPlace::Left,
            None => NoPlace::Busy,
        })?;
        let streams = self.server.guest_streams(streams).ok_or(NoPlace::Descriptors)?;
        Ok(Visit { _pass: pass, _descriptor: descriptor, _streams: streams })
    }

    /// Takes the descriptors of `count` data connections; `None` if too few are left.
    pub fn streams(&self, count: u32) -> Option<StreamPlaces> {
        Some(StreamPlaces { _portion: self.server.guest_streams(count)? })
    }

    /// Records the end of a client in the log. A client whose test began counts as served.
    pub fn report(&self, report: GuestReport) {
        let began = report.began;
        self.server.log(ServeEvent::Guest(Box::new(report)));
        self.server.served.fetch_add(usize::from(began), Ordering::Relaxed);
    }
}
