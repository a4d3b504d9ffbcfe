//! Measures the path to a host without longhaul, from the answers of the host and the routers.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::{PathPart, PathPlan};
use longhaul_core::result::{
    Hops, MtuProof, PathEnd, PathResult, Prober, RoundTrips, RttFigures, Unmeasured,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::client::{USUAL_MTU, empty, not_by_icmp, patience};
use super::echo::{EchoSeries, gentle_trips, round_trips};
use super::probe_socket::ProbeSocket;
use super::probers::{ClosedPort, Echo};
use super::{hops, mtu, tcp};
use crate::error::{EngineError, Result};
use crate::session::{LocalAddress, bind_to};

/// The first probes, which show whether the host answers.
const FIRST_TRIPS: u32 = 5;
/// The interval between them, because hosts limit their answers.
const FIRST_PACE: Duration = Duration::from_millis(20);
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
/// The TCP handshakes that measure the round trip if nothing else is answered.
const HANDSHAKES: u32 = 10;
const HANDSHAKE_PACE: Duration = Duration::from_millis(50);

/// A host without a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerlessHost<'a> {
    /// Its address, with the TCP port to connect to.
    pub address: SocketAddr,
    /// Its name as the user wrote it.
    pub name: &'a str,
    /// The reason why no server is used.
    pub why: &'a str,
    /// The local address of all probes and connections.
    pub local: Option<&'a LocalAddress>,
}

/// Measures the path to a host without a server. When `stop` is set, it ends early with the results
/// so far.
///
/// # Errors
/// There is no route to the host.
pub fn run_without_server(
    host: ServerlessHost<'_>,
    plan: &PathPlan,
    stop: &AtomicBool,
    note: impl FnMut(&str),
) -> Result<PathResult> {
    let begun = Instant::now();
    let ServerlessHost { address, name, why, local } = host;
    let far = address.ip();
    let closed = ClosedPort::open(far, local)
        .map_err(|source| EngineError::Connect { address: name.to_owned(), source })?;
    let mut result = empty(name, far, plan);
    result.local = closed.local();
    result.alone_because = Some(why.to_owned());
    let patience = FIRST_PATIENCE;
    let mut client = ServerlessRun { address, local, plan, stop, note, result, patience };
    client.run(closed);
    let mut result = client.result;
    for (part, what) in [
        (PathPart::Loss, "loss, duplication, reordering and jitter"),
        (PathPart::Capacity, "the capacity"),
        (PathPart::Mtu, "the path MTU in the reverse direction"),
        (PathPart::Hops, "the hops in the reverse direction"),
    ] {
        if plan.wants(part) {
            let why = "only a server can measure it".to_owned();
            result.unmeasured.push(Unmeasured { part, what: what.to_owned(), why });
        }
    }
    result.seconds = begun.elapsed().as_secs_f64();
    if stop.load(Ordering::Acquire) {
        result.end = PathEnd::Interrupted;
    }
    Ok(result)
}

struct ServerlessRun<'a, N> {
    address: SocketAddr,
    local: Option<&'a LocalAddress>,
    plan: &'a PathPlan,
    stop: &'a AtomicBool,
    note: N,
    result: PathResult,
    patience: Duration,
}

