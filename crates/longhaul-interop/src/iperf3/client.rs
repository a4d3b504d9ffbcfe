//! The client: runs a test against an iperf3 server.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::plan::{Direction, Protocol, TestPlan};
use longhaul_core::result::{
    End, MeasuredHalf, SideResult, TestEnd, TestPeer, TestResult, TestSample,
};
use longhaul_engine::EngineError;
use longhaul_engine::session::random_keying_material;
use longhaul_engine::test::{DatagramFormat, TestLimits, set_options};
use longhaul_sys::poll;
use socket2::{Domain, Socket, Type};

use super::auth::Credentials;
use super::control::{Control, STEP_LIMIT};
use super::datagram::DatagramHeader;
use super::direction::{Half, Kept, Note, Runs, Sockets, sample_of};
use super::inbox::frame;
use super::machine::{ClientEvent, ClientMachine};
use super::output::{Finished, FinishedHalf, Started};
use super::parameters::Parameters;
use super::report;
use super::results::Results;
use super::state::{COOKIE_BYTES, State};
use crate::client::{PeerTest, connect_to};
use crate::error::{InteropError, PeerName, PeerOption, Result, Step};
use crate::peer::Program;

/// The time in which a server has to answer the first datagram of a flow.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// The first datagram of a flow, from the client.
const HELLO: [u8; 4] = [0x39, 0x38, 0x37, 0x36];
/// The longest wait for the first data of the second half of a bidirectional test.
const FIRST_DATA: Duration = Duration::from_secs(1);
/// The interval at which the samples and the control connection are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The options of a client that are not part of a plan.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// The user and password.
    pub credentials: Option<Credentials>,
    /// The parameters that replace those of the plan: title, extra data, server output.
    pub title: Option<String>,
    /// Text that the output repeats.
    pub extra_data: Option<String>,
    /// True to receive the server's output.
    pub server_output: bool,
}

/// A finished test.
#[derive(Debug)]
pub struct ClientResult {
    /// The result.
    pub test: TestResult,
    /// The test as iperf3 describes it.
    pub finished: Finished,
}

