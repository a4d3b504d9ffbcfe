//! Sessions over loopback: both ends in one process, real sockets, real TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_core::wire::{RefusalKind, Service};

use super::{ClientLimits, Host, Listener, Services};
use crate::error::{EngineError, Result};
use crate::session::{
    AuthorisedKeys, ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity,
    ServedSession, Session, connect,
};

/// Echoes one message and one data connection; files are for authorised clients alone.
#[derive(Default)]
struct Echo {
    ended: Mutex<Vec<String>>,
}

impl Services for Echo {
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)> {
        (service == Service::Copy && !authorised)
            .then(|| (RefusalKind::NotAuthorised, "this key may not".to_owned()))
    }

    fn run(&self, _: Service, mut session: ServedSession) -> Result<()> {
        let word: String = session.receiver.receive()?;
        session.sender.send(&word)?;
        let [mut socket] = session
            .streams
            .accept_all(1, Duration::from_secs(5))?
            .try_into()
            .expect("one was asked for");
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        session.sender.send(&text)
    }

    fn ended(&self, _: &str, outcome: Result<()>) {
        self.ended.lock().unwrap().push(format!("{outcome:?}"));
    }
}

struct TestServer {
    port: u16,
    echo: Arc<Echo>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    fn start(identity: Identity, config: &ConfigDir) -> Self {
        Self::start_with(identity, config, ClientLimits::default())
    }

    fn start_with(identity: Identity, config: &ConfigDir, clients: ClientLimits) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.address().port();
        let authorised = AuthorisedKeys::load(config, identity.public()).unwrap();
        let host = Arc::new(Host { identity, authorised });
        let echo = Arc::new(Echo::default());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (echo, stop) = (echo.clone(), stop.clone());
            move || listener.run(host, echo, clients, false, &stop)
        });
        TestServer { port, echo, stop, thread: Some(thread) }
    }

    /// A server and a session with it, both of one user.
    fn with_session(config: &ConfigDir, service: Service) -> (Self, Session) {
        let identity = Identity::load_or_create(config).unwrap();
        let server = TestServer::start(Identity::load_or_create(config).unwrap(), config);
        let options = ConnectOptions {
            identity: &identity,
            config,
            policy: HostPolicy::RequireKnown,
            family: Family::Any,
        };
        let session = connect(&server.address(), service, &options).unwrap();
        (server, session)
    }

    fn address(&self) -> HostPort {
        HostPort::new("127.0.0.1", self.port)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_session_carries_messages_and_a_data_connection() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let (server, session) = TestServer::with_session(&config, Service::Copy);
    let (sender, mut receiver, dialer) = session.split();
    // A stranger, a silent client and a wrong authenticator come first and disturb nothing.
    let mut stranger = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stranger.write_all(&[b'G'; 100]).unwrap();
    let _silent = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut forged = dialer.secret().hello(0);
    forged[40] ^= 1;
    TcpStream::connect(("127.0.0.1", server.port)).unwrap().write_all(&forged).unwrap();

    sender.send(&"hello").unwrap();
    assert_eq!(receiver.receive::<String>().unwrap(), "hello");
    let mut data = dialer.open(0, |_| Ok(())).unwrap();
    data.write_all(b"payload").unwrap();
    drop(data);
    assert_eq!(receiver.receive::<String>().unwrap(), "payload");
}

#[test]
fn messages_larger_than_every_buffer_pass_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let (_server, session) = TestServer::with_session(&config, Service::Test);
    let (sender, mut receiver, _dialer) = session.split();
    let long = "x".repeat(900_000);
    sender.send(&long).unwrap();
    assert_eq!(receiver.receive::<String>().unwrap(), long);
}

#[test]
fn files_are_refused_to_a_key_that_is_not_authorised() {
    let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [config, far_config] = [&ours, &theirs].map(|dir| ConfigDir::at(dir.path()));
    let identity = Identity::load_or_create(&config).unwrap();
    let server = TestServer::start(Identity::load_or_create(&far_config).unwrap(), &far_config);
    let open = |service, policy| {
        let options =
            ConnectOptions { identity: &identity, config: &config, policy, family: Family::Any };
        connect(&server.address(), service, &options).map(|_| ())
    };
    // Unknown server: not for files, until it was accepted once.
    let unknown = open(Service::Copy, HostPolicy::RequireKnown);
    assert!(matches!(unknown, Err(EngineError::KeyUnknown { .. })), "{unknown:?}");
    open(Service::Test, HostPolicy::RefuseChanged).unwrap();
    let refused = open(Service::Copy, HostPolicy::AcceptNew);
    assert!(
        matches!(refused, Err(EngineError::Refused { kind: RefusalKind::NotAuthorised, .. })),
        "{refused:?}"
    );
    let refused = open(Service::Copy, HostPolicy::RequireKnown);
    assert!(matches!(refused, Err(EngineError::Refused { .. })), "{refused:?}");
    assert!(!server.echo.ended.lock().unwrap().is_empty());
}

#[test]
fn a_server_with_another_key_is_refused_even_for_a_test() {
    let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [config, far_config] = [&ours, &theirs].map(|dir| ConfigDir::at(dir.path()));
    let identity = Identity::load_or_create(&config).unwrap();
    let server = TestServer::start(Identity::load_or_create(&far_config).unwrap(), &far_config);
    let impostor = Identity::generate().public();
    std::fs::write(config.file("known_hosts"), format!("{} {impostor}\n", server.address()))
        .unwrap();
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RefuseChanged,
        family: Family::Any,
    };
    let changed = connect(&server.address(), Service::Test, &options).map(|_| ());
    assert!(matches!(changed, Err(EngineError::KeyChanged { .. })), "{changed:?}");
}

#[test]
fn nothing_listening_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let identity = Identity::generate();
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RequireKnown,
        family: Family::Any,
    };
    let port = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap().address().port();
    let refused = connect(&HostPort::new("127.0.0.1", port), Service::Test, &options).map(|_| ());
    assert!(matches!(refused, Err(EngineError::Connect { .. })), "{refused:?}");
}