impl<N: FnMut(&str)> ServerlessRun<'_, N> {
    fn run(&mut self, mut closed: ClosedPort) {
        (self.note)("checking that the host answers");
        let mut echo = self.answering_echo();
        let closed_answers = self.answers(&mut closed);
        if self.plan.wants(PathPart::Mtu) {
            (self.note)("measuring the path MTU");
            if let Some(echo) = &mut echo {
                self.mtu(echo);
            }
            if closed_answers {
                self.mtu(&mut closed);
            } else {
                self.unmeasured(
                    PathPart::Mtu,
                    "path MTU by UDP",
                    "the host does not report closed UDP ports",
                );
            }
        }
        if self.plan.wants(PathPart::Rtt) {
            (self.note)("measuring round trips");
            match &mut echo {
                Some(echo) => self.rtt(echo, self.plan.clone()),
                None => self.handshakes(),
            }
            if self.result.rtt.is_none() && closed_answers {
                // Hosts answer a few probes per second of one sender.
                let plan = PathPlan {
                    echoes: FIRST_TRIPS,
                    echo_interval: Duration::from_secs(2),
                    ..self.plan.clone()
                };
                self.rtt(&mut closed, plan);
            }
            if self.result.rtt.is_none() {
                self.unmeasured(PathPart::Rtt, "round trips", "nothing answered");
            }
        }
        if self.plan.wants(PathPart::Hops) {
            (self.note)("finding the hops");
            self.hops(&mut closed, echo.as_mut());
        }
        if self.plan.wants(PathPart::Mtu) {
            self.segments();
        }
    }

    fn unmeasured(&mut self, part: PathPart, what: &str, why: impl Into<String>) {
        let (what, why) = (what.to_owned(), why.into());
        self.result.unmeasured.push(Unmeasured { part, what, why });
    }

    /// Opens ICMP echo if it is permitted and answered.
    fn answering_echo(&mut self) -> Option<Echo> {
        match Echo::open(self.address.ip(), self.local) {
            Ok(mut echo) => {
                if self.answers(&mut echo) {
                    return Some(echo);
                }
                let why = "the host does not answer ICMP echo";
                self.unmeasured(PathPart::Rtt, "round trips and path MTU by ICMP", why);
            }
            Err(error) => {
                let why = not_by_icmp(&error);
                self.unmeasured(PathPart::Rtt, "round trips and path MTU by ICMP", why);
            }
        }
        None
    }

    fn answers(&mut self, prober: &mut impl ProbeSocket) -> bool {
        let least = prober.least_bytes();
        let series = EchoSeries {
            sizes: &[least],
            count: FIRST_TRIPS,
            pace: FIRST_PACE,
            patience: FIRST_PATIENCE,
        };
        let trips = round_trips(prober, series, self.stop);
        let answers = trips.iter().any(|trips| !trips.times_ms.is_empty());
        if answers {
            self.patience = patience(&trips);
        }
        answers
    }

    fn mtu(&mut self, prober: &mut impl ProbeSocket) {
        match mtu::prove(prober, self.patience, self.stop) {
            Ok(proof @ MtuProof { bytes: Some(_), .. }) => self.result.forward.mtu.push(proof),
            Ok(_) => self.unmeasured(PathPart::Mtu, "path MTU", "no answer"),
            Err(error) => self.unmeasured(PathPart::Mtu, "path MTU", error.to_string()),
        }
    }

    fn rtt(&mut self, prober: &mut impl ProbeSocket, plan: PathPlan) {
        let full = self.result.forward.mtu_bytes().unwrap_or(USUAL_MTU);
        let sizes = [prober.least_bytes(), full];
        let trips = gentle_trips(prober, sizes, &plan, self.patience, self.stop);
        let mut figures = trips
            .into_iter()
            .map(|trips| RoundTrips::of(trips.packet_bytes, trips.sent, trips.times_ms));
        let (small, full) = (figures.next().flatten(), figures.next().flatten());
        if small.is_some() || full.is_some() {
            self.result.rtt = Some(RttFigures { by: prober.prober(), small, full });
        }
    }

    /// Measures the time until TCP connections open or are refused: both take one round trip.
    fn handshakes(&mut self) {
        let mut times = Vec::new();
        for _ in 0..HANDSHAKES {
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            let begun = Instant::now();
            let refused = match self.connect() {
                Ok(_) => true,
                Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            };
            if refused {
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            } else if times.is_empty() {
                // A host that does not answer is not probed ten times.
                return;
            }
            std::thread::sleep(HANDSHAKE_PACE);
        }
        if let Some(small) = RoundTrips::of(0, HANDSHAKES.into(), times) {
            self.result.rtt = Some(RttFigures { by: Prober::Tcp, small: Some(small), full: None });
        }
    }

    /// Opens a TCP connection.
    fn connect(&self) -> io::Result<TcpStream> {
        let domain = Domain::for_address(self.address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        bind_to(&socket, self.local)?;
        socket.connect_timeout(&self.address.into(), FIRST_PATIENCE)?;
        Ok(socket.into())
    }

    /// Finds the hops by echo, which hosts answer without a limit, or by datagrams, which need no
    /// permission.
    fn hops(&mut self, closed: &mut ClosedPort, echo: Option<&mut Echo>) {
        let most = self.plan.most_hops;
        let mut found = echo.map(|echo| hops::find(echo, most, self.patience, self.stop));
        if found.as_ref().is_none_or(|found| !found.reached) {
            let other = hops::find(closed, most, self.patience, self.stop);
            let answered = |hops: &Hops| hops.list.iter().filter(|hop| hop.answered > 0).count();
            let better = |found: &Hops| other.reached || answered(&other) > answered(found);
            if found.as_ref().is_none_or(better) {
                found = Some(other);
            }
        }
        if found.as_ref().is_some_and(|found| !found.reached) && !self.stop.load(Ordering::Acquire)
        {
            let why = "no probe with a larger hop limit was answered";
            self.unmeasured(PathPart::Hops, "the last hops in the forward direction", why);
        }
        self.result.forward.hops = found;
    }

    /// Reads the segment size that TCP negotiated, if a connection opens; the sizes of packets
    /// remain unknown.
    fn segments(&mut self) {
        let found = self.connect().and_then(|stream| tcp::segments(&stream));
        match found {
            Ok(segments) => self.result.forward.tcp = Some(segments),
            Err(error) => {
                let port = self.address.port();
                let why = format!("no connection to port {port}: {error}");
                self.unmeasured(PathPart::Mtu, "TCP's segments", why);
            }
        }
    }
}
