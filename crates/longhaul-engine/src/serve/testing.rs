//! A server within the process for tests of the services.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use longhaul_core::wire::{RefusalKind, Service};

use super::{ClientLimits, Listener, ServeEvent, ServerKeys, Services};
use crate::error::Result;
use crate::session::{
    AuthorizedKeys, ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity,
    ServedSession, Session, connect,
};

/// One service for all clients.
struct Only<F> {
    serve: F,
    outcomes: Sender<Result<()>>,
}

impl<F: Fn(ServedSession) -> Result<()> + Send + Sync> Services for Only<F> {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, session: ServedSession) -> Result<()> {
        (self.serve)(session)
    }

    fn log(&self, event: ServeEvent) {
        if let ServeEvent::Ended(report) = event {
            let _ = self.outcomes.send(report.outcome);
        }
    }
}

/// A server on loopback that knows the key of its clients; it ends when dropped.
pub(crate) struct TestServer {
    config: ConfigDir,
    port: u16,
    outcomes: Receiver<Result<()>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl TestServer {
    /// Serves every session by `serve`.
    pub(crate) fn start(
        serve: impl Fn(ServedSession) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        TestServer::with(|outcomes| Arc::new(Only { serve, outcomes }))
    }

    /// Creates the services with `services`, which gets the channel of the outcomes, and serves
    /// with them.
    pub(crate) fn with(services: impl FnOnce(Sender<Result<()>>) -> Arc<dyn Services>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.address().port();
        let identity = Identity::load_or_create(&config).unwrap();
        let authorized = AuthorizedKeys::load(&config, identity.public()).unwrap();
        let (outcomes, ended) = unbounded();
        let services = services(outcomes);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = stop.clone();
            let host = Arc::new(ServerKeys { identity, authorized });
            move || listener.run(host, services, ClientLimits::default(), &stop)
        });
        TestServer { config, port, outcomes: ended, stop, thread: Some(thread), _dir: dir }
    }

    pub(crate) fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    pub(crate) fn session(&self, service: Service) -> Result<Session> {
        let identity = Identity::load_or_create(&self.config).unwrap();
        let options = ConnectOptions {
            identity: &identity,
            config: &self.config,
            policy: HostPolicy::RefuseChanged,
            family: Family::Any,
            local: None,
        };
        connect(&HostPort::new("127.0.0.1", self.port), service, &options)
    }

    /// Waits for the outcome of the next session.
    pub(crate) fn outcome(&self) -> Result<()> {
        self.outcomes.recv_timeout(Duration::from_secs(60)).expect("the server's session ends")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}
