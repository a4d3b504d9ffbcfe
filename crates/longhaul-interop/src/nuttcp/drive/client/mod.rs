//! The client: runs a test against a nuttcp server.

mod watch;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{End, TestEnd, TestResult, TestSample};
use longhaul_engine::EngineError;
use longhaul_engine::test::TestLimits;

use self::watch::{Flags, ServerNotes, Watch};
use super::accept::Ports;
use super::blocks::Marks;
use super::channel::{Channel, ChannelRead, Deadline, STEP_LIMIT};
use super::datagrams::Datagrams;
use super::end::{DataRun, LocalEnd};
use super::open::{Opened, Opener, waits};
use super::plan::{parameters_of, plan_of};
use super::result::{Ends, Joiner, Observer};
use crate::client::PeerTest;
use crate::error::{Fault, InteropError, PeerName, PeerOption, Result, Step};
use crate::nuttcp::{
    Client, ClientError, ClientEvent, Feature, LONGEST_LINE, LineError, Parameters, ServerReport,
    Version,
};
use crate::peer::Program;

/// The pause of nuttcp's client after the server's answer, in which the server opens its port.
const PAUSE: Duration = Duration::from_millis(10);

/// The options of a client that are not part of a plan.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// The parameters instead of those of the plan.
    pub parameters: Option<Parameters>,
    /// This end's socket buffer in bytes, with `parameters`; 0 leaves it to the kernel.
    pub window_bytes: u32,
    /// True if the length of a datagram shrinks by halves to the segment size of the control
    /// connection, so that it needs no fragments.
    pub fit_datagram: bool,
}

/// A finished test.
#[derive(Debug)]
pub struct ClientResult {
    /// The result.
    pub test: TestResult,
    /// The parameters of the test.
    pub parameters: Parameters,
    /// The version of the server.
    pub peer: Version,
    /// The address of the server.
    pub address: SocketAddr,
    /// The figures of this end.
    pub ours: LocalEnd,
    /// The report of the server; `None` after an interruption.
    pub server: Option<ServerReport>,
    /// The time of the first connect, if this end connected over TCP.
    pub rtt: Option<Duration>,
    /// The send buffer and the receive buffer of the first socket, as the kernel reports them.
    pub windows: (u64, u64),
}

/// Runs a test against a nuttcp server, and passes its progress to `observer`.
///
/// Every wait is limited: 10 s for a connection, 20 s for each step before the data, 30 s without
/// progress of the data, and 60 s for the report of the server.
///
/// # Errors
/// nuttcp or the version of the server lacks an option of the plan, the server refuses the test or
/// does not follow the protocol, or a connection breaks.
pub fn run(
    test: &PeerTest<'_>,
    options: &ClientOptions,
    observer: &mut dyn Observer,
) -> Result<ClientResult> {
    let peer = PeerName {
        program: Program::Nuttcp,
        version: None,
        address: format!("{}:{}", test.address.host, test.address.port),
    };
    let lacks = |wanted| InteropError::Unsupported { peer: peer.clone(), wanted, since: None };
    let (parameters, window) = match &options.parameters {
        Some(parameters) => (parameters.clone(), options.window_bytes),
        None => {
            let parameters = parameters_of(test.plan).map_err(lacks)?;
            let window = parameters.server_window_bytes;
            (parameters, window)
        }
    };
    let chosen = options.parameters.is_none();
    let role = if parameters.client_sends { End::Sender } else { End::Receiver };
    let channel = Channel::new(test.connect()?).map_err(host("set up the control connection"))?;
    let local = channel.local().map_err(host("read the local address"))?.ip();
    let parameters = if options.fit_datagram { fitted(parameters, &channel) } else { parameters };
    let plan = own_plan(test, &parameters, window, chosen);
    let (parameters, ports) = open_ports(local, parameters, &plan, (role, chosen))?;
    let mut session = Session { channel, peer, plan, parameters, role };
    session.run(test, ports, observer)
}

/// Halves the length of datagrams until it fits the segment size of `channel`.
fn fitted(mut parameters: Parameters, channel: &Channel) -> Parameters {
    let segment = channel.segment_bytes().unwrap_or(1024).max(64);
    while parameters.buffer_bytes > segment {
        parameters.buffer_bytes /= 2;
    }
    parameters
}

/// Returns the plan of this end: the user's, with the amounts and lengths of the protocol.
fn own_plan(test: &PeerTest<'_>, parameters: &Parameters, window: u32, of_user: bool) -> TestPlan {
    let plan = plan_of(parameters, window);
    if !of_user {
        return plan;
    }
    let TestPlan { amount, write_bytes, .. } = plan;
    TestPlan { amount, write_bytes, ..test.plan.clone() }
}

