//! Sessions over loopback: both ends in one process, with real sockets and TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::wire::{FrameError, PROTOCOL_VERSION, RefusalKind, Service, Welcome};

use super::limiter::ConnectionLimiter;
use super::penalties::Failure;
use super::startups::StartupLimits;
use super::{ClientLimits, Listener, ServeEvent, ServerKeys, Services, serve_session};
use crate::error::{EngineError, HandshakeRefusal, Result};
use crate::session::{
    AuthorizedKeys, ConfigDir, ConnectOptions, ControlReceiver, ControlSender, Family, Grant,
    HostPolicy, HostPort, Identity, ServedSession, Session, SessionRegistry, SessionSecret,
    WorkRecord, connect, connect_queued, control, greet, random_keying_material,
};
use crate::share::Quota;

/// Echoes one message and one data connection; only authorized clients reach files.
#[derive(Default)]
struct Echo {
    ended: Mutex<Vec<String>>,
}

impl Services for Echo {
    fn refusal(&self, service: Service, authorized: bool) -> Option<(RefusalKind, String)> {
        (service == Service::Copy && !authorized)
            .then(|| (RefusalKind::NotAuthorized, "this key may not".to_owned()))
    }

    fn run(&self, _: Service, mut session: ServedSession) -> Result<()> {
        let word: String = session.receiver.receive()?;
        session.sender.send(&word)?;
        let [mut socket] = session
            .streams
            .accept_all(1, Duration::from_secs(20))?
            .try_into()
            .expect("one was asked for");
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        session.sender.send(&text)
    }

    fn log(&self, event: ServeEvent) {
        let outcome = match event {
            ServeEvent::Ended(report) => report.outcome,
            ServeEvent::NoHandshake { error, .. } => Err(error),
            _ => return,
        };
        self.ended.lock().unwrap().push(format!("{outcome:?}"));
    }
}

struct TestServer {
    port: u16,
    keys: AuthorizedKeys,
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
        let authorized = AuthorizedKeys::load(config, identity.public()).unwrap();
        let keys = authorized.clone();
        let host = Arc::new(ServerKeys { identity, authorized });
        let echo = Arc::new(Echo::default());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (echo, stop) = (echo.clone(), stop.clone());
            move || listener.run(host, echo, clients, &stop)
        });
        TestServer { port, keys, echo, stop, thread: Some(thread) }
    }

    /// Returns a server and a session with it, both of one user.
    fn with_session(config: &ConfigDir, service: Service) -> (Self, Session) {
        let identity = Identity::load_or_create(config).unwrap();
        let server = TestServer::start(Identity::load_or_create(config).unwrap(), config);
        let options = ConnectOptions {
            identity: &identity,
            config,
            policy: HostPolicy::RequireKnown,
            family: Family::Any,
            local: None,
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
    // An unknown client, a silent client and an invalid authenticator arrive first and disturb
    // nothing.
    let mut prober = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    prober.write_all(&[b'G'; 100]).unwrap();
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
fn files_are_refused_to_a_key_that_is_not_authorized() {
    let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [config, far_config] = [&ours, &theirs].map(|dir| ConfigDir::at(dir.path()));
    let identity = Identity::load_or_create(&config).unwrap();
    let server = TestServer::start(Identity::load_or_create(&far_config).unwrap(), &far_config);
    let open = |service, policy| {
        let options = ConnectOptions {
            identity: &identity,
            config: &config,
            policy,
            family: Family::Any,
            local: None,
        };
        connect(&server.address(), service, &options).map(|_| ())
    };
    // An unknown server is refused for files until it was accepted once.
    let unknown = open(Service::Copy, HostPolicy::RequireKnown);
    assert!(matches!(unknown, Err(EngineError::KeyUnknown { .. })), "{unknown:?}");
    open(Service::Test, HostPolicy::RefuseChanged).unwrap();
    let refused = open(Service::Copy, HostPolicy::AcceptNew);
    assert!(
        matches!(refused, Err(EngineError::Refused { kind: RefusalKind::NotAuthorized, .. })),
        "{refused:?}"
    );
    let refused = open(Service::Copy, HostPolicy::RequireKnown);
    assert!(matches!(refused, Err(EngineError::Refused { .. })), "{refused:?}");
    assert!(!server.echo.ended.lock().unwrap().is_empty());
}

#[test]
fn a_key_that_is_removed_loses_its_session_and_others_go_on() {
    let [first, second, far] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [first, second, far] = [&first, &second, &far].map(|dir| ConfigDir::at(dir.path()));
    let [alice, bob] = [&first, &second].map(|config| Identity::load_or_create(config).unwrap());
    let list = far.file("authorized_keys");
    let lines = format!("max-sessions=1 {}\n{}\n", alice.public(), bob.public());
    std::fs::write(&list, lines).unwrap();
    let server = TestServer::start(Identity::load_or_create(&far).unwrap(), &far);
    let open = |identity, config| {
        let policy = HostPolicy::AcceptNew;
        let options = ConnectOptions { identity, config, policy, family: Family::Any, local: None };
        connect(&server.address(), Service::Copy, &options)
    };
    let (sender, mut receiver, _dialer) = open(&alice, &first).unwrap().split();
    sender.send(&"hello").unwrap();
    assert_eq!(receiver.receive::<String>().unwrap(), "hello");
    let second_session = open(&alice, &first).map(|_| ());
    let limit = RefusalKind::Limit;
    assert!(
        matches!(&second_session, Err(EngineError::Refused { kind, .. }) if *kind == limit),
        "{second_session:?}"
    );
    let (others, mut others_answers, _others_dialer) = open(&bob, &second).unwrap().split();

    std::fs::write(&list, format!("{}\n", bob.public())).unwrap();
    let _watch = server.keys.watch(Arc::default(), |_| ()).unwrap();
    receiver.set_timeout(Some(Duration::from_secs(30))).unwrap();
    let ended = receiver.receive::<String>();
    assert!(
        matches!(&ended, Err(EngineError::Control { source: FrameError::Closed, .. })),
        "{ended:?}"
    );
    others.send(&"still here").unwrap();
    assert_eq!(others_answers.receive::<String>().unwrap(), "still here");
    let refused = open(&alice, &first).map(|_| ());
    assert!(matches!(refused, Err(EngineError::Refused { .. })), "{refused:?}");
    let ended = || server.echo.ended.lock().unwrap().join(" ");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ended().contains("Lapsed") {
        assert!(Instant::now() < deadline, "{}", ended());
        std::thread::sleep(Duration::from_millis(20));
    }
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
        local: None,
    };
    let changed = connect(&server.address(), Service::Test, &options).map(|_| ());
    assert!(matches!(changed, Err(EngineError::KeyChanged { .. })), "{changed:?}");
}

#[test]
fn a_closed_port_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let identity = Identity::generate();
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RequireKnown,
        family: Family::Any,
        local: None,
    };
    let port = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap().address().port();
    let refused = connect(&HostPort::new("127.0.0.1", port), Service::Test, &options).map(|_| ());
    assert!(matches!(refused, Err(EngineError::Connect { .. })), "{refused:?}");
}

