//! One accepted test of a client: its data ports, its data and its report.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{
    End, MeasuredHalf, Reason, SideReport, SideResult, SideSample, SideStreamReport, TestEnd,
    TestResult, TestSample,
};
use longhaul_core::units::Bytes;
use longhaul_core::wire::RefusalKind;
use longhaul_engine::EngineError;
use longhaul_engine::serve::{Gate, GuestReport, Visit};
use longhaul_engine::session::{Operation, SessionWork};
use longhaul_engine::test::{TestLimits, TestMemory};

use super::Running;
use super::accept::Ports;
use super::blocks::Marks;
use super::channel::{Channel, ChannelRead, Deadline};
use super::client::time_beside_bytes;
use super::datagrams::Datagrams;
use super::end::{DataRun, LocalEnd};
use super::open::{Opened, Opener, Sockets, waits};
use super::ports::{PortLock, PortLocks};
use crate::nuttcp::{Block, Opening, Parameters, Server, Style, Version};

/// The longest time for which a client waits for a session or for its data ports.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The interval between attempts to open a data port that another program uses.
const RETRY: Duration = Duration::from_millis(50);

/// A test that has a place.
pub(super) struct Accepted {
    pub(super) channel: Channel,
    pub(super) machine: Server,
    pub(super) parameters: Parameters,
    pub(super) version: Version,
    pub(super) plan: TestPlan,
    pub(super) memory: TestMemory,
    pub(super) _visit: Visit,
}

/// The end of a client.
pub(super) struct Served {
    version: Option<Version>,
    began: bool,
    work: SessionWork,
    reasons: Vec<Reason>,
    outcome: longhaul_engine::Result<()>,
}

impl Served {
    /// Returns the end of a client that was refused.
    pub(super) fn refused(version: Option<Version>, reason: &str) -> Box<Self> {
        let (peer, reason) = ("nuttcp".to_owned(), reason.to_owned());
        let outcome = Err(EngineError::Refused { peer, kind: RefusalKind::Limit, reason });
        let (work, reasons) = (SessionWork::default(), Vec::new());
        Box::new(Self { version, began: false, work, reasons, outcome })
    }

    /// Returns the end of a client whose connection failed.
    pub(super) fn lost(version: Option<Version>, source: io::Error) -> Box<Self> {
        let outcome = Err(EngineError::System { operation: "communicate with the client", source });
        let (work, reasons) = (SessionWork::default(), Vec::new());
        Box::new(Self { version, began: false, work, reasons, outcome })
    }

    /// Returns the report for the log.
    pub(super) fn report(self, address: SocketAddr, duration: Duration) -> GuestReport {
        GuestReport {
            program: "nuttcp",
            version: self.version.map(|version| version.to_string()),
            address,
            began: self.began,
            duration,
            work: self.work,
            reasons: self.reasons,
            outcome: self.outcome,
        }
    }
}

/// The flags of a running test.
#[derive(Default)]
struct Flags {
    stop: AtomicBool,
    abort: AtomicBool,
    /// This end has no more data.
    done: AtomicBool,
    /// The client has closed its half of the control connection.
    left: AtomicBool,
}

impl Accepted {
    /// Runs the test to its end.
    pub(super) fn run(
        mut self,
        limits: &TestLimits,
        ports: &PortLocks,
        gate: &Gate,
    ) -> Box<Served> {
        let version = Some(self.version);
        let (opened, lock) = match self.open(ports, gate) {
            Ok(opened) => opened,
            Err(error) => return Served::lost(version, error),
        };
        let begun = Instant::now();
        let measured = self.measure(opened, limits, gate);
        drop(lock);
        let duration = Some(begun.elapsed());
        let (side, samples) = match measured {
            Ok(measured) => measured,
            Err(error) => {
                return Box::new(Served { began: true, ..*Served::lost(version, error) });
            }
        };
        let bytes = side.streams.iter().map(|stream| stream.total_bytes.get()).sum();
        let work = SessionWork {
            operation: Some(Operation::Test),
            bytes: Bytes::new(bytes),
            duration,
            cut: side.cut.clone(),
            ..SessionWork::default()
        };
        let reasons = self.reason(&side, samples).into_iter().collect();
        Box::new(Served { version, began: true, work, reasons, outcome: Ok(()) })
    }

