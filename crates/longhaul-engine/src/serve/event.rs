//! Events of a server, for its log. They carry values; the sentences are the program's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use longhaul_core::wire::{Service, SessionId};

use crate::error::{EngineError, Result};
use crate::session::{KeysEvent, Lapse, PublicKey, ServedSession, Work};

/// Something that happened at a server.
#[derive(Debug)]
pub enum Event {
    /// A connection was closed before its client was known.
    Dropped {
        /// The client's address, where the kernel still knew it.
        address: Option<SocketAddr>,
        /// Why.
        reason: DropReason,
    },
    /// A client did not get through the handshake.
    NoHandshake {
        /// The client's address, where the kernel still knew it.
        address: Option<SocketAddr>,
        /// What failed.
        error: EngineError,
    },
    /// A session has begun: the client is known and its turn has come.
    Began(SessionStart),
    /// A session that got through the handshake has ended, whether it began or was refused.
    Ended(Box<SessionReport>),
    /// The list of authorised keys was read again.
    KeysRead {
        /// The keys in it.
        keys: usize,
        /// The sessions that end because their key is gone.
        ended: usize,
    },
    /// A client with a listed key was not let in.
    KeyDenied {
        /// Its key's fingerprint.
        fingerprint: String,
        /// The client's address.
        address: IpAddr,
        /// Why.
        lapse: Lapse,
    },
    /// The list of authorised keys has changed and cannot be used; the old one stays in force.
    KeysKept {
        /// What is wrong with the new one.
        error: EngineError,
    },
}

impl From<KeysEvent> for Event {
    fn from(event: KeysEvent) -> Self {
        match event {
            KeysEvent::Reloaded { keys, ended } => Event::KeysRead { keys, ended },
            KeysEvent::Kept(error) => Event::KeysKept { error },
            KeysEvent::Denied { fingerprint, address, lapse } => {
                Event::KeyDenied { fingerprint, address, lapse }
            }
        }
    }
}

/// Why a connection was closed before its client was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// It sent nothing in time, or was closed by the client first.
    Silent,
    /// It is a data connection that belongs to no session, or proves nothing.
    NoSession,
    /// Too many connections are open.
    Connections,
    /// Too many connections of clients that are not known yet are open.
    Unauthenticated,
    /// Too many connections of its address are open.
    Address,
    /// Its address keeps failing and is shut out for a time.
    Penalty(Duration),
}

/// The client of a session.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// Its address; `None` over ssh and within one process.
    pub address: Option<SocketAddr>,
    /// Names the session; both ends have it.
    pub session: Option<SessionId>,
    /// Its key; `None` where the channel needs none.
    pub key: Option<PublicKey>,
    /// Whether the key is in the authorised list.
    pub authorised: bool,
    /// The comment after the key there.
    pub comment: Option<String>,
}

/// A session at its begin.
#[derive(Debug, Clone)]
pub struct SessionStart {
    /// Who.
    pub client: Client,
    /// The service.
    pub service: Service,
    /// How long it waited for its turn.
    pub waited: Duration,
}

/// A session at its end.
#[derive(Debug)]
pub struct SessionReport {
    /// Who.
    pub client: Client,
    /// The service; `None` if the client did not get to ask for one.
    pub service: Option<Service>,
    /// Whether it began; otherwise it was refused or lost before.
    pub began: bool,
    /// From the connection to the end.
    pub duration: Duration,
    /// What was done.
    pub work: Work,
    /// How it ended.
    pub outcome: Result<()>,
}

impl Client {
    /// The client of `session` at `address`.
    pub fn of(session: &ServedSession, address: Option<SocketAddr>) -> Self {
        Client {
            address: address.map(canonical),
            session: Some(session.streams.secret().session_id()),
            key: session.key,
            authorised: session.authorised,
            comment: session.grant.comment.clone(),
        }
    }
}

/// An IPv4 client of an IPv6 socket has its IPv4 address.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip().to_canonical();
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use crossbeam_channel::{Sender, unbounded};
    use longhaul_core::wire::RefusalKind;

    use super::*;
    use crate::serve::Services;
    use crate::serve::testing::TestServer;
    use crate::session::Operation;

    /// Refuses diagnoses and answers one message; hands its events to the test.
    struct Recorder(Sender<Event>);

    impl Services for Recorder {
        fn refusal(&self, service: Service, _: bool) -> Option<(RefusalKind, String)> {
            (service == Service::Diagnose).then(|| (RefusalKind::NotAuthorised, "no".to_owned()))
        }

        fn run(&self, _: Service, mut session: ServedSession) -> Result<()> {
            session.record.asked(Operation::Get, [Path::new("run17")]);
            let word: String = session.receiver.receive()?;
            session.sender.send(&word)
        }

        fn log(&self, event: Event) {
            let _ = self.0.send(event);
        }
    }

    #[test]
    fn every_connection_leaves_its_events() {
        let (say, heard) = unbounded();
        let server = TestServer::with(|_| Arc::new(Recorder(say)));
        let next = || heard.recv_timeout(Duration::from_secs(20)).expect("an event comes");

        let (sender, mut receiver, dialer) = server.session(Service::Copy).unwrap().split();
        let id = dialer.secret().session_id();
        sender.send(&"hello").unwrap();
        assert_eq!(receiver.receive::<String>().unwrap(), "hello");
        let Event::Began(start) = next() else { panic!("it does not begin") };
        assert_eq!((start.service, start.client.session), (Service::Copy, Some(id)));
        assert!(start.client.key.is_some() && start.client.authorised);
        let Event::Ended(report) = next() else { panic!("it does not end") };
        assert!(report.began && report.outcome.is_ok(), "{report:?}");
        assert_eq!(report.client.session, Some(id));
        assert_eq!(report.work.operation, Some(Operation::Get));
        assert_eq!(report.work.paths, [PathBuf::from("run17")]);

        assert!(server.session(Service::Diagnose).is_err());
        let Event::Ended(report) = next() else { panic!("a refusal is no event") };
        assert_eq!((report.began, report.service), (false, Some(Service::Diagnose)));
        assert!(matches!(report.outcome, Err(EngineError::Refused { .. })), "{report:?}");

        let strange = |bytes: &[u8]| {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            socket.write_all(bytes).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
            socket.local_addr().ok()
        };
        let from = strange(&[0x16; 100]);
        assert!(matches!(next(), Event::NoHandshake { address, .. } if address == from));
        let from = strange(&[b'G'; 100]);
        let Event::Dropped { address, reason } = next() else { panic!("it is served") };
        assert_eq!((address, reason), (from, DropReason::NoSession));
    }

    #[test]
    fn an_ipv4_client_has_an_ipv4_address() {
        let mapped = "[::ffff:192.0.2.7]:5210".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "192.0.2.7:5210");
    }
}
