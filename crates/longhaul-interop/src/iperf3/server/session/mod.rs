//! One test of a client, from its cookie to its end.

mod measure;

use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::plan::{Direction, TestPlan};
use longhaul_core::result::{
    End, MeasuredHalf, Reason, SideReport, SideResult, TestEnd, TestResult, TestSample,
};
use longhaul_core::units::Bytes;
use longhaul_core::wire::RefusalKind;
use longhaul_engine::EngineError;
use longhaul_engine::serve::{Gate, GuestArrival, GuestReport, NoPlace};
use longhaul_engine::session::{Operation, SessionWork};
use longhaul_engine::test::{TestLimits, TestMemory};
use longhaul_sys::poll;

use super::registry::{Cookie, Observer, Registry};
use super::streams;
use crate::error::{Fault, InteropError, PeerName, Step};
use crate::iperf3::control::{Control, STEP_LIMIT};
use crate::iperf3::direction::{Sockets, TestDirection};
use crate::iperf3::inbox::frame;
use crate::iperf3::machine::{ServerEvent, ServerMachine};
use crate::iperf3::output::{Finished, FinishedHalf, Started};
use crate::iperf3::parameters::Parameters;
use crate::iperf3::report;
use crate::iperf3::results::Results;
use crate::iperf3::state::{COOKIE_BYTES, State, code};
use crate::iperf3::users::Users;
use crate::peer::Program;

/// The longest wait for a session: iperf3 clients show nothing meanwhile.
const PLACE_LIMIT: Duration = Duration::from_secs(30);

/// The surroundings of one test.
pub(super) struct Session<'a> {
    pub(super) gate: &'a Gate,
    pub(super) registry: &'a Registry,
    pub(super) limits: &'a TestLimits,
    pub(super) cookie: Cookie,
    pub(super) observer: Option<&'a Observer>,
    pub(super) users: Option<&'a Users>,
}

/// The facts about a test for the log.
#[derive(Default)]
struct Record {
    version: Option<String>,
    began: bool,
    work: SessionWork,
    reasons: Vec<Reason>,
}

/// A measured direction.
type Measured = (TestDirection, SideResult, Vec<TestSample>);

/// The end of a test that the client has to be informed of.
enum Failure {
    /// The error with its number in iperf3.
    Reported(i32, EngineError),
    /// The connection is of no further use.
    Lost(EngineError),
}

impl From<InteropError> for Failure {
    fn from(error: InteropError) -> Self {
        Failure::Lost(engine_error(error))
    }
}

/// Returns the error for the log of the server.
fn engine_error(error: InteropError) -> EngineError {
    match error {
        InteropError::Engine(error) => error,
        error => EngineError::Failed {
            peer: Program::Iperf3.name().to_owned(),
            reason: error.to_string(),
            again: false,
        },
    }
}

fn refused(peer: &PeerName, reason: String) -> EngineError {
    EngineError::Refused { peer: peer.address.clone(), kind: RefusalKind::Limit, reason }
}