    fn role(&self) -> End {
        if self.parameters.client_sends { End::Receiver } else { End::Sender }
    }

    /// Opens the data connections: takes the ports before the answer, and connects after it.
    fn open<'a>(
        &mut self,
        ports: &'a PortLocks,
        gate: &Gate,
    ) -> io::Result<(Opened, Option<PortLock<'a>>)> {
        let role = self.role();
        let (held, lock) = if waits(&self.parameters, role) {
            match self.take_ports(ports, gate) {
                Ok((held, lock)) => (Some(held), Some(lock)),
                Err(error) => {
                    self.machine
                        .refuse(&format!("data port {} is in use: {error}", self.parameters.port));
                    let _ = self.channel.send(&self.machine.output());
                    return Err(error);
                }
            }
        } else {
            (None, None)
        };
        self.machine.accept();
        self.channel.send(&self.machine.output())?;
        let peer = canonical(self.channel.peer()?);
        let (parameters, plan) = (&self.parameters, &self.plan);
        let alive = || self.channel.is_open() && !gate.stopped();
        let opener = Opener { parameters, plan, role, peer, local: None, alive: &alive };
        let opened = opener.open(held)?;
        // Over TCP the listeners are closed, and another test can have the ports.
        let lock = lock.filter(|_| self.parameters.udp);
        let rtt = opened.rtt;
        self.print_start(&opened, peer, rtt)?;
        Ok((opened, lock))
    }

    fn take_ports<'a>(
        &self,
        ports: &'a PortLocks,
        gate: &Gate,
    ) -> io::Result<(Ports, PortLock<'a>)> {
        let waits = || self.channel.is_open() && !gate.stopped();
        let range = self.parameters.port..=self.parameters.last_port();
        let lock = ports.take(range, WAIT_LIMIT, waits).ok_or(ErrorKind::AddrInUse)?;
        let local = canonical(self.channel.local()?).ip();
        let deadline = Deadline::after(WAIT_LIMIT);
        loop {
            match Ports::open(local, &self.parameters, &self.plan, self.role()) {
                Ok(held) => return Ok((held, lock)),
                Err(e) if e.kind() != ErrorKind::AddrInUse || deadline.is_over() => return Err(e),
                Err(e) if !waits() => return Err(e),
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    fn block(&self) -> Block<'_> {
        Block {
            sends: self.role() == End::Sender,
            ident: "",
            parameters: &self.parameters,
            style: Style(self.parameters.format),
        }
    }

    fn print_start(
        &mut self,
        opened: &Opened,
        peer: SocketAddr,
        rtt: Option<Duration>,
    ) -> io::Result<()> {
        let windows = opened.windows();
        let mss = match &opened.sockets {
            Sockets::Tcp(streams) => streams.first(),
            Sockets::Udp(_) => None,
        };
        let mss = mss.and_then(|stream| longhaul_sys::tcp::granted(stream).ok()).map(|g| g.mss);
        let rtt_ms = rtt.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3);
        let opening = Opening { connected: rtt.is_some(), peer: peer.ip(), mss, rtt_ms };
        let lines = self.block().start(&opening, windows);
        self.print(&lines)
    }

    fn print(&mut self, lines: &[String]) -> io::Result<()> {
        lines.iter().for_each(|line| self.machine.print(line));
        self.channel.send(&self.machine.output())
    }

    /// Moves the data while another thread watches the control connection, and sends the report.
    fn measure(
        &mut self,
        opened: Opened,
        limits: &TestLimits,
        gate: &Gate,
    ) -> io::Result<(SideResult, Vec<TestSample>)> {
        let (flags, role) = (Flags::default(), self.role());
        let marks = Marks::new(&self.parameters, self.version, true);
        let data = DataRun {
            parameters: &self.parameters,
            plan: &self.plan,
            role,
            at_client: false,
            limits,
            memory: Some(&self.memory),
            stop: &flags.stop,
            abort: &flags.abort,
            marks: &marks,
            datagrams: Arc::new(Datagrams::new(&self.parameters)),
        };
        let watch = Watch {
            channel: self.channel.duplicate()?,
            flags: &flags,
            gate,
            udp: self.parameters.udp,
            time: time_beside_bytes(&self.parameters).filter(|_| role == End::Sender),
        };
        let mut printer = Printer {
            channel: self.channel.duplicate()?,
            parameters: &self.parameters,
            marks: &marks,
            running: Running::default(),
            samples: Vec::new(),
            cwnd_bytes: 0,
            role,
        };
        let side = thread::scope(|scope| {
            scope.spawn(move || watch.run());
            let over = || flags.left.load(Ordering::Relaxed);
            let side = data.run(opened.sockets, |sample| printer.take(sample), over);
            flags.done.store(true, Ordering::Release);
            side
        });
        let side = side.map_err(io::Error::other)?;
        let (samples, cwnd_bytes) = (std::mem::take(&mut printer.samples), printer.cwnd_bytes);
        let totals = LocalEnd::of(&side, cwnd_bytes, &data).totals(&self.parameters);
        let lines = self.block().end(&totals, true);
        if role == End::Receiver && !self.parameters.interval.is_zero() {
            self.machine.print("DONE");
        }
        // A client that has left has no use for the report, and the test is over.
        let _ = self.print(&lines);
        Ok((side, samples))
    }

    /// Returns the reason for the rate, as far as this end knows it.
    fn reason(&self, side: &SideResult, samples: Vec<TestSample>) -> Option<Reason> {
        let ours = SideReport::from(side);
        let streams = ours.streams.iter().map(|stream| SideStreamReport {
            bytes: stream.bytes,
            seconds: stream.seconds,
            ..SideStreamReport::default()
        });
        let theirs =
            SideReport { seconds: ours.seconds, streams: streams.collect(), ..Default::default() };
        let (sender, receiver) = match self.role() {
            End::Sender => (ours, theirs),
            End::Receiver => (theirs, ours),
        };
        let target = self.channel.peer().ok()?.to_string();
        let end = TestEnd::Completed;
        let plan = self.plan.clone();
        let measured = MeasuredHalf { intervals: samples, sender, receiver };
        TestResult::fold(target, plan, end, measured).summary.reason
    }
}

