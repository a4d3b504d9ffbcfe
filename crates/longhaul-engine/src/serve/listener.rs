//! Listens on one port, and accepts connections.
//!
//! Every connection has a thread of its own until it is passed to a session, their number is
//! bounded, and each has a deadline for its first bytes: a silent or vanished client costs one
//! thread for seconds, never the server.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::wire::{RefusalKind, Service};
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::Server;
use super::event::Event;
use super::gate::{Fresh, Gate};
use super::limits::ClientLimits;
use super::startups::StartupLimits;
use crate::error::{EngineError, Result};
use crate::quota::Quota;
use crate::session::{AuthorisedKeys, Identity, ServedSession, SessionRegistry, UdpDoor};

/// How often the accept loop looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
const LISTEN_BACKLOG: i32 = 256;
/// How many free TCP ports are tried for one that is free for UDP too.
const FREE_PORT_TRIES: u32 = 16;
/// How long sessions may take to end once the server is told to.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAVE_CHECK: Duration = Duration::from_millis(10);

/// A bound listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// Lets UDP flows in, on the same port.
    door: UdpDoor,
    address: SocketAddr,
}

/// Who the server is and whom it trusts.
#[derive(Debug)]
pub struct Host {
    /// Its key pair.
    pub identity: Identity,
    /// The keys that may reach files.
    pub authorised: AuthorisedKeys,
}

/// What is done with the sessions; one for each server.
pub trait Services: Send + Sync {
    /// Why `service` is not for this client, or `None` if it is.
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)>;

    /// Runs the service to its end on the calling thread.
    ///
    /// # Errors
    /// What went wrong; it is reported and the server goes on.
    fn run(&self, service: Service, session: ServedSession) -> Result<()>;

    /// Records an event; called on the thread of the connection, which waits for it.
    fn log(&self, _event: Event) {}
}

impl Listener {
    /// Listens on `address`, for TCP (and MPTCP, where the kernel has it) and UDP; port 0 takes
    /// any that is free for both. An IPv6 wildcard takes IPv4 as well.
    ///
    /// # Errors
    /// The address is taken, not ours, or not permitted.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |source| EngineError::Listen { address: address.to_string(), source };
        let mut tries = if address.port() == 0 { FREE_PORT_TRIES } else { 1 };
        loop {
            let socket = listen(address, Protocol::MPTCP)
                .or_else(|_| listen(address, Protocol::TCP))
                .map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            tries -= 1;
            match UdpDoor::bind(address) {
                Ok(door) => return Ok(Listener { socket, door, address }),
                // The port that was free for TCP is not for UDP.
                Err(_) if tries > 0 => {}
                Err(source) => {
                    return Err(EngineError::Listen { address: format!("UDP {address}"), source });
                }
            }
        }
    }

    /// The address listened on, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Admits the data connections of `registry` alone until `stop` is set: where the control
    /// channel is elsewhere, over ssh or opened by this end.
    pub fn run_data(self, registry: &SessionRegistry, stop: &AtomicBool) {
        let limits = StartupLimits::default();
        let gate = Gate::new(limits, false, Quota::new(limits.full as u64));
        self.accept_until(
            registry,
            || stop.load(Ordering::Relaxed),
            |socket| {
                let (registry, fresh) = (registry.clone(), gate.admit(socket));
                let Ok(Fresh { socket, deadline, place, .. }) = fresh else { return };
                spawn(move || {
                    registry.admit(socket, deadline, || drop(place));
                });
            },
        );
    }

    /// Serves until `stop` is set or, with `one_off`, one client has been served. Then the
    /// sessions still under way have a few seconds to put their things in order. What
    /// happens goes to [`Services::log`]. Connections are limited to what the process's limit of
    /// file descriptors allows, which the caller may raise before.
    pub fn run(
        self,
        host: Arc<Host>,
        services: Arc<dyn Services>,
        clients: ClientLimits,
        one_off: bool,
        stop: &AtomicBool,
    ) {
        let descriptors = longhaul_sys::descriptors::limit();
        let server = Server::new(host, services, clients, descriptors);
        let stopped =
            || stop.load(Ordering::Relaxed) || one_off && server.served.load(Ordering::Relaxed) > 0;
        self.accept_until(&server.registry, stopped, |socket| {
            if let Some(fresh) = server.admit(socket) {
                let server = server.clone();
                spawn(move || server.serve(fresh));
            }
        });
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        while server.sessions.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            thread::sleep(LEAVE_CHECK);
        }
    }

    fn accept_until(
        self,
        registry: &SessionRegistry,
        stopped: impl Fn() -> bool,
        mut take: impl FnMut(TcpStream),
    ) {
        let Listener { socket, door, .. } = self;
        let closed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| door.run(registry, || closed.load(Ordering::Relaxed)));
            while !stopped() {
                match socket.accept() {
                    Ok((socket, _)) => {
                        if socket.set_nonblocking(false).is_ok() {
                            take(socket);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        longhaul_sys::poll::readable(&socket, STOP_CHECK);
                    }
                    // A connection that was reset while it waited, or no file descriptors left:
                    // the next may do better, and a pause keeps the loop from spinning.
                    Err(_) => thread::sleep(STOP_CHECK),
                }
            }
            closed.store(true, Ordering::Relaxed);
        });
    }
}

/// A TCP socket that listens without blocking.
fn listen(address: SocketAddr, protocol: Protocol) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    let socket = TcpListener::from(socket);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Runs `work` on a thread of its own. A host that has none left drops the connection, which the
/// client sees as closed, and the server goes on.
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(thread::Builder::new().name("connection".into()).spawn(work));
}

/// Greets the one client of an ssh connection and runs the service it asks for, to its end.
///
/// # Errors
/// The client was refused, or the service failed.
pub fn serve_session(mut session: ServedSession, services: &dyn Services) -> Result<()> {
    let service = session.asked(|service, authorised| services.refusal(service, authorised))?;
    session.welcome()?;
    session.receiver.set_timeout(None)?;
    services.run(service, session)
}
