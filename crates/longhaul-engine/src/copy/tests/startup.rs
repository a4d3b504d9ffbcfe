//! The start of a copy: the number of its connections, and the order of its messages.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::CopyResult;
use longhaul_core::wire::copy::CopyRequest;
use longhaul_core::wire::{RefusalKind, Service};

use super::{CopySetup, bytes, options};
use crate::copy::{
    CopyProgress, CopyRun, CopySecret, Reconnect, SourcePlan, SourceRoot, Tree, push,
};
use crate::error::{EngineError, Result};
use crate::session::{
    ConnectOptions, DescriptorSource, Family, Grant, HostPolicy, HostPort, Opening, ServedSession,
    SessionRegistry, connect_early, serve_tls,
};

const TIMEOUT: Duration = Duration::from_secs(60);
const STREAMS: u32 = 16;

fn growing() -> CopyOptions {
    CopyOptions { streams: Some(STREAMS), streams_may_grow: true, ..options() }
}

#[test]
fn a_copy_begins_with_the_given_number_of_connections() {
    let world = CopySetup::new();
    let data = bytes(40 << 20);
    fs::write(world.near("data"), &data).unwrap();
    let result = world.push(&["data"], "there", &growing()).unwrap();
    assert_eq!(result.summary.streams, STREAMS);
    assert!(fs::read(world.far("there")).unwrap() == data);
    let result = world.pull(&["there"], "back", &growing()).unwrap();
    assert_eq!(result.summary.streams, STREAMS);
    assert!(fs::read(world.near("back")).unwrap() == data);
}

/// Serves a session without an answer until the request and every data connection have arrived.
/// Returns the session and the number of its data connections.
fn silent_server(listener: &TcpListener, world: &CopySetup) -> (ServedSession, usize) {
    let registry = SessionRegistry::default();
    let deadline = Instant::now() + TIMEOUT;
    let socket = Arc::new(listener.accept().unwrap().0);
    let granted = |_: &_| Some(Grant::default());
    let opening = Opening { socket, deadline };
    let unbounded = |_| DescriptorSource::Unbounded;
    let mut session = serve_tls(opening, &world.identity, granted, &registry, unbounded).unwrap();
    assert_eq!(session.read_request(|_, _| None).unwrap(), Service::Copy);
    session.receiver.set_timeout(Some(TIMEOUT)).unwrap();
    let request: CopyRequest = session.receiver.receive().unwrap();
    assert!(matches!(request, CopyRequest::Receive { .. }));
    for _ in 0..STREAMS {
        let socket = Arc::new(listener.accept().unwrap().0);
        registry.admit(socket, deadline, || ());
    }
    let streams = session.streams.accept_all(STREAMS, TIMEOUT).unwrap();
    (session, streams.len())
}

#[test]
fn the_request_and_all_connections_precede_every_answer_of_the_server() {
    let world = CopySetup::new();
    fs::write(world.near("data"), bytes(1000)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    world.connect_through(listener.local_addr().unwrap().port());
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (session, streams) = silent_server(&listener, &world);
            session.refuse(RefusalKind::Files, "that was all".to_owned());
            streams
        });
        let refused = world.push_early("data", &growing());
        assert!(
            matches!(&refused, Err(EngineError::Refused { reason, .. }) if reason == "that was all"),
            "{refused:?}"
        );
        assert_eq!(server.join().unwrap(), STREAMS as usize);
    });
}

impl CopySetup {
    /// Pushes `source`, with the request before the server's first message.
    fn push_early(&self, source: &str, options: &CopyOptions) -> Result<CopyResult> {
        let mut connect = || {
            let options = ConnectOptions {
                identity: &self.identity,
                config: &self.config,
                policy: HostPolicy::RequireKnown,
                family: Family::Any,
                local: None,
            };
            let target = HostPort::new("127.0.0.1", self.entrance.load(Ordering::Relaxed));
            connect_early(&target, Service::Copy, &options, Box::new(|_| true))
        };
        let secret = CopySecret::load_or_create(&self.config);
        let (lost, give_up) = (&|_: &EngineError| (), Duration::ZERO);
        let line = Reconnect { connect: &mut connect, give_up, lost, secret: &secret, past: None };
        let roots = vec![SourceRoot::Path(self.near(source))];
        let plan = SourcePlan { tree: Tree::anywhere(), roots };
        let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
        let run = CopyRun { options, progress: &progress, stop: &stop };
        push(line, &plan, Path::new("there"), run)
    }
}
