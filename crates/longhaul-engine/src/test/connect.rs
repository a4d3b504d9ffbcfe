//! The data connections of a test, opened by one end and accepted by the other.
//!
//! The streams of the first direction have the numbers from 0, those of the second direction
//! follow, and the TCP connection of the latency probes is the last.

use std::io;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use longhaul_core::plan::{Protocol, TestLink, TestPlan};
use longhaul_core::result::End;

use super::context::Part;
use super::mover::Carrier;
use super::options::{accepted_options, socket_options};
use super::udp::{self, UdpFlow};
use crate::error::{EngineError, Result};
use crate::session::{Announced, DataAcceptor, DataDialer, DataRoute, FlowAnswers, SessionSecret};

/// The connections of one end.
pub(super) struct Connections {
    /// The connections per direction, in the order of the streams.
    pub(super) parts: Vec<(Part, Vec<Carrier>)>,
    /// The connection of the latency probes.
    pub(super) probe: Option<TcpStream>,
    /// Answers the openers of UDP flows until it is dropped, which must be before data arrives.
    pub(super) answers: Option<FlowAnswers>,
}

/// The descriptors of the two pipes of a stream that sends without copying.
const PIPES: u32 = 4;

/// Returns the numbers of TCP connections and UDP flows of `plan`.
fn counts(plan: &TestPlan) -> (u32, u32) {
    let streams = plan.streams * plan.directions();
    let probes = u32::from(plan.latency);
    match plan.protocol {
        Protocol::Tcp | Protocol::Mptcp => (streams + probes, 0),
        Protocol::Udp => (probes, streams),
    }
}

/// Returns the connections of `plan` as the server announces them.
pub(super) fn announced(plan: &TestPlan) -> Announced {
    let (streams, flows) = counts(plan);
    let sends = Part::of(plan.direction, false).iter().any(|part| part.role == End::Sender);
    let beside = if plan.zero_copy && sends { PIPES } else { 0 };
    Announced { streams, flows, further: 0, beside }
}

/// Checks that this host can create the sockets of `plan`, so that a missing option is named and
/// not seen as a connection that does not open.
///
/// # Errors
/// This host lacks a kind of socket or an option.
pub(super) fn check(plan: &TestPlan, at_client: bool) -> Result<()> {
    let (kind, protocol, operation) = match plan.protocol {
        Protocol::Tcp => (socket2::Type::STREAM, socket2::Protocol::TCP, "open a socket"),
        Protocol::Mptcp => (
            socket2::Type::STREAM,
            socket2::Protocol::MPTCP,
            "open an MPTCP socket; the kernel needs CONFIG_MPTCP and net.mptcp.enabled=1",
        ),
        Protocol::Udp => (socket2::Type::DGRAM, socket2::Protocol::UDP, "open a socket"),
    };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, Some(protocol))
        .map_err(|source| EngineError::System { operation, source })?;
    for part in Part::of(plan.direction, at_client) {
        socket_options(plan, part.role).apply(&socket)?;
    }
    Ok(())
}

/// Opens all connections in parallel, because one after the other would take minutes over a long
/// path. The socket of a UDP flow buffers at most `socket_bytes`.
///
/// # Errors
/// A connection cannot be opened.
pub(super) fn open(
    dialer: &DataDialer,
    plan: &TestPlan,
    at_client: bool,
    socket_bytes: usize,
) -> Result<Connections> {
    let (tcp, udp) = counts(plan);
    let parts = Part::of(plan.direction, at_client);
    let role = |number: u32| parts[(number / plan.streams) as usize].role;
    let route = |number: u32| route(plan, number % plan.streams, at_client);
    let protocol = match plan.protocol {
        Protocol::Mptcp => socket2::Protocol::MPTCP,
        Protocol::Tcp | Protocol::Udp => socket2::Protocol::TCP,
    };
    let open_tcp = |number: u32| {
        if plan.latency && number == tcp - 1 {
            let route = route(0);
            return dialer
                .open_tcp(number, socket2::Protocol::TCP, &route, |s| s.set_tcp_nodelay(true));
        }
        let options = socket_options(plan, role(number));
        dialer.open_tcp(number, protocol, &route(number), |s| {
            options.apply(s).map_err(io::Error::other)
        })
    };
    let open_udp = |number: u32| {
        let options = socket_options(plan, role(number));
        dialer.open_flow(number, &route(number), |s| options.apply(s).map_err(io::Error::other))
    };
    let (open_tcp, open_udp) = (&open_tcp, &open_udp);
    let (streams, flows) = thread::scope(|scope| {
        let streams: Vec<_> = (0..tcp).map(|n| scope.spawn(move || open_tcp(n))).collect();
        let flows: Vec<_> = (0..udp).map(|n| scope.spawn(move || open_udp(n))).collect();
        (join_all(streams), join_all(flows))
    });
    let sockets = Sockets { streams: streams?, flows: flows?, answers: None };
    assemble(plan, &parts, sockets, socket_bytes, dialer.secret())
}

