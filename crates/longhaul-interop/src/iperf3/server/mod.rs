//! The server: answers iperf3 clients, many at once, as a guest of `longhaul serve`. The listener in
//! this file distinguishes control connections, data connections and first datagrams.

mod registry;
mod session;
mod streams;

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_engine::serve::{Gate, Guest, GuestArrival};
use longhaul_engine::session::FlowPort;
use longhaul_engine::test::TestLimits;
use longhaul_sys::poll;
use socket2::{Domain, Protocol, Socket, Type};

use self::registry::{Cookie, Registry};
use self::session::Session;
use crate::iperf3::state::COOKIE_BYTES;
use crate::iperf3::users::Users;
use crate::peer::Program;

pub use registry::Observer;

/// The interval at which the loops check whether the server ends.
const STOP_CHECK: Duration = Duration::from_millis(100);
const LISTEN_BACKLOG: i32 = 256;
/// The answer to the first datagram of a flow. Clients before 3.12 expect another value, but check
/// none.
const ANSWER: [u8; 4] = [0x36, 0x37, 0x38, 0x39];
/// The length of the first datagram of a flow.
const HELLO_BYTES: usize = 4;

/// A listener for iperf3 clients.
pub struct Server {
    listener: TcpListener,
    flows: FlowPort,
    limits: TestLimits,
    address: SocketAddr,
    observer: Option<Observer>,
    users: Option<Users>,
}

impl Server {
    /// Listens on `address` for TCP and UDP. `limits` are those of a test.
    ///
    /// # Errors
    /// The port is in use or not permitted.
    pub fn bind(address: SocketAddr, limits: TestLimits) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        let flows = FlowPort::bind(address)?;
        Ok(Server { listener, flows, limits, address, observer: None, users: None })
    }

    /// Passes every finished test to `observer`, on the thread of its client.
    #[must_use]
    pub fn with_observer(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Requires the credentials of one of `users` for a test.
    #[must_use]
    pub fn with_users(mut self, users: Option<Users>) -> Self {
        self.users = users;
        self
    }

    /// Returns the address of the listener with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the first datagrams of flows.
    fn answer_flows(&self, gate: &Gate, registry: &Registry) {
        let mut bytes = [0; HELLO_BYTES + 1];
        while !gate.stopped() {
            match self.flows.receive(&mut bytes) {
                Ok(found) if found.bytes == HELLO_BYTES => {
                    registry.pass_flow(found.from.ip(), || {
                        let flow = self.flows.flow(&found).ok()?;
                        flow.send(&ANSWER).ok()?;
                        Some(flow)
                    });
                }
                Ok(_) => {}
                // ICMP errors about answers are ignored.
                Err(_) => {
                    poll::readable(self.flows.socket(), STOP_CHECK);
                }
            }
        }
    }

    /// Serves the connection with this `number` to its end.
    fn serve(&self, gate: &Gate, registry: &Registry, number: u64, arrival: GuestArrival) {
        let cookie = match read_cookie(&arrival) {
            Ok(cookie) => cookie,
            Err(error) => {
                let silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                return gate.failed(&arrival, silent);
            }
        };
        let Ok(stream) = arrival.socket.try_clone() else { return };
        if let Some(stream) = registry.pass(&cookie, number, stream) {
            let (limits, observer) = (&self.limits, self.observer.as_ref());
            let users = self.users.as_ref();
            Session { gate, registry, limits, cookie, observer, users }.run(arrival, stream);
        }
    }
}

impl Guest for Server {
    fn program(&self) -> &'static str {
        Program::Iperf3.name()
    }

    fn run(&self, gate: &Gate) {
        let registry = Registry::default();
        let registry = &registry;
        thread::scope(|scope| {
            scope.spawn(|| self.answer_flows(gate, registry));
            // Threads read the cookies in any order; the direction of a stream follows from the order
            // of the connections.
            let mut numbers = 0..;
            while !gate.stopped() {
                let accepted = self.listener.accept().and_then(|(socket, _)| {
                    socket.set_nonblocking(false)?;
                    Ok(socket)
                });
                match accepted {
                    Ok(socket) => {
                        let Some(arrival) = gate.admit(socket) else { continue };
                        let thread = thread::Builder::new().name("iperf3".into());
                        let number = numbers.next().unwrap_or_default();
                        let serve = move || self.serve(gate, registry, number, arrival);
                        // Without a free thread the connection is closed.
                        drop(thread.spawn_scoped(scope, serve));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        poll::readable(&self.listener, STOP_CHECK);
                    }
                    // The connection was reset while it waited, or no descriptor is free.
                    Err(_) => thread::sleep(STOP_CHECK),
                }
            }
        });
    }
}

/// Reads the cookie of a connection by its deadline.
fn read_cookie(arrival: &GuestArrival) -> io::Result<Cookie> {
    let mut socket: &TcpStream = &arrival.socket;
    let (mut cookie, mut filled) = ([0; COOKIE_BYTES], 0);
    while filled < COOKIE_BYTES {
        let left = arrival.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut cookie[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.set_read_timeout(None)?;
    Ok(cookie)
}