/// The progress of a test.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// All streams are open.
    Started(&'a Started),
    /// An interval has ended.
    Sample(End, &'a TestSample),
}

/// Runs a test against an iperf3 server and passes its progress to `on_progress`.
///
/// Every wait is limited: 10 s for a connection and for the first datagram of a flow, 20 s for each
/// step of the protocol.
///
/// # Errors
/// The plan has an option that iperf3 lacks, the server refuses the test or does not follow the
/// protocol, or a connection breaks.
pub fn run(
    test: &PeerTest<'_>,
    options: &ClientOptions,
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> Result<ClientResult> {
    let peer = PeerName {
        program: Program::Iperf3,
        version: None,
        address: format!("{}:{}", test.address.host, test.address.port),
    };
    let unsupported =
        |wanted| InteropError::Unsupported { peer: peer.clone(), wanted, since: None };
    let mut parameters = Parameters::of(test.plan).map_err(unsupported)?;
    parameters.title.clone_from(&options.title);
    parameters.extra_data.clone_from(&options.extra_data);
    parameters.get_server_output = options.server_output.into();
    if let Some(credentials) = &options.credentials {
        parameters.authtoken = Some(credentials.token()?);
    }
    let cookie = new_cookie();
    let socket = test.connect()?;
    let streams = test.plan.streams * test.plan.directions();
    let machine = ClientMachine::new(streams as usize, options.server_output);
    let host = |source| InteropError::Host { operation: "set up the control connection", source };
    let server = socket.peer_addr().map_err(host)?;
    let mut control = Control::new(socket, peer, machine).map_err(host)?;
    control.send(&cookie, Step::Greeting)?;
    let started = Started {
        at_client: true,
        host: test.address.host.clone(),
        port: test.address.port,
        time: SystemTime::now(),
        cookie: String::from_utf8_lossy(&cookie[..COOKIE_BYTES - 1]).into_owned(),
        parameters,
        plan: test.plan.clone(),
        connected: Vec::new(),
    };
    let mut session = Session { control, plan: test.plan, server, cookie };
    session.run(started, test.stop, on_progress)
}

/// Returns a cookie: 36 characters of base 32, and a zero.
fn new_cookie() -> [u8; COOKIE_BYTES] {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let random = [random_keying_material(), random_keying_material()].concat();
    let mut cookie = [0; COOKIE_BYTES];
    for (to, from) in cookie[..COOKIE_BYTES - 1].iter_mut().zip(random) {
        *to = ALPHABET[usize::from(from % 32)];
    }
    cookie
}

/// Returns the flows of a direction. A version before 3.7 answers the first half of a bidirectional
/// test only.
fn flows_or(flows: Result<Vec<UdpSocket>>, half: Half, peer: &PeerName) -> Result<Vec<UdpSocket>> {
    flows.map_err(|error| match error {
        InteropError::Silent { during: Step::FirstDatagram, .. }
        | InteropError::Closed { during: Step::FirstDatagram, .. }
            if half.reverse =>
        {
            both_directions(peer)
        }
        error => error,
    })
}

fn both_directions(peer: &PeerName) -> InteropError {
    let (peer, wanted) = (peer.clone(), PeerOption::BothDirections);
    InteropError::Unsupported { peer, wanted, since: Some("3.7") }
}

/// Waits for the first data of a stream, and returns whether the server closes it instead: a busy
/// server sends one byte.
fn is_refused(stream: &std::net::TcpStream) -> bool {
    let until = Instant::now() + FIRST_DATA;
    let mut bytes = [0; 2];
    while Instant::now() < until {
        poll::readable(stream, until.saturating_duration_since(Instant::now()));
        let _ = stream.set_nonblocking(true);
        let peeked = stream.peek(&mut bytes);
        let _ = stream.set_nonblocking(false);
        match peeked {
            Ok(1) if bytes[0] == State::AccessDenied.byte() => return true,
            Ok(1) => thread::sleep(Duration::from_millis(5)),
            Ok(2) => return false,
            Ok(_) => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
    }
    false
}

/// A test in progress.
struct Session<'a> {
    control: Control<ClientMachine>,
    plan: &'a TestPlan,
    server: SocketAddr,
    cookie: [u8; COOKIE_BYTES],
}

/// The results of this end's directions.
type Sides = Vec<(Half, SideResult, Vec<TestSample>)>;

impl Session<'_> {
    fn run(
        &mut self,
        mut started: Started,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<ClientResult> {
        self.expect(&ClientEvent::SendParameters, Step::Greeting, stop)?;
        self.control.send(&frame(&started.parameters), Step::Parameters)?;
        self.expect(&ClientEvent::OpenStreams, Step::Parameters, stop)?;
        let halves = self.open()?;
        self.expect(&ClientEvent::Start, Step::Streams, stop)?;
        self.expect(&ClientEvent::Run, Step::Streams, stop)?;
        self.check_both_directions(&halves)?;
        let format: Arc<dyn DatagramFormat> =
            Arc::new(DatagramHeader { long: started.parameters.udp_counters_64bit == 1 });
        started.connected = halves.iter().flat_map(|(_, sockets)| sockets.connected()).collect();
        on_progress(Progress::Started(&started));
        let mut kept = Kept::default();
        for (half, sockets) in &halves {
            let operation = "duplicate a connection";
            let kept = kept.add(half.role, sockets);
            kept.map_err(|source| InteropError::Host { operation, source })?;
        }
        let sides = self.measure(halves, &format, stop, on_progress)?;
        let (over, limits) = (AtomicBool::new(false), STEP_LIMIT);
        let results = thread::scope(|scope| {
            kept.discard(scope, &over);
            let results = self.exchange(&sides, limits);
            over.store(true, Ordering::Relaxed);
            results
        })?;
        let test = self.fold(&sides, &results, stop.load(Ordering::Relaxed))?;
        let half = |(half, ours, samples): (Half, SideResult, Vec<TestSample>)| FinishedHalf {
            role: half.role,
            reverse: half.reverse,
            ours,
            samples,
        };
        let halves = sides.into_iter().map(half).collect();
        Ok(ClientResult { test, finished: Finished { started, halves, theirs: results } })
    }

    /// Waits for an event that must be `expected`.
    fn expect(&mut self, expected: &ClientEvent, during: Step, stop: &AtomicBool) -> Result<()> {
        let event = self.control.wait(STEP_LIMIT, during, || !stop.load(Ordering::Relaxed));
        let event = event.map_err(|error| match error {
            InteropError::Silent { .. } if stop.load(Ordering::Relaxed) => {
                EngineError::Interrupted.into()
            }
            error => error,
        })?;
        if event == *expected { Ok(()) } else { Err(self.failure(event, during)) }
    }

    /// Returns the error of an event that ends the test.
    fn failure(&self, event: ClientEvent, during: Step) -> InteropError {
        let peer = self.control.peer.clone();
        match event {
            ClientEvent::Busy => InteropError::Busy { peer },
            ClientEvent::Error { code: Some(super::state::code::AUTHENTICATION), .. } => {
                InteropError::Denied { peer }
            }
            // 3.12 and 3.21 send no number, or close the connection, if the user is refused.
            ClientEvent::Error { code: Some(code), os_code } => {
                InteropError::Reported { peer, during, code, os_code }
            }
            ClientEvent::Error { code: None, os_code } => {
                InteropError::Reported { peer, during, code: 0, os_code }
            }
            _ => InteropError::Terminated { peer, during },
        }
    }

    /// Opens all streams, one after the other, because the server numbers them as they arrive.
    fn open(&mut self) -> Result<Vec<(Half, Sockets)>> {
        let mut halves = Vec::new();
        for half in Half::all(self.plan.direction, true) {
            let count = self.plan.streams;
            let sockets = match self.plan.protocol {
                Protocol::Udp => {
                    let flows = (0..count).map(|_| self.open_udp(half.role)).collect();
                    Sockets::Udp(flows_or(flows, half, &self.control.peer)?)
                }
                Protocol::Tcp | Protocol::Mptcp => Sockets::Tcp(
                    (0..count).map(|n| self.open_tcp(half.role, n)).collect::<Result<_>>()?,
                ),
            };
            halves.push((half, sockets));
        }
        Ok(halves)
    }

    fn open_tcp(&self, role: End, number: u32) -> Result<std::net::TcpStream> {
        let address = self.server.to_string();
        let failed = |source| EngineError::DataConnect { stream: number, address, source };
        let stream = connect_to(self.server, |socket| {
            set_options(self.plan, role, socket, false).map_err(io::Error::other)
        });
        let stream = stream.and_then(|mut stream| {
            io::Write::write_all(&mut stream, &self.cookie)?;
            Ok(stream)
        });
        Ok(stream.map_err(failed)?)
    }

    fn open_udp(&self, role: End) -> Result<UdpSocket> {
        let host = |source| InteropError::Host { operation: "open a UDP socket", source };
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let domain = Domain::for_address(self.server);
        let socket =
            Socket::new(domain, Type::DGRAM, Some(socket2::Protocol::UDP)).map_err(host)?;
        set_options(self.plan, role, &socket, false)?;
        socket.bind(&SocketAddr::new(any, 0).into()).map_err(host)?;
        socket.connect(&self.server.into()).map_err(host)?;
        let socket = UdpSocket::from(socket);
        socket.send(&HELLO).map_err(host)?;
        self.await_answer(&socket)?;
        Ok(socket)
    }

    /// Waits for the answer to the first datagram. Versions differ in its value, and a server that
    /// sends may be faster with its data.
    fn await_answer(&self, socket: &UdpSocket) -> Result<()> {
        let until = Instant::now() + HELLO_LIMIT;
        let mut bytes = [0; 2048];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = left.max(Duration::from_millis(1));
            let received =
                socket.set_read_timeout(Some(timeout)).and_then(|()| socket.recv(&mut bytes));
            match received {
                Ok(4) => return Ok(()),
                Ok(_) if !left.is_zero() => {}
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    return Err(self.no_answer(Some(e)));
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => return Err(self.no_answer(None)),
            }
        }
    }

    fn no_answer(&self, source: Option<io::Error>) -> InteropError {
        let (peer, during) = (self.control.peer.clone(), Step::FirstDatagram);
        match source {
            Some(_) => InteropError::Closed { peer, during, source },
            None => InteropError::Silent { peer, during, limit: HELLO_LIMIT },
        }
    }

    /// Checks that the server has accepted the second half of the streams: a version before 3.7
    /// refuses them as those of another client.
    fn check_both_directions(&self, halves: &[(Half, Sockets)]) -> Result<()> {
        let late = halves.iter().filter(|(half, _)| half.reverse);
        let late = late.filter_map(|(_, sockets)| match sockets {
            Sockets::Tcp(streams) => streams.last(),
            Sockets::Udp(_) => None,
        });
        if self.plan.direction == Direction::Both && late.into_iter().any(is_refused) {
            return Err(both_directions(&self.control.peer));
        }
        Ok(())
    }

    /// Runs all directions to their ends.
    fn measure(
        &mut self,
        halves: Vec<(Half, Sockets)>,
        format: &Arc<dyn DatagramFormat>,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Sides> {
        let (abort, limits) = (AtomicBool::new(false), TestLimits::default());
        let runs = Runs {
            plan: self.plan,
            at_client: true,
            limits: &limits,
            memory: None,
            format,
            stop,
            abort: &abort,
        };
        let mut sides: Vec<_> = halves.iter().map(|(half, _)| (*half, None, Vec::new())).collect();
        let (notes, heard) = mpsc::channel();
        let outcome = thread::scope(|scope| {
            for (half, sockets) in halves {
                let notes = notes.clone();
                scope.spawn(move || runs.run(half, sockets, &notes));
            }
            drop(notes);
            let outcome = self.gather(&heard, &mut sides, on_progress);
            abort.store(outcome.is_err(), Ordering::Release);
            outcome
        });
        outcome?;
        let ended = |(half, side, samples): (Half, Option<SideResult>, _)| {
            side.map(|side| (half, side, samples)).ok_or(EngineError::Interrupted)
        };
        let sides: Sides = sides.into_iter().map(ended).collect::<std::result::Result<_, _>>()?;
        match sides.iter().find_map(|(_, side, _)| side.cut.clone()) {
            Some(reason) => Err(self.cut(reason)),
            None => Ok(sides),
        }
    }

    /// Returns the error of a cut test. A server that ended the test is the cause of the cut.
    fn cut(&mut self, reason: String) -> InteropError {
        match self.control.poll(Step::Running) {
            Ok(Some(event)) => self.failure(event, Step::Running),
            Err(error) => error,
            Ok(None) => InteropError::Cut { peer: self.control.peer.clone(), reason },
        }
    }

    /// Receives the samples and results of the runs, and watches the control connection.
    fn gather(
        &mut self,
        heard: &mpsc::Receiver<Note>,
        sides: &mut [(Half, Option<SideResult>, Vec<TestSample>)],
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        loop {
            match heard.recv_timeout(LOOK) {
                Ok(Note::Sample(sample)) => {
                    let of = sample.reverse;
                    if let Some((half, _, samples)) =
                        sides.iter_mut().find(|(half, ..)| half.reverse == of)
                    {
                        let sample = sample_of(*half, &sample);
                        on_progress(Progress::Sample(half.role, &sample));
                        samples.push(sample);
                    }
                }
                Ok(Note::End(result)) => {
                    let result = result?;
                    let of = result.reverse;
                    if let Some((_, side, _)) =
                        sides.iter_mut().find(|(half, ..)| half.reverse == of)
                    {
                        *side = Some(result);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(event) = self.control.poll(Step::Running)? {
                return Err(self.failure(event, Step::Running));
            }
        }
    }

    /// Ends the data and exchanges the results.
    fn exchange(&mut self, sides: &Sides, limit: Duration) -> Result<Results> {
        let step = Step::Results;
        let never = AtomicBool::new(false);
        self.control.send_state(State::TestEnd, step)?;
        self.expect(&ClientEvent::SendResults, step, &never)?;
        let halves: Vec<_> = sides.iter().map(|(half, side, _)| (half.role, side)).collect();
        self.control.send(&frame(&report::results(self.plan, &halves)), step)?;
        let results = match self.control.wait(limit, step, || true)? {
            ClientEvent::Results(results) => *results,
            event => return Err(self.failure(event, step)),
        };
        self.expect(&ClientEvent::Finish, step, &never)?;
        self.control.send_state(State::Done, step)?;
        Ok(results)
    }

    /// Combines the results of both ends.
    fn fold(&self, sides: &Sides, results: &Results, interrupted: bool) -> Result<TestResult> {
        let fault = |fault| self.control.fault(fault, Step::Results);
        let all = sides.iter().map(|(_, side, _)| side.streams.len()).sum();
        report::check_ids(results, all).map_err(fault)?;
        let mut first = 0;
        let mut halves = Vec::new();
        for (half, ours, samples) in sides {
            let role = match half.role {
                End::Sender => End::Receiver,
                End::Receiver => End::Sender,
            };
            let theirs = report::peer_side(self.plan, results, role, first, ours).map_err(fault)?;
            first += ours.streams.len();
            let ours = ours.into();
            let (sender, receiver) =
                if role == End::Receiver { (ours, theirs) } else { (theirs, ours) };
            halves.push(MeasuredHalf { intervals: samples.clone(), sender, receiver });
        }
        let end = if interrupted { TestEnd::Interrupted } else { TestEnd::Completed };
        let target = self.control.peer.address.clone();
        let mut halves = halves.into_iter();
        let first = halves.next().ok_or(EngineError::Interrupted)?;
        let mut test = TestResult::fold(target, self.plan.clone(), end, first);
        if let Some(second) = halves.next() {
            test = test.with_reverse(second);
        }
        test.peer = Some(TestPeer {
            program: Program::Iperf3.name().to_owned(),
            version: report::version_of(results),
        });
        Ok(test)
    }
}