impl Session<'_> {
    /// Serves the client of `arrival` and records its end.
    pub(super) fn run(&self, arrival: GuestArrival, stream: TcpStream) {
        let (address, start) = (arrival.address, Instant::now());
        let mut record = Record::default();
        let outcome = self.serve(arrival, stream, &mut record);
        if matches!(&outcome, Err(EngineError::Refused { kind: RefusalKind::NotAuthorized, .. })) {
            self.gate.unauthorized(address);
        }
        let Record { version, began, work, reasons } = record;
        self.gate.report(GuestReport {
            program: Program::Iperf3.name(),
            version,
            address,
            began,
            duration: start.elapsed(),
            work,
            reasons,
            outcome,
        });
    }

    fn serve(
        &self,
        arrival: GuestArrival,
        stream: TcpStream,
        record: &mut Record,
    ) -> Result<(), EngineError> {
        let address = arrival.address.to_string();
        let peer = PeerName { program: Program::Iperf3, version: None, address };
        let operation = "set up the control connection";
        let control = Control::new(stream, peer.clone(), ServerMachine::default());
        let mut control = control.map_err(|source| EngineError::System { operation, source })?;
        let waiting = control.socket.try_clone();
        let present = || waiting.as_ref().is_ok_and(|socket| !poll::is_closed(socket));
        let _visit = match self.gate.enter(arrival, 0, PLACE_LIMIT, present) {
            Ok(visit) => visit,
            Err(no_place) => {
                let _ = control.send_state(State::AccessDenied, Step::Greeting);
                return Err(refused(&peer, no_place_words(no_place)));
            }
        };
        match self.test(&mut control, record) {
            Ok(()) => Ok(()),
            Err(Failure::Lost(error)) => Err(error),
            Err(Failure::Reported(code, error)) => {
                let mut message = vec![State::ServerError.byte()];
                message.extend(code.to_be_bytes());
                message.extend([0; 4]);
                let _ = control.send(&message, Step::Parameters);
                Err(error)
            }
        }
    }

    /// Runs the protocol of one test.
    fn test(
        &self,
        control: &mut Control<ServerMachine>,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let (gate, peer) = (self.gate, control.peer.clone());
        let goes_on = || !gate.stopped();
        control.send_state(State::ParamExchange, Step::Greeting)?;
        let parameters = match control.wait(STEP_LIMIT, Step::Parameters, goes_on)? {
            ServerEvent::Parameters(parameters) => parameters,
            _ => return Err(Failure::Lost(EngineError::Interrupted)),
        };
        record.version.clone_from(&parameters.client_version);
        record.work.operation = Some(Operation::Test);
        self.authenticate(&parameters, &peer)?;
        let plan = self.plan(&parameters, &peer)?;
        let limit = |reason| Failure::Reported(code::STREAM, refused(&peer, reason));
        let memory = TestMemory::reserve(&plan, self.limits).map_err(limit)?;
        let streams = plan.streams * plan.directions();
        let few = || limit("this server has too few file descriptors left".to_owned());
        let _places = gate.streams(streams).ok_or_else(few)?;
        let halves = self.open(control, &plan)?;
        let rejected = |error| Failure::Reported(code::STREAM, error);
        streams::prepare(&plan, &halves).map_err(rejected)?;
        record.began = true;
        control.send_state(State::TestStart, Step::Streams)?;
        control.send_state(State::TestRunning, Step::Streams)?;
        let started = self.started(control, &plan, &parameters, &halves);
        let start = Instant::now();
        let long = parameters.udp_counters_64bit == 1;
        let measured = self.measure(control, &plan, &memory, (halves, long));
        record.work.duration = Some(start.elapsed());
        let measured = measured?;
        let bytes = measured.iter().flat_map(|(_, side, _)| &side.streams);
        record.work.bytes = Bytes::new(bytes.map(|stream| stream.total_bytes.get()).sum());
        record.work.cut = measured.iter().find_map(|(_, side, _)| side.cut.clone());
        if let Some(reason) = &record.work.cut {
            let error = InteropError::Cut { peer, reason: reason.clone() };
            return Err(Failure::Reported(code::EXPIRED, engine_error(error)));
        }
        let theirs = self.exchange(control, &plan, &measured)?;
        if let Some(observer) = self.observer {
            observer(&finished(started, &measured, &theirs));
        }
        record.reasons = reasons(&peer, &plan, &theirs, measured)
            .map_err(|fault| Failure::from(control.fault(fault, Step::Results)))?;
        Ok(())
    }

    /// Checks the credentials of a client, if the server has users.
    fn authenticate(&self, parameters: &Parameters, peer: &PeerName) -> Result<(), Failure> {
        let Some(users) = self.users else { return Ok(()) };
        match users.check(parameters.authtoken.as_deref(), SystemTime::now()) {
            Ok(_) => Ok(()),
            Err(denial) => {
                let reason = denial.to_string();
                let (peer, kind) = (peer.address.clone(), RefusalKind::NotAuthorized);
                let error = EngineError::Refused { peer, kind, reason };
                Err(Failure::Reported(code::AUTHENTICATION, error))
            }
        }
    }

    /// Returns the test before its data, as iperf3 describes it.
    fn started(
        &self,
        control: &Control<ServerMachine>,
        plan: &TestPlan,
        parameters: &Parameters,
        halves: &[(TestDirection, Sockets)],
    ) -> Started {
        let address = control.socket.peer_addr().ok();
        let cookie = &self.cookie[..COOKIE_BYTES - 1];
        Started {
            at_client: false,
            host: address.map(|a| a.ip().to_canonical().to_string()).unwrap_or_default(),
            port: address.map_or(0, |address| address.port()),
            time: SystemTime::now(),
            cookie: String::from_utf8_lossy(cookie).into_owned(),
            parameters: parameters.clone(),
            plan: plan.clone(),
            connected: halves.iter().flat_map(|(_, sockets)| sockets.connected()).collect(),
        }
    }

    /// Returns the plan of a client, or the error of parameters that this server does not accept.
    fn plan(&self, parameters: &Parameters, peer: &PeerName) -> Result<TestPlan, Failure> {
        let invalid = |fault| {
            let code = match fault {
                Fault::Field("parallel") => code::STREAMS,
                Fault::Field("len") => code::LENGTH,
                Fault::Field("time") => code::DURATION,
                _ => code::PARAMETERS,
            };
            let reason = format!("the parameters have {fault}");
            let (peer, kind) = (peer.address.clone(), RefusalKind::Invalid);
            Failure::Reported(code, EngineError::Refused { peer, kind, reason })
        };
        let mut plan = parameters.plan().map_err(invalid)?;
        if parameters.time == 0 && plan.amount == longest() {
            // A test without an end: until the client ends it or the limit is reached.
            plan.amount = longhaul_core::plan::TestLength::Time(self.limits.time);
        }
        match self.limits.refusal(&plan) {
            None => Ok(plan),
            Some(reason) => {
                let faster = self
                    .limits
                    .rate
                    .is_some_and(|limit| plan.rate_bps.is_none_or(|rate| rate > limit));
                let code = match () {
                    () if plan.streams > self.limits.streams => code::STREAMS,
                    () if faster => code::RATE,
                    () => code::DURATION,
                };
                Err(Failure::Reported(code, refused(peer, reason)))
            }
        }
    }

    /// Waits for the data connections.
    fn open(
        &self,
        control: &mut Control<ServerMachine>,
        plan: &TestPlan,
    ) -> Result<Vec<(TestDirection, Sockets)>, Failure> {
        let source = control.socket.peer_addr().map(|address| address.ip().to_canonical());
        let missing = |peer: &PeerName| {
            let peer = peer.address.clone();
            Failure::Reported(code::STREAM, EngineError::DataMissing { peer })
        };
        let source = source.map_err(|_| missing(&control.peer))?;
        let (destination, arriving) = streams::channel(plan);
        let registered = self.registry.add(self.cookie, source, destination, STEP_LIMIT);
        let _registered = registered.ok_or_else(|| missing(&control.peer))?;
        control.send_state(State::CreateStreams, Step::Streams)?;
        let until = Instant::now() + STEP_LIMIT;
        let present = || !self.gate.stopped() && !poll::is_closed(&control.socket);
        arriving.all(plan, until, present).ok_or_else(|| missing(&control.peer))
    }

    fn left(&self, control: &Control<ServerMachine>) -> Failure {
        InteropError::Terminated { peer: control.peer.clone(), during: Step::Running }.into()
    }

    /// Exchanges the results.
    fn exchange(
        &self,
        control: &mut Control<ServerMachine>,
        plan: &TestPlan,
        measured: &[Measured],
    ) -> Result<Results, Failure> {
        let step = Step::Results;
        let goes_on = || !self.gate.stopped();
        control.send_state(State::ExchangeResults, step)?;
        let theirs = match control.wait(STEP_LIMIT, step, goes_on)? {
            ServerEvent::Results(results) => *results,
            _ => return Err(self.left(control)),
        };
        let halves: Vec<_> = measured.iter().map(|(half, side, _)| (half.role, side)).collect();
        control.send(&frame(&report::results(plan, &halves)), step)?;
        control.send_state(State::DisplayResults, step)?;
        // A client that closes the connection instead has all results.
        let _ = control.wait(STEP_LIMIT, step, goes_on);
        Ok(theirs)
    }
}

