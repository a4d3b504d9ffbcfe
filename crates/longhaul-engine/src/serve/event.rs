//! The events of a server, for its log. They carry values; the program makes the sentences.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::result::Reason;
use longhaul_core::wire::{Service, SessionId};

use super::reach::is_out_of_reach;
use crate::error::{EngineError, Result};
use crate::session::{
    IgnoredLines, KeyLapse, KeysEvent, PublicKey, ServedSession, SessionWork, canonical,
};

/// An event of a server.
#[derive(Debug)]
pub enum ServeEvent {
    /// A connection was closed before its client was known.
    Dropped {
        /// The client's address, if the kernel still knew it.
        address: Option<SocketAddr>,
        /// The reason.
        reason: CloseReason,
    },
    /// A client failed the handshake.
    NoHandshake {
        /// The client's address, if the kernel still knew it.
        address: Option<SocketAddr>,
        /// The error.
        error: EngineError,
    },
    /// A session has begun: the client is known, and its turn has come.
    Began(SessionStart),
    /// A session that completed the handshake has ended, whether it began or was refused.
    Ended(Box<SessionReport>),
    /// A client of another program has left, after its test or refused.
    Guest(Box<GuestReport>),
    /// The list of authorized keys was read again.
    KeysRead {
        /// The number of keys in it.
        keys: usize,
        /// The sessions that end because their key was removed.
        ended: usize,
        /// The directories of keys that the server may open only after a restart, because Landlock
        /// confined it before they were named.
        out_of_reach: Vec<PathBuf>,
        /// The lines without a valid key.
        ignored: IgnoredLines,
    },
    /// A client with a listed key was refused.
    KeyDenied {
        /// The key's fingerprint.
        fingerprint: String,
        /// The client's address.
        address: IpAddr,
        /// The reason.
        lapse: KeyLapse,
    },
    /// The list of authorized keys has changed and is invalid; the old one stays in force.
    KeysKept {
        /// The error in the new list.
        error: EngineError,
    },
}

impl From<KeysEvent> for ServeEvent {
    fn from(event: KeysEvent) -> Self {
        match event {
            KeysEvent::Reloaded { keys, ended, roots, ignored } => {
                let out_of_reach = roots.into_iter().filter(|root| is_out_of_reach(root)).collect();
                ServeEvent::KeysRead { keys, ended, out_of_reach, ignored }
            }
            KeysEvent::Kept(error) => ServeEvent::KeysKept { error },
            KeysEvent::Denied { fingerprint, address, lapse } => {
                ServeEvent::KeyDenied { fingerprint, address, lapse }
            }
        }
    }
}

/// The reason why a connection was closed before its client was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It sent nothing in time, or the client closed it.
    Silent,
    /// It is a data connection without a session or a valid proof.
    NoSession,
    /// Too many connections are open.
    Connections,
    /// Too many unauthenticated connections are open.
    Unauthenticated,
    /// Too many connections of its address are open.
    Address,
    /// Connections of its address keep failing; it is refused for this time.
    Penalty(Duration),
}

/// The client of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionClient {
    /// The address; `None` over ssh and within one process.
    pub address: Option<SocketAddr>,
    /// The session's id, which both ends know.
    pub session: Option<SessionId>,
    /// The key; `None` if the channel needs none.
    pub key: Option<PublicKey>,
    /// True if the key is in the authorized list.
    pub authorized: bool,
    /// The comment of the key in the list.
    pub comment: Option<String>,
}

/// The start of a session.
#[derive(Debug, Clone)]
pub struct SessionStart {
    /// The client.
    pub client: SessionClient,
    /// The service.
    pub service: Service,
    /// The time in the queue.
    pub waited: Duration,
}

/// The end of a session.
#[derive(Debug)]
pub struct SessionReport {
    /// The client.
    pub client: SessionClient,
    /// The service; `None` if the client did not request one.
    pub service: Option<Service>,
    /// True if the session began; otherwise it was refused or lost before.
    pub began: bool,
    /// The time from the connection to the end.
    pub duration: Duration,
    /// The work that was done.
    pub work: SessionWork,
    /// The outcome.
    pub outcome: Result<()>,
}