/// Opens the data ports of this end, if it has any. If the ports were not `chosen` by the user and
/// are in use, others are taken.
fn open_ports(
    local: IpAddr,
    mut parameters: Parameters,
    plan: &TestPlan,
    (role, free_choice): (End, bool),
) -> Result<(Parameters, Option<Ports>)> {
    if !waits(&parameters, role) {
        return Ok((parameters, None));
    }
    let any: IpAddr = match local {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let first = parameters.port;
    loop {
        match Ports::open(any, &parameters, plan, role) {
            Ok(ports) => return Ok((parameters, Some(ports))),
            Err(error) => {
                let next = parameters.last_port().saturating_add(1);
                let last = first.saturating_add(4000);
                if !free_choice || error.kind() != io::ErrorKind::AddrInUse || next > last {
                    return Err(host("open the data ports")(error));
                }
                parameters.port = next;
            }
        }
    }
}

fn host(operation: &'static str) -> impl FnOnce(io::Error) -> InteropError {
    move |source| InteropError::Host { operation, source }
}

/// A test in progress.
struct Session {
    channel: Channel,
    peer: PeerName,
    plan: TestPlan,
    parameters: Parameters,
    role: End,
}

impl Session {
    fn run(
        &mut self,
        test: &PeerTest<'_>,
        ports: Option<Ports>,
        observer: &mut dyn Observer,
    ) -> Result<ClientResult> {
        let mut machine = Client::new(self.parameters.clone());
        self.agree(&mut machine, test.stop)?;
        let version = machine.peer().unwrap_or(Version::OLDEST);
        let address = self.channel.peer().map_err(host("read the peer's address"))?;
        thread::sleep(PAUSE);
        let opened = self.open(ports, address, test)?;
        let (rtt, windows) = (opened.rtt, opened.windows());
        let (ours, intervals, cwnd, server) =
            self.measure(machine, opened, (version, test.stop), observer)?;
        let interrupted = test.stop.load(Ordering::Relaxed);
        let end = match &ours.side.cut {
            Some(reason) => TestEnd::Cut { reason: reason.clone() },
            None if interrupted => TestEnd::Interrupted,
            None => TestEnd::Completed,
        };
        let ends = Ends {
            target: self.peer.address.clone(),
            plan: &self.plan,
            parameters: &self.parameters,
            role: self.role,
            version: version.to_string(),
            ours: &ours.side,
            theirs: server.as_ref(),
            intervals,
            end,
        };
        let figures = LocalEnd { cwnd_bytes: cwnd, ..ours.figures };
        Ok(ClientResult {
            test: ends.fold(),
            parameters: self.parameters.clone(),
            peer: version,
            address,
            ours: figures,
            server,
            rtt,
            windows,
        })
    }

    /// Exchanges the versions and the parameters.
    fn agree(&mut self, machine: &mut Client, stop: &AtomicBool) -> Result<()> {
        let deadline = Deadline::after(STEP_LIMIT);
        loop {
            let output = machine.output();
            if !output.is_empty() {
                self.channel.send(&output).map_err(|source| self.closed(Some(source)))?;
            }
            match self.channel.look() {
                ChannelRead::Bytes(bytes) => {
                    let events = machine.receive(&bytes).map_err(|error| self.failure(error))?;
                    self.peer.version = machine.peer().map(|version| version.to_string());
                    if matches!(events.first(), Some(ClientEvent::Accepted(_))) {
                        return Ok(());
                    }
                }
                ChannelRead::Nothing if stop.load(Ordering::Relaxed) => {
                    return Err(EngineError::Interrupted.into());
                }
                ChannelRead::Nothing if deadline.is_over() => {
                    let peer = self.peer.clone();
                    return Err(InteropError::Silent {
                        peer,
                        during: self.step(),
                        limit: STEP_LIMIT,
                    });
                }
                ChannelRead::Nothing => {}
                ChannelRead::End => {
                    let error = machine.end().err();
                    return Err(error.map_or_else(|| self.closed(None), |e| self.failure(e)));
                }
                ChannelRead::Broken(source) => return Err(self.closed(Some(source))),
            }
        }
    }

    fn step(&self) -> Step {
        if self.peer.version.is_some() { Step::Parameters } else { Step::Greeting }
    }

    fn closed(&self, source: Option<io::Error>) -> InteropError {
        InteropError::Closed { peer: self.peer.clone(), during: self.step(), source }
    }

    fn failure(&self, error: ClientError) -> InteropError {
        let mut peer = self.peer.clone();
        let during = self.step();
        let protocol = |peer, fault| InteropError::Protocol { peer, during, fault };
        match error {
            ClientError::Line(error) => protocol(peer, fault_of(error)),
            ClientError::NotNuttcp(line) => protocol(peer, Fault::Line(line)),
            ClientError::Unexpected { line, .. } => protocol(peer, Fault::Line(line)),
            ClientError::TooOld(version) => {
                peer.version = Some(version.to_string());
                let since = Some("6.1.2");
                InteropError::Unsupported { peer, wanted: PeerOption::Version, since }
            }
            ClientError::Lacks { feature, peer: version } => {
                peer.version = Some(version.to_string());
                let (wanted, since) = wanted(feature);
                InteropError::Unsupported { peer, wanted, since: Some(since) }
            }
            ClientError::Refused { reason, .. } => InteropError::Refused { peer, reason },
            ClientError::Closed { .. } => InteropError::Closed { peer, during, source: None },
        }
    }

    fn open(
        &mut self,
        ports: Option<Ports>,
        peer: SocketAddr,
        test: &PeerTest<'_>,
    ) -> Result<Opened> {
        let (parameters, plan, role) = (&self.parameters, &self.plan, self.role);
        let alive = || !test.stop.load(Ordering::Relaxed);
        let opener = Opener { parameters, plan, role, peer, local: test.local, alive: &alive };
        opener.open(ports).map_err(|source| {
            let peer = self.peer.clone();
            InteropError::Closed { peer, during: Step::Streams, source: Some(source) }
        })
    }

    /// Moves the data while another thread reads the control connection.
    fn measure(
        &mut self,
        machine: Client,
        opened: Opened,
        (version, stop): (Version, &AtomicBool),
        observer: &mut dyn Observer,
    ) -> Result<(LocalResult, Vec<TestSample>, u64, Option<ServerReport>)> {
        let flags = Flags::default();
        let marks = Marks::new(&self.parameters, version, false);
        let limits = TestLimits::default();
        let data = DataRun {
            parameters: &self.parameters,
            plan: &self.plan,
            role: self.role,
            at_client: true,
            limits: &limits,
            memory: None,
            stop: &flags.halt,
            abort: &flags.abort,
            marks: &marks,
            datagrams: Arc::new(Datagrams::new(&self.parameters)),
        };
        let reading = self.channel.duplicate().map_err(host("duplicate a connection"))?;
        let (notes, heard) = mpsc::channel();
        let mut joiner = Joiner::new((&self.parameters, self.role), &marks, observer);
        let mut gathered = ServerNotes::default();
        let channel = &self.channel;
        let side = thread::scope(|scope| {
            let watch = Watch {
                channel: reading,
                peer: self.peer.clone(),
                flags: &flags,
                stop,
                time: time_beside_bytes(&self.parameters),
                datagrams: self.parameters.udp,
            };
            scope.spawn(move || watch.run(machine, &notes));
            let over = || flags.closed.load(Ordering::Relaxed);
            let take = |sample| {
                gathered.take(&heard, &mut joiner);
                joiner.ours(sample);
            };
            let side = data.run(opened.sockets, take, over);
            flags.done.store(true, Ordering::Release);
            if self.parameters.udp && self.role == End::Sender {
                channel.finish();
            }
            side
        });
        gathered.take(&heard, &mut joiner);
        let side = side?;
        if let Some(error) = gathered.failed.filter(|_| !stop.load(Ordering::Relaxed)) {
            return Err(error);
        }
        let figures = LocalEnd::of(&side, 0, &data);
        let (intervals, cwnd) = joiner.finish();
        Ok((LocalResult { side, figures }, intervals, cwnd, gathered.report))
    }
}

/// This end's result and figures.
struct LocalResult {
    side: longhaul_core::result::SideResult,
    figures: LocalEnd,
}

/// Returns the time of a sender that has a number of buffers, too: it stops at the first of both.
pub(super) fn time_beside_bytes(parameters: &Parameters) -> Option<Duration> {
    parameters.buffers.map(|_| parameters.time).filter(|time| !time.is_zero())
}

/// Returns the fault of the lines of a server.
fn fault_of(error: LineError) -> Fault {
    match error {
        LineError::Long => {
            let limit = LONGEST_LINE as u64;
            Fault::TooLong { bytes: limit + 1, limit }
        }
        LineError::Byte(byte) => Fault::Unexpected(byte.into()),
        LineError::Many => Fault::Malformed,
    }
}

/// Returns the name of an option that a version lacks, and the first version that has it.
fn wanted(feature: Feature) -> (PeerOption, &'static str) {
    match feature {
        Feature::ServerCpu => (PeerOption::ServerCpu, "6.2.6"),
        Feature::Burst => (PeerOption::Burst, "6.2.7"),
        Feature::LowPort => (PeerOption::LowPort, "6.2.10"),
        Feature::Jitter => (PeerOption::Jitter, "7.0.1"),
        Feature::Delay => (PeerOption::Delay, "7.0.1"),
        Feature::SourcePort => (PeerOption::SourcePort, "7.3.1"),
        Feature::SlowStart => (PeerOption::SlowStart, "8.1.1"),
    }
}