/// Returns an IPv4 address instead of its form in IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => (v4, v6.port()).into(),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// Sends the lines of the intervals, and keeps the samples for the reason.
struct Printer<'a> {
    channel: Channel,
    parameters: &'a Parameters,
    marks: &'a Marks,
    running: Running,
    samples: Vec<TestSample>,
    cwnd_bytes: u64,
    role: End,
}

impl Printer<'_> {
    fn take(&mut self, sample: SideSample) {
        if self.role == End::Sender {
            let windows = sample.streams.iter().filter_map(|stream| stream.tcp.as_ref());
            self.cwnd_bytes = windows.map(|tcp| tcp.cwnd_bytes.get()).sum();
            return self.samples.push(TestSample::of_sender(&sample));
        }
        if !self.parameters.interval.is_zero() {
            let interval = self.running.interval(&sample, self.parameters, self.marks);
            let line = interval.line(Style(self.parameters.format)) + "\n";
            let _ = self.channel.send(line.as_bytes());
        }
        self.samples.push(TestSample::join(&sample, None));
    }
}

/// The thread that watches the control connection during the data.
struct Watch<'a> {
    channel: Channel,
    flags: &'a Flags,
    gate: &'a Gate,
    udp: bool,
    /// The time after which a sender stops before its bytes are sent.
    time: Option<Duration>,
}

impl Watch<'_> {
    fn run(mut self) {
        let begun = Instant::now();
        while !self.flags.done.load(Ordering::Acquire) {
            if self.gate.stopped() || self.time.is_some_and(|time| begun.elapsed() > time) {
                self.flags.stop.store(true, Ordering::Release);
            }
            match self.channel.look() {
                ChannelRead::Nothing => {}
                // A client closes its half after the last mark of its datagrams.
                ChannelRead::End if self.udp => {
                    self.flags.stop.store(true, Ordering::Release);
                    return self.flags.left.store(true, Ordering::Release);
                }
                // Nothing may arrive during a test: the client is gone or does not follow the
                // protocol.
                ChannelRead::Bytes(_) | ChannelRead::End | ChannelRead::Broken(_) => {
                    self.flags.left.store(true, Ordering::Release);
                    return self.flags.abort.store(true, Ordering::Release);
                }
            }
        }
    }
}