impl SessionClient {
    /// Returns the client of `session` at `address`.
    pub fn of(session: &ServedSession, address: Option<SocketAddr>) -> Self {
        SessionClient {
            address: address.map(canonical),
            session: Some(session.streams.secret().session_id()),
            key: session.key,
            authorized: session.authorized,
            comment: session.grant.comment.clone(),
        }
    }
}

/// The end of a test of another program's client, for the log.
#[derive(Debug)]
pub struct GuestReport {
    /// The name of the client's program.
    pub program: &'static str,
    /// The version that the client stated.
    pub version: Option<String>,
    /// The client's address.
    pub address: SocketAddr,
    /// True if the test began; otherwise it was refused or lost before.
    pub began: bool,
    /// The time from the connection to the end.
    pub duration: Duration,
    /// The work that was done.
    pub work: SessionWork,
    /// The reason for the rate, as far as this end knows it; per direction.
    pub reasons: Vec<Reason>,
    /// The outcome.
    pub outcome: Result<()>,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::sync::Arc;

    use crossbeam_channel::{Sender, unbounded};
    use longhaul_core::wire::RefusalKind;

    use super::*;
    use crate::serve::Services;
    use crate::serve::testing::TestServer;
    use crate::session::Operation;

    /// Refuses diagnoses and answers one message; passes its events to the test.
    struct Recorder(Sender<ServeEvent>);

    impl Services for Recorder {
        fn refusal(&self, service: Service, _: bool) -> Option<(RefusalKind, String)> {
            (service == Service::Diagnose).then(|| (RefusalKind::NotAuthorized, "no".to_owned()))
        }

        fn run(&self, _: Service, mut session: ServedSession) -> Result<()> {
            session.record.note_request(Operation::Get, [Path::new("run17")]);
            let word: String = session.receiver.receive()?;
            session.sender.send(&word)
        }

        fn log(&self, event: ServeEvent) {
            let _ = self.0.send(event);
        }
    }

    #[test]
    fn every_connection_is_logged() {
        let (reports, received) = unbounded();
        let server = TestServer::with(|_| Arc::new(Recorder(reports)));
        let next = || received.recv_timeout(Duration::from_secs(20)).expect("an event comes");

        let (sender, mut receiver, dialer) = server.session(Service::Copy).unwrap().split();
        let id = dialer.secret().session_id();
        sender.send(&"hello").unwrap();
        assert_eq!(receiver.receive::<String>().unwrap(), "hello");
        let ServeEvent::Began(start) = next() else { panic!("it does not begin") };
        assert_eq!((start.service, start.client.session), (Service::Copy, Some(id)));
        assert!(start.client.key.is_some() && start.client.authorized);
        let ServeEvent::Ended(report) = next() else { panic!("it does not end") };
        assert!(report.began && report.outcome.is_ok(), "{report:?}");
        assert_eq!(report.client.session, Some(id));
        assert_eq!(report.work.operation, Some(Operation::Get));
        assert_eq!(report.work.paths, [PathBuf::from("run17")]);

        assert!(server.session(Service::Diagnose).is_err());
        let ServeEvent::Ended(report) = next() else { panic!("a refusal is no event") };
        assert_eq!((report.began, report.service), (false, Some(Service::Diagnose)));
        assert!(matches!(report.outcome, Err(EngineError::Refused { .. })), "{report:?}");

        let strange = |bytes: &[u8]| {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            socket.write_all(bytes).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
            socket.local_addr().ok()
        };
        let from = strange(&[0x16; 100]);
        assert!(matches!(next(), ServeEvent::NoHandshake { address, .. } if address == from));
        let from = strange(&[b'G'; 100]);
        let ServeEvent::Dropped { address, reason } = next() else { panic!("it is served") };
        assert_eq!((address, reason), (from, CloseReason::NoSession));
    }
}
