//! The server: answers the clients of nuttcp.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use longhaul_engine::serve::{Gate, Guest, GuestArrival, NoPlace};
use longhaul_engine::test::{TestLimits, TestMemory};
use socket2::{Domain, Protocol, Socket, Type};

use super::channel::{Channel, ChannelRead};
use super::plan::plan_of;
use super::ports::PortLocks;
use super::visit::{Accepted, Served, WAIT_LIMIT};
use crate::nuttcp::{Parameters, Server, Version};

/// The interval at which the listener checks for clients and for the end of the server.
const ACCEPT_LOOK: Duration = Duration::from_millis(20);

/// A server for the clients of nuttcp.
#[derive(Debug)]
pub struct NuttcpServer {
    listener: TcpListener,
    address: SocketAddr,
    limits: TestLimits,
    ports: PortLocks,
}

impl NuttcpServer {
    /// Listens on `address`; port 0 takes a free one. `limits` apply to every test.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn bind(address: SocketAddr, limits: TestLimits) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(128)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok(Self { listener, address, limits, ports: PortLocks::default() })
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves one client on the calling thread, up to its report for the log.
    fn serve(&self, gate: &Gate, socket: TcpStream) {
        let _ = socket.set_nonblocking(false);
        let Some(arrival) = gate.admit(socket) else { return };
        let (address, begun) = (arrival.address, std::time::Instant::now());
        let outcome = match self.greet(gate, arrival) {
            Ok(accepted) => accepted.run(&self.limits, &self.ports, gate),
            Err(refused) => refused,
        };
        gate.report(outcome.report(address, begun.elapsed()));
    }

    /// Reads the request of a client, and takes a session for its test.
    fn greet(&self, gate: &Gate, arrival: GuestArrival) -> Result<Accepted, Box<Served>> {
        let socket = arrival.socket.try_clone().map_err(|e| Served::lost(None, e))?;
        let mut channel = Channel::new(socket).map_err(|e| Served::lost(None, e))?;
        let mut machine = Server::default();
        let (parameters, version) = request(&mut channel, &mut machine, gate, &arrival)?;
        let refuse = |reason: &str, channel: &mut Channel, mut machine: Server| {
            machine.refuse(reason);
            let _ = channel.send(&machine.output());
            Served::refused(Some(version), reason)
        };
        let plan = plan_of(&parameters, parameters.server_window_bytes);
        let invalid = plan.validate().err().map(|error| error.to_string());
        if let Some(reason) = invalid.or_else(|| self.limits.refusal(&plan)) {
            return Err(refuse(&reason, &mut channel, machine));
        }
        let memory = match TestMemory::reserve(&plan, &self.limits) {
            Ok(memory) => memory,
            Err(reason) => return Err(refuse(&reason, &mut channel, machine)),
        };
        let present = || channel.is_open();
        match gate.enter(arrival, plan.streams, WAIT_LIMIT, present) {
            Ok(visit) => {
                Ok(Accepted { channel, machine, parameters, version, plan, memory, _visit: visit })
            }
            Err(none) => Err(refuse(&no_place(none), &mut channel, machine)),
        }
    }
}

fn no_place(none: NoPlace) -> String {
    match none {
        NoPlace::Busy => "server busy, try again later".to_owned(),
        NoPlace::Limit(reason) => reason,
        NoPlace::Descriptors => "server busy: too many connections".to_owned(),
        NoPlace::Left => "the client left while it waited".to_owned(),
        NoPlace::Stopping => "server stops".to_owned(),
    }
}

/// Reads the versions and the parameters before the deadline of `arrival`.
fn request(
    channel: &mut Channel,
    machine: &mut Server,
    gate: &Gate,
    arrival: &GuestArrival,
) -> Result<(Parameters, Version), Box<Served>> {
    loop {
        // A client that sends single bytes has no more time than a silent one.
        if std::time::Instant::now() >= arrival.deadline || gate.stopped() {
            gate.failed(arrival, true);
            return Err(Served::lost(machine.peer(), ErrorKind::TimedOut.into()));
        }
        let answer = match channel.look() {
            ChannelRead::Bytes(bytes) => machine.receive(&bytes),
            ChannelRead::Nothing => Ok(None),
            ChannelRead::End => {
                return Err(Served::lost(machine.peer(), ErrorKind::UnexpectedEof.into()));
            }
            ChannelRead::Broken(error) => return Err(Served::lost(machine.peer(), error)),
        };
        let sent = channel.send(&machine.output());
        match answer {
            Ok(Some(request)) => return Ok(request),
            Ok(None) => sent.map_err(|error| Served::lost(machine.peer(), error))?,
            Err(refusal) => {
                gate.failed(arrival, false);
                return Err(Served::refused(machine.peer(), &refusal.to_string()));
            }
        }
    }
}

impl Guest for NuttcpServer {
    fn program(&self) -> &'static str {
        "nuttcp"
    }

    fn run(&self, gate: &Gate) {
        let gate = Arc::new(gate.clone());
        thread::scope(|scope| {
            while !gate.stopped() {
                match self.listener.accept() {
                    Ok((socket, _)) => {
                        let gate = gate.clone();
                        let serve = move || self.serve(&gate, socket);
                        // Without a thread the connection closes.
                        let named = thread::Builder::new().name("nuttcp".into());
                        let _ = named.spawn_scoped(scope, serve);
                    }
                    Err(_) => thread::sleep(ACCEPT_LOOK),
                }
            }
        });
    }
}
