use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use longhaul_core::wire::{FarReady, RefusalKind, Service, write_frame};
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::flow::{self, FlowLimits};
use longhaul_engine::ladder;
use longhaul_engine::path;
use longhaul_engine::serve::{Listener, Services, serve_session};
use longhaul_engine::session::{
    Grant, ServedSession, SessionRegistry, SessionSecret, control, random_keying_material,
};
use longhaul_engine::{EngineError, Result};

/// The services for one client that is this user already: the whole file system, with this user's
/// rights, tests, and surveys of the path.
struct OwnFiles {
    stop: Arc<AtomicBool>,
}

impl Services for OwnFiles {
    fn refusal(&self, service: Service, _authorised: bool) -> Option<(RefusalKind, String)> {
        (service == Service::ThirdParty).then(|| {
            let reason = "tests between two servers do not run over ssh";
            (RefusalKind::NotAuthorised, reason.to_owned())
        })
    }

    fn run(&self, service: Service, session: ServedSession) -> Result<()> {
        match service {
            Service::Test => flow::serve(session, &FlowLimits::default()),
            Service::Path => path::serve(session, &FlowLimits::default()),
            Service::Rung => ladder::serve(session, &Tree::anywhere(), &self.stop),
            Service::Copy | Service::ThirdParty => {
                copy::serve(session, &Tree::anywhere(), &self.stop)
            }
        }
    }

    fn ended(&self, _: &str, _: Result<()>) {}
}

/// A listener for the data connections of one session, running on its own thread.
pub(super) struct DataPort {
    pub(super) registry: SessionRegistry,
    pub(super) port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DataPort {
    pub(super) fn open(bind: IpAddr) -> Result<Self> {
        let listener = match Listener::bind(SocketAddr::new(bind, 0)) {
            // A host without IPv6 has no wildcard for both.
            Err(_) if bind == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                Listener::bind(SocketAddr::new([0, 0, 0, 0].into(), 0))?
            }
            listener => listener?,
        };
        let port = listener.address().port();
        let registry = SessionRegistry::default();
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (registry, over) = (registry.clone(), over.clone());
            move || listener.run_data(&registry, &over)
        });
        Ok(DataPort { registry, port, over, thread: Some(thread) })
    }
}

impl Drop for DataPort {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one client on a control channel that needs no proof of who the client is.
pub(super) fn serve_far(
    reader: impl Read + AsFd + Send + 'static,
    writer: impl Write + AsFd + Send + 'static,
    data: &DataPort,
    secret: SessionSecret,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let streams = data.registry.register(secret);
    let (sender, receiver) = control(reader, writer, "the near side");
    let session =
        ServedSession { sender, receiver, streams, authorised: true, grant: Grant::default() };
    serve_session(session, &OwnFiles { stop })
}

/// `longhaul serve --stdio`: the far end of an ssh connection. With `loopback` its data
/// connections come from this host alone, through ssh as well.
///
/// # Errors
/// What went wrong, which the near side has been told where it could be.
pub(crate) fn serve_stdio(loopback: bool, stop: Arc<AtomicBool>) -> Result<()> {
    let bind = if loopback { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let data = DataPort::open(bind)?;
    let secret = random_keying_material();
    // "CLIENT-IP CLIENT-PORT SERVER-IP SERVER-PORT", sshd(8).
    let address = std::env::var("SSH_CONNECTION")
        .ok()
        .and_then(|connection| connection.split(' ').nth(2)?.parse().ok());
    let ready = FarReady { port: data.port, address, secret };
    let failed = |source| EngineError::Control { peer: "the near side".to_owned(), source };
    // Not the standard library's handles: what they buffer, nobody can wait for.
    let pipe = |fd: BorrowedFd<'_>| {
        let owned = fd.try_clone_to_owned();
        owned.map(File::from).map_err(|error| failed(error.into()))
    };
    let (input, mut output) = (pipe(std::io::stdin().as_fd())?, pipe(std::io::stdout().as_fd())?);
    write_frame(&mut output, &ready).map_err(failed)?;
    let secret = SessionSecret::from_keying_material(&secret);
    serve_far(input, output, &data, secret, stop)
}
