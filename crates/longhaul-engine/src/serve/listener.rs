//! The listener of a server: accepts connections on one port.
//!
//! Every connection has a thread until it is passed to a session. The number of connections is
//! bounded, and each has a deadline for its first bytes: a silent or vanished client costs one
//! thread for seconds.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use socket2::{Domain, Protocol, Socket, Type};

use super::connection::Server;
use super::guest::{Gate, Guest};
use super::limiter::{ConnectionLimiter, Fresh};
use super::limits::ClientLimits;
use super::startups::StartupLimits;
use super::{ServerKeys, Services};
use crate::HASTE;
use crate::error::{EngineError, Result};
use crate::session::{SessionRegistry, UdpListener};
use crate::share::Quota;

/// The interval at which the accept loop checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100 / HASTE);
const LISTEN_BACKLOG: i32 = 256;
/// Connections whose data came with the SYN that the kernel accepts before their handshake ends.
const FAST_OPEN_PENDING: u16 = 64;
/// The number of free TCP ports that are tried for one that is free for UDP, too.
const FREE_PORT_TRIES: u32 = 16;
/// The time for sessions to end when the server stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAVE_CHECK: Duration = Duration::from_millis(10);

/// The services of a server, its limits, and the listeners for the clients of other programs.
pub struct Serving {
    /// The identity and the trusted keys.
    pub host: Arc<ServerKeys>,
    /// The services.
    pub services: Arc<dyn Services>,
    /// The limits on clients, which the guests share.
    pub clients: ClientLimits,
    /// The listeners for the clients of other programs.
    pub guests: Vec<Arc<dyn Guest>>,
}

/// Serves only the clients of other programs until `stop` is set or, with `one_off`, one client was
/// served.
pub fn serve_guests(serving: Serving, stop: &AtomicBool) {
    let Serving { host, services, clients, guests } = serving;
    let one_off = clients.one_off;
    let descriptors = longhaul_sys::process::descriptor_limit();
    let server = Server::new(host, services, clients, descriptors);
    let ending = Arc::new(AtomicBool::new(false));
    let gate = Gate::new(server.clone(), ending.clone());
    let stopped =
        || stop.load(Ordering::Relaxed) || one_off && server.served.load(Ordering::Relaxed) > 0;
    thread::scope(|scope| {
        start_guests(scope, &guests, &gate);
        while !stopped() {
            thread::sleep(LEAVE_CHECK);
        }
        ending.store(true, Ordering::Relaxed);
    });
}

/// Runs every guest on a thread.
fn start_guests<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    guests: &'scope [Arc<dyn Guest>],
    gate: &'scope Gate,
) {
    for guest in guests {
        let thread = thread::Builder::new().name(guest.program().into());
        drop(thread.spawn_scoped(scope, move || guest.run(gate)));
    }
}

/// A bound listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// Accepts UDP flows on the same port.
    udp: UdpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address` for TCP (and MPTCP if the kernel supports it) and UDP; port 0 takes one
    /// that is free for both. An IPv6 wildcard accepts IPv4, too.
    ///
    /// # Errors
    /// The address is in use, belongs to another host, or is not permitted.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |source| EngineError::Listen { address: address.to_string(), source };
        let mut tries = if address.port() == 0 { FREE_PORT_TRIES } else { 1 };
        loop {
            let socket = listen(address, Protocol::MPTCP)
                .or_else(|_| listen(address, Protocol::TCP))
                .map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            tries -= 1;
            match UdpListener::bind(address) {
                Ok(udp) => return Ok(Listener { socket, udp, address }),
                // The port is free for TCP but not for UDP.
                Err(_) if tries > 0 => {}
                Err(source) => {
                    return Err(EngineError::Listen { address: format!("UDP {address}"), source });
                }
            }
        }
    }

    /// Returns the local address with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Admits only the data connections of `registry` until `stop` is set, for sessions whose
    /// control channel is elsewhere.
    pub fn run_data(self, registry: &SessionRegistry, stop: &AtomicBool) {
        let limits = StartupLimits::default();
        let limiter = ConnectionLimiter::new(limits, false, Quota::new(limits.full as u64));
        self.accept_until(
            registry,
            || stop.load(Ordering::Relaxed),
            |socket| {
                let (registry, fresh) = (registry.clone(), limiter.admit(socket));
                let Ok(Fresh { socket, deadline, place, .. }) = fresh else { return };
                spawn(move || {
                    registry.admit(socket, deadline, || drop(place));
                });
            },
        );
    }

    /// Serves until `stop` is set or, if the limits are for one client, that was served. Running sessions then
    /// have a few seconds to end. Events go to [`Services::log`]. The process's limit of file
    /// descriptors limits the connections; the caller may raise it before.
    pub fn run(
        self,
        host: Arc<ServerKeys>,
        services: Arc<dyn Services>,
        clients: ClientLimits,
        stop: &AtomicBool,
    ) {
        self.run_with_guests(Serving { host, services, clients, guests: vec![] }, stop);
    }

    /// Serves as [`run`](Self::run), and runs the listeners for the clients of other programs
    /// meanwhile.
    pub fn run_with_guests(self, serving: Serving, stop: &AtomicBool) {
        let Serving { host, services, clients, guests } = serving;
        let one_off = clients.one_off;
        let descriptors = longhaul_sys::process::descriptor_limit();
        let server = Server::new(host, services, clients, descriptors);
        let stopped =
            || stop.load(Ordering::Relaxed) || one_off && server.served.load(Ordering::Relaxed) > 0;
        let ending = Arc::new(AtomicBool::new(false));
        let gate = Gate::new(server.clone(), ending.clone());
        thread::scope(|scope| {
            start_guests(scope, &guests, &gate);
            self.accept_until(&server.registry, stopped, |socket| {
                if let Some(fresh) = server.admit(socket) {
                    let server = server.clone();
                    spawn(move || server.serve(fresh));
                }
            });
            ending.store(true, Ordering::Relaxed);
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
        let Listener { socket, udp, .. } = self;
        let closed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| udp.run(registry, || closed.load(Ordering::Relaxed)));
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
                    // The connection was reset while it waited, or no descriptor is free. A pause
                    // keeps the loop from spinning.
                    Err(_) => thread::sleep(STOP_CHECK),
                }
            }
            closed.store(true, Ordering::Relaxed);
        });
    }
}

/// Returns a non-blocking TCP listener.
fn listen(address: SocketAddr, protocol: Protocol) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    // Only saves clients a round trip.
    let _ = longhaul_sys::tcp::accept_with_data(&socket, FAST_OPEN_PENDING);
    socket.listen(LISTEN_BACKLOG)?;
    let socket = TcpListener::from(socket);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Runs `work` on a separate thread. If the host has no thread left, the connection is dropped.
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(thread::Builder::new().name("connection".into()).spawn(work));
}