/// Answers every connection with these bytes and closes it.
fn answering(bytes: &'static [u8]) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.write_all(bytes);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
        }
    });
    port
}

#[test]
fn a_refused_client_gets_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let identity = Identity::generate();
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RefuseChanged,
        family: Family::Any,
        local: None,
    };
    for (answer, expected, words) in [
        (&[0x15, 3, 3, 0, 2, 2, 80][..], HandshakeRefusal::Crowded, "too many unauthenticated"),
        (
            &[0x15, 3, 3, 0, 2, 2, 49][..],
            HandshakeRefusal::Penalty,
            "refuses connections from this",
        ),
        (&[][..], HandshakeRefusal::Closed, "closed the connection during the TLS handshake"),
    ] {
        let target = HostPort::new("127.0.0.1", answering(answer));
        let error = connect(&target, Service::Test, &options).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let EngineError::HandshakeRefusal { reason, .. } = error else { panic!("{error:?}") };
        assert_eq!(reason, expected);
    }
}

#[test]
fn an_address_that_keeps_failing_is_refused() {
    let limiter = ConnectionLimiter::new(StartupLimits::default(), true, Quota::new(100));
    let source = "198.51.100.1".parse().unwrap();
    (0..4).for_each(|_| limiter.failed(source, Failure::Authentication));
    let (near, far) = pair();
    // Loopback is exempt, so the penalty of another address is checked.
    assert!(limiter.admit_from(source, far).is_err());
    near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut alert = Vec::new();
    let _ = (&near).read_to_end(&mut alert);
    assert_eq!(alert, [0x15, 3, 3, 0, 2, 2, 49]);
    let (_near, far) = pair();
    assert!(limiter.admit(far).is_ok());
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Two ends of a pipe: a client, and the server's side of its session.
fn piped() -> ((ControlSender, ControlReceiver), ServedSession) {
    let (near, far) = UnixStream::pair().unwrap();
    let halves = |socket: UnixStream, peer| control(socket.try_clone().unwrap(), socket, peer);
    let (sender, receiver) = halves(far, "the client");
    let secret = SessionSecret::from_keying_material(&random_keying_material());
    let streams = SessionRegistry::default().register(secret);
    let client = halves(near, "the server");
    let server = ServedSession {
        sender,
        receiver,
        streams,
        authorized: true,
        grant: Grant::default(),
        key: None,
        record: WorkRecord::default(),
        host_keys: None,
        rate: None,
        quota: None,
    };
    (client, server)
}

#[test]
fn a_client_of_another_version_is_refused() {
    for (protocol, service) in [(1, "\"test\""), (99, "{\"dance\":\"tango\"}")] {
        let ((sender, mut receiver), session) = piped();
        let hello: serde_json::Value = serde_json::from_str(&format!(
            "{{\"protocol\":{protocol},\"version\":\"7.5\",\"service\":{service}}}"
        ))
        .unwrap();
        sender.send(&hello).unwrap();
        let refused = serve_session(session, &Echo::default());
        assert!(matches!(refused, Err(EngineError::Refused { kind: RefusalKind::Version, .. })));
        let Welcome::Refused { kind, reason } = receiver.receive().unwrap() else {
            panic!("it was welcome")
        };
        assert_eq!(kind, RefusalKind::Version);
        let words = format!("the client {protocol} (longhaul 7.5); use the same version at both");
        assert!(reason.contains(&words), "{reason}");
    }
}

#[test]
fn a_server_of_another_version_is_reported() {
    let ((sender, mut receiver), session) = piped();
    let reason = "it uses protocol 99 (longhaul 7.5), the client 2 (longhaul 0.1.0)".to_owned();
    let answer = Welcome::Refused { kind: RefusalKind::Version, reason };
    session.sender.send(&answer).unwrap();
    let refused = greet(&sender, &mut receiver, Service::Test, |_| true).unwrap_err();
    assert!(
        matches!(refused, EngineError::Refused { kind: RefusalKind::Version, .. }),
        "{refused:?}"
    );
    assert!(
        refused.to_string().starts_with("the server refused: it uses protocol 99"),
        "{refused}"
    );
}

#[test]
fn an_unknown_service_is_refused() {
    let ((sender, mut receiver), session) = piped();
    sender.send(&serde_json::json!({"protocol": PROTOCOL_VERSION, "service": "dance"})).unwrap();
    let refused = serve_session(session, &Echo::default());
    assert!(matches!(refused, Err(EngineError::Refused { kind: RefusalKind::Invalid, .. })));
    assert!(matches!(receiver.receive().unwrap(), Welcome::Refused { .. }));
}

#[test]
fn clients_wait_for_their_turn_and_receive_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let identity = Identity::load_or_create(&config).unwrap();
    let alone = ClientLimits { at_once: 1, waiting: 1, ..ClientLimits::default() };
    let ours = Identity::load_or_create(&config).unwrap();
    let server = TestServer::start_with(ours, &config, alone);
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RequireKnown,
        family: Family::Any,
        local: None,
    };
    let first = connect(&server.address(), Service::Test, &options).unwrap();
    let (reports, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            connect_queued(&server.address(), Service::Test, &options, |place| {
                reports.send(place).unwrap();
                true
            })
        });
        assert_eq!(received.recv().unwrap(), 1);
        // One may wait; the next is turned away.
        let third = connect(&server.address(), Service::Test, &options).map(|_| ());
        let Err(EngineError::Refused { kind: RefusalKind::Limit, reason, .. }) = third else {
            panic!("{third:?}")
        };
        assert_eq!(reason, "its queue of 1 client is full; try again later");
        drop(first);
        drop(second.join().unwrap().unwrap());
    });
    // A client that does not wait leaves without taking a turn.
    let first = connect(&server.address(), Service::Test, &options).unwrap();
    let gone = connect_queued(&server.address(), Service::Test, &options, |_| false).map(|_| ());
    assert!(matches!(gone, Err(EngineError::Interrupted)), "{gone:?}");
    drop(first);
    // The server notices later that both have left.
    let left = std::time::Instant::now();
    while let Err(error) = connect(&server.address(), Service::Test, &options).map(drop) {
        assert!(left.elapsed() < Duration::from_secs(30), "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn one_off_ends_after_an_authenticated_client_only() {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::at(dir.path());
    let identity = Identity::load_or_create(&config).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = listener.address().port();
    let ours = Identity::load_or_create(&config).unwrap();
    let authorized = AuthorizedKeys::load(&config, ours.public()).unwrap();
    let host = Arc::new(ServerKeys { identity: ours, authorized });
    let echo = Arc::new(Echo::default());
    let thread = std::thread::spawn({
        let echo = echo.clone();
        let stop = AtomicBool::new(false);
        let clients = ClientLimits { one_off: true, ..ClientLimits::default() };
        move || listener.run(host, echo, clients, &stop)
    });
    // It begins like a handshake but is invalid.
    let mut prober = TcpStream::connect(("127.0.0.1", port)).unwrap();
    prober.write_all(&[0x16; 100]).unwrap();
    let _ = prober.read_to_end(&mut Vec::new());
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RequireKnown,
        family: Family::Any,
        local: None,
    };
    let session = connect(&HostPort::new("127.0.0.1", port), Service::Test, &options).unwrap();
    drop(session);
    thread.join().unwrap();
    assert_eq!(echo.ended.lock().unwrap().len(), 2);
}