fn join_all<T>(threads: Vec<thread::ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    // All threads are joined before the first error is returned.
    let results: Vec<_> =
        threads.into_iter().map(|t| t.join().unwrap_or(Err(EngineError::Interrupted))).collect();
    results.into_iter().collect()
}

/// Accepts all connections that the other end opens, and sets their options. The socket of a UDP
/// flow buffers at most `socket_bytes`.
///
/// # Errors
/// The connections do not arrive within `limit`, or an option does not work here.
pub(super) fn accept(
    acceptor: &DataAcceptor,
    plan: &TestPlan,
    at_client: bool,
    socket_bytes: usize,
    limit: Duration,
) -> Result<Connections> {
    let (tcp, udp) = counts(plan);
    let parts = Part::of(plan.direction, at_client);
    let (flows, answers) = match udp {
        0 => (Vec::new(), None),
        _ => {
            let (flows, answers) = acceptor.accept_all_flows(udp, limit)?;
            (flows, Some(answers))
        }
    };
    let streams = acceptor.accept_all(tcp, limit)?;
    let role = |number: usize| parts[number / plan.streams as usize].role;
    for (number, flow) in flows.iter().enumerate() {
        accepted_options(plan, role(number)).apply(flow)?;
    }
    let data = streams.len() - usize::from(plan.latency);
    for (number, stream) in streams[..data].iter().enumerate() {
        accepted_options(plan, role(number)).apply(stream)?;
    }
    if let Some(probe) = streams.get(data) {
        // A kernel without this option delays answers, but does not change them.
        let _ = probe.set_nodelay(true);
    }
    let sockets = Sockets { streams, flows, answers };
    assemble(plan, &parts, sockets, socket_bytes, acceptor.secret())
}

/// All sockets of one end, in the order of their numbers.
struct Sockets {
    streams: Vec<TcpStream>,
    flows: Vec<std::net::UdpSocket>,
    answers: Option<FlowAnswers>,
}

fn assemble(
    plan: &TestPlan,
    parts: &[Part],
    sockets: Sockets,
    socket_bytes: usize,
    secret: &SessionSecret,
) -> Result<Connections> {
    let Sockets { mut streams, flows, answers } = sockets;
    let probe = if plan.latency { streams.pop() } else { None };
    let window = plan.window_bytes.map(|w| w.get() as usize);
    let payload = plan.write_bytes.get() as u32;
    let buffer_bytes = udp::receive_buffer_bytes(flows.len()).min(socket_bytes);
    let flow = |(number, socket): (usize, _)| {
        let tag = secret.datagram_tag(number as u32);
        UdpFlow::new(socket, tag, payload, window, buffer_bytes)
            .map(|flow| Carrier::Udp(Box::new(flow)))
            .map_err(|source| EngineError::System { operation: "set up a UDP socket", source })
    };
    let mut carriers: Vec<Carrier> = streams.into_iter().map(Carrier::Tcp).collect();
    for flow in flows.into_iter().enumerate().map(flow) {
        carriers.push(flow?);
    }
    let mut carriers = carriers.into_iter();
    let parts = parts
        .iter()
        .map(|part| (*part, carriers.by_ref().take(plan.streams as usize).collect()))
        .collect();
    Ok(Connections { parts, probe, answers })
}

/// Returns the addresses for `stream`, seen from the end that opens it.
fn route(plan: &TestPlan, stream: u32, at_client: bool) -> DataRoute {
    match plan.link_of(stream) {
        Some((_, TestLink { client, server })) if at_client => {
            DataRoute { local: client.clone(), remote: server.clone() }
        }
        // The plan excludes links together with connections that the server opens.
        _ => DataRoute::default(),
    }
}
