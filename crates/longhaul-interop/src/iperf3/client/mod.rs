//! The client: runs a test against an iperf3 server.

mod open;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{
    End, MeasuredHalf, SideResult, TestEnd, TestPeer, TestResult, TestSample,
};
use longhaul_engine::EngineError;
use longhaul_engine::session::{LocalAddress, random_keying_material};
use longhaul_engine::test::{DatagramFormat, TestLimits};

use super::auth::Credentials;
use super::control::{Control, STEP_LIMIT};
use super::datagram::DatagramHeader;
use super::direction::{KeptSockets, Note, Runs, Sockets, TestDirection, sample_of};
use super::inbox::frame;
use super::machine::{ClientEvent, ClientMachine};
use super::output::{Finished, FinishedHalf, Started};
use super::parameters::Parameters;
use super::report;
use super::results::Results;
use super::state::{COOKIE_BYTES, State};
use crate::client::PeerTest;
use crate::error::{InteropError, PeerName, Result, Step};
use crate::peer::Program;

/// The interval at which the samples and the control connection are checked.
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
    let mut session = Session { control, plan: test.plan, server, local: test.local, cookie };
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

/// Returns the error of the parameters with a user: a server that refuses the user may send an error
/// without a number, or close the connection.
fn denied(error: InteropError) -> InteropError {
    match error {
        InteropError::Closed { peer, .. } | InteropError::Reported { peer, code: 0, .. } => {
            InteropError::Denied { peer, stated: false }
        }
        error => error,
    }
}

/// A test in progress.
struct Session<'a> {
    control: Control<ClientMachine>,
    plan: &'a TestPlan,
    server: SocketAddr,
    local: Option<&'a LocalAddress>,
    cookie: [u8; COOKIE_BYTES],
}

/// The results of this end's directions.
type Sides = Vec<(TestDirection, SideResult, Vec<TestSample>)>;

impl Session<'_> {
    fn run(
        &mut self,
        mut started: Started,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<ClientResult> {
        self.expect(&ClientEvent::SendParameters, Step::Greeting, stop)?;
        self.control.send(&frame(&started.parameters), Step::Parameters)?;
        let with_user = started.parameters.authtoken.is_some();
        let opened = self.expect(&ClientEvent::OpenStreams, Step::Parameters, stop);
        opened.map_err(|error| if with_user { denied(error) } else { error })?;
        let halves = self.open()?;
        self.expect(&ClientEvent::Start, Step::Streams, stop)?;
        self.expect(&ClientEvent::Run, Step::Streams, stop)?;
        self.check_both_directions(&halves)?;
        let format: Arc<dyn DatagramFormat> =
            Arc::new(DatagramHeader { long: started.parameters.udp_counters_64bit == 1 });
        started.connected = halves.iter().flat_map(|(_, sockets)| sockets.connected()).collect();
        on_progress(Progress::Started(&started));
        let mut kept = KeptSockets::default();
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
        let half = |(half, ours, samples): (TestDirection, SideResult, Vec<TestSample>)| {
            FinishedHalf { role: half.role, reverse: half.reverse, ours, samples }
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
                InteropError::Denied { peer, stated: true }
            }
            ClientEvent::Error { code: Some(code), os_code } => {
                InteropError::Reported { peer, during, code, os_code }
            }
            ClientEvent::Error { code: None, os_code } => {
                InteropError::Reported { peer, during, code: 0, os_code }
            }
            _ => InteropError::Terminated { peer, during },
        }
    }

    /// Runs all directions to their ends.
    fn measure(
        &mut self,
        halves: Vec<(TestDirection, Sockets)>,
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
        let ended = |(half, side, samples): (TestDirection, Option<SideResult>, _)| {
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
        sides: &mut [(TestDirection, Option<SideResult>, Vec<TestSample>)],
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