fn finished(started: Started, measured: &[Measured], theirs: &Results) -> Finished {
    let half = |(half, ours, samples): &Measured| FinishedHalf {
        role: half.role,
        reverse: half.reverse,
        ours: ours.clone(),
        samples: samples.clone(),
    };
    Finished { started, halves: measured.iter().map(half).collect(), theirs: theirs.clone() }
}

/// Returns the reasons for the rates of all directions, as this server knows them.
fn reasons(
    peer: &PeerName,
    plan: &TestPlan,
    theirs: &Results,
    measured: Vec<Measured>,
) -> Result<Vec<Reason>, Fault> {
    let mut first = 0;
    let mut reasons = Vec::new();
    for (half, ours, samples) in measured {
        let role = if half.role == End::Sender { End::Receiver } else { End::Sender };
        let peer_side = report::peer_side(plan, theirs, role, first, &ours)?;
        first += ours.streams.len();
        let ours = SideReport::from(&ours);
        // Sentences name the host that runs the client of a plan "this host".
        let (direction, sender, receiver) = match half.role {
            End::Sender => (Direction::Forward, ours, peer_side),
            End::Receiver => (Direction::Reverse, peer_side, ours),
        };
        let plan = TestPlan { direction, ..plan.clone() };
        let (target, end) = (peer.address.clone(), TestEnd::Completed);
        let measured = MeasuredHalf { intervals: samples, sender, receiver };
        let result = TestResult::fold(target, plan, end, measured);
        reasons.extend(result.summary.reason);
    }
    Ok(reasons)
}

/// Returns the amount of a client without an end.
fn longest() -> longhaul_core::plan::TestLength {
    longhaul_core::plan::TestLength::Time(Duration::from_secs(86_400))
}

fn no_place_words(no_place: NoPlace) -> String {
    match no_place {
        NoPlace::Busy => format!("no free session within {} s", PLACE_LIMIT.as_secs()),
        NoPlace::Limit(reason) => reason,
        NoPlace::Descriptors => "this server has too few file descriptors left".to_owned(),
        NoPlace::Left => "the client left while it waited".to_owned(),
        NoPlace::Stopping => "the server ends".to_owned(),
    }
}
