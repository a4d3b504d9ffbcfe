//! The admission of fresh connections, which are refused with a TLS alert.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event::CloseReason;
use super::limits::network;
use super::penalties::{Failure, Penalties};
use super::startups::{DropCause, Startup, StartupLimits, Startups};
use crate::session::OPENING_TIMEOUT;
use crate::share::{Quota, QuotaPart};

/// The reason of a refusal, as the number of its TLS alert (RFC 8446, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// `internal_error`: too many connections.
    Crowded = 80,
    /// `access_denied`: the address has a penalty.
    Penalty = 49,
}

/// Admits fresh connections.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    startups: Arc<Startups>,
    penalties: Penalties,
    descriptors: Quota,
}

/// An unauthenticated connection; it counts until dropped.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) socket: Arc<TcpStream>,
    /// The part of its address that limits apply to.
    pub(super) source: IpAddr,
    /// The deadline of its authentication.
    pub(super) deadline: Instant,
    /// Its place among the unauthenticated connections.
    pub(super) place: Place,
}

/// The place of an unauthenticated connection.
#[derive(Debug)]
pub(super) struct Place {
    startup: Startup,
    _descriptor: QuotaPart,
}

impl Place {
    /// Returns whether the connection was dropped for another one.
    pub(super) fn was_dropped(&self) -> bool {
        self.startup.was_dropped()
    }
}

impl ConnectionLimiter {
    pub(super) fn new(limits: StartupLimits, penalties: bool, descriptors: Quota) -> Self {
        let startups = Startups::new(limits);
        ConnectionLimiter { startups, penalties: Penalties::new(penalties), descriptors }
    }

    /// Counts `socket`, or refuses and closes it.
    pub(super) fn admit(&self, socket: TcpStream) -> Result<Fresh, CloseReason> {
        // A closed connection has no address.
        let address = socket.peer_addr().map_err(|_| CloseReason::Silent)?;
        self.admit_from(network(address.ip()), socket)
    }

    /// Counts `socket`, or closes it without an alert, because its client does not use TLS.
    pub(super) fn admit_guest(&self, socket: TcpStream) -> Result<Fresh, CloseReason> {
        let address = socket.peer_addr().map_err(|_| CloseReason::Silent)?;
        self.admit_or(network(address.ip()), socket, |_, _| ())
    }

    /// Admits a connection of `source` as [`admit`](Self::admit) does.
    pub(super) fn admit_from(
        &self,
        source: IpAddr,
        socket: TcpStream,
    ) -> Result<Fresh, CloseReason> {
        self.admit_or(source, socket, send_reason)
    }

    fn admit_or(
        &self,
        source: IpAddr,
        socket: TcpStream,
        inform: impl Fn(&TcpStream, Reason),
    ) -> Result<Fresh, CloseReason> {
        let now = Instant::now();
        if let Some(left) = self.penalties.refuses(source, now) {
            inform(&socket, Reason::Penalty);
            return Err(CloseReason::Penalty(left));
        }
        let socket = Arc::new(socket);
        let closer = socket.clone();
        let close = move || drop(closer.shutdown(Shutdown::Both));
        let startup = self.startups.admit(source, now, percent(), close);
        let place = startup.map_err(reason_of).and_then(|startup| {
            let descriptor = self.descriptors.take(1).ok_or(CloseReason::Connections)?;
            Ok(Place { startup, _descriptor: descriptor })
        });
        let place = place.inspect_err(|_| inform(&socket, Reason::Crowded))?;
        Ok(Fresh { socket, source, deadline: now + OPENING_TIMEOUT, place })
    }

    /// Adds a failure of a connection from `source`.
    pub(super) fn failed(&self, source: IpAddr, failure: Failure) {
        self.penalties.add(source, failure, Instant::now());
    }
}

impl Fresh {
    /// Waits for the first byte without consuming it.
    pub(super) fn first_byte(&self) -> io::Result<u8> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut first = [0];
        match self.socket.peek(&mut first)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {
                self.place.startup.first_bytes();
                Ok(first[0])
            }
        }
    }
}

fn reason_of(cause: DropCause) -> CloseReason {
    match cause {
        DropCause::Address => CloseReason::Address,
        DropCause::All => CloseReason::Unauthenticated,
    }
}

/// Returns the kind of failure of an error of an unauthenticated connection.
pub(super) fn failure_of(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Failure::GraceExceeded,
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Failure::NothingSaid,
        _ => Failure::Authentication,
    }
}

/// Sends a fatal TLS alert, which fits the buffer of a fresh connection.
fn send_reason(mut socket: &TcpStream, reason: Reason) {
    const RECORD: [u8; 6] = [0x15, 3, 3, 0, 2, 2];
    let mut alert = [0; RECORD.len() + 1];
    alert[..RECORD.len()].copy_from_slice(&RECORD);
    alert[RECORD.len()] = reason as u8;
    let _ = socket.set_nonblocking(true);
    let _ = socket.write(&alert);
    let _ = socket.shutdown(Shutdown::Write);
    // Unread bytes would make the kernel reset the connection, which discards the alert.
    let _ = io::Read::read(&mut socket, &mut [0; 4096]);
}

/// Returns a random number below 100; it needs no secrecy.
fn percent() -> u8 {
    (RandomState::new().build_hasher().finish() % 100) as u8
}
