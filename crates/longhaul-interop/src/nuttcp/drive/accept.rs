//! The data ports of an end: listeners over TCP, bound sockets over UDP.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::End;
use longhaul_engine::test::set_options;
use socket2::{Domain, Protocol, Socket, Type};

use super::channel::{Deadline, STEP_LIMIT};
use crate::nuttcp::Parameters;

/// The interval at which a listener is checked.
const LOOK: Duration = Duration::from_millis(2);

/// The data ports that this end has opened.
#[derive(Debug)]
pub(super) enum Ports {
    /// The listeners of the streams.
    Tcp(Vec<TcpListener>),
    /// The sockets of the streams.
    Udp(Vec<UdpSocket>),
}

impl Ports {
    /// Opens the data ports of `parameters` on `local`.
    pub(super) fn open(
        local: IpAddr,
        parameters: &Parameters,
        plan: &TestPlan,
        role: End,
    ) -> io::Result<Self> {
        let addresses =
            (parameters.port..=parameters.last_port()).map(|port| SocketAddr::new(local, port));
        Ok(if parameters.udp {
            Ports::Udp(addresses.map(|at| bind_udp(at, plan, role)).collect::<io::Result<_>>()?)
        } else {
            Ports::Tcp(addresses.map(|at| listen(at, plan, role)).collect::<io::Result<_>>()?)
        })
    }

    /// Accepts the connection of each stream from `peer`, in order, while `alive` returns true.
    pub(super) fn accept(
        listeners: Vec<TcpListener>,
        peer: IpAddr,
        (plan, role): (&TestPlan, End),
        alive: &dyn Fn() -> bool,
    ) -> io::Result<Vec<TcpStream>> {
        listeners
            .into_iter()
            .map(|listener| {
                let stream = accept_from(&listener, peer, alive)?;
                stream.set_nonblocking(false)?;
                set_options(plan, role, &stream, true).map_err(io::Error::other)?;
                Ok(stream)
            })
            .collect()
    }
}

fn listen(address: SocketAddr, plan: &TestPlan, role: End) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // The connections inherit the options, some of which belong to the handshake.
    set_options(plan, role, &socket, false).map_err(io::Error::other)?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn bind_udp(address: SocketAddr, plan: &TestPlan, role: End) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    set_options(plan, role, &socket, false).map_err(io::Error::other)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Accepts a connection from `peer`; others are closed.
fn accept_from(
    listener: &TcpListener,
    peer: IpAddr,
    alive: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let deadline = Deadline::after(STEP_LIMIT);
    loop {
        match listener.accept() {
            Ok((stream, from)) if from.ip().to_canonical() == peer.to_canonical() => {
                return Ok(stream);
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if deadline.is_over() {
            return Err(ErrorKind::TimedOut.into());
        }
        if !alive() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
    }
}
