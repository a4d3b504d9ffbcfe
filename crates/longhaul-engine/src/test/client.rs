//! The client of a test: sends the plan, runs its own end, and joins the measurements of both ends.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Opener, TestPlan};
use longhaul_core::result::{
    End, LatencyResult, MeasuredHalf, SideResult, SideSample, TestEnd, TestResult, TestSample,
};
use longhaul_core::wire::{TestEvent, TestOrder};

use super::connect::{self, Connections};
use super::context::{Bounds, Context, Ending, Part, Signals};
use super::end;
use super::latency::Prober;
use super::limits::{STEP_LIMIT, TestLimits};
use super::placement::Places;
use crate::error::{EngineError, Result};
use crate::serve::Listener;
use crate::session::{
    ControlReceiver, ControlSender, DataAcceptor, DataDialer, Session, SessionRegistry,
};

/// The interval at which the stop flag is checked.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// The most that the server's samples may be ahead of this clock: the omitted time and the end
/// shorten intervals, and the two clocks start at times that differ by the delay of the path.
const SAMPLE_SLACK: Duration = Duration::from_secs(60);

/// Runs `plan` over `session` and passes a sample to `on_sample` every interval. When `stop` is
/// set, the test ends early and the result covers the measured time.
///
/// # Errors
/// The server refuses the plan, a socket option does not work here, a data connection cannot be
/// opened, or the control channel breaks. A data connection that breaks during the test is not an
/// error: the result states that the test was cut.
pub fn run(
    session: Session,
    plan: &TestPlan,
    stop: &AtomicBool,
    on_sample: impl FnMut(&TestSample),
) -> Result<TestResult> {
    let (sender, mut receiver, dialer) = session.split();
    receiver.set_timeout(Some(STEP_LIMIT))?;
    let places = Places::of(plan, true)?;
    let Connections { parts, probe, answers } = prepare(&sender, &mut receiver, &dialer, plan)?;
    let mut prober = probe.map(Prober::new).transpose().map_err(|source| EngineError::System {
        operation: "set up the connection for latency probes",
        source,
    })?;
    let idle = prober.as_mut().and_then(Prober::idle);
    let limits = TestLimits::default();
    // The server sends a message every interval, and one when nothing moves. Longer silence means
    // that the server is gone.
    receiver.set_timeout(Some(plan.interval + limits.idle + STEP_LIMIT))?;
    drop(answers);
    sender.send(&TestOrder::Start)?;

    let (abort, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let signals = Signals { stop, abort: &abort };
    let bounds = Bounds::new(plan, &limits);
    let closer = receiver.closer();
    let (notes, heard) = mpsc::channel();
    let mut table = Table::new(&parts, on_sample);
    let (ends, loaded) = thread::scope(|scope| {
        let server_notes = notes.clone();
        let (interval, halves) = (plan.interval, parts.len() as u32);
        scope.spawn(move || listen(&mut receiver, interval, halves, &server_notes));
        for (part, carriers) in parts {
            let notes = notes.clone();
            let places = &places;
            scope.spawn(move || {
                let ending = Ending::HalfClose;
                let context = Context { plan, places, bounds, signals, ending, blocks: None };
                let result = end::run(part, carriers, context, |sample| {
                    let _ = notes.send(Note::Ours(sample));
                });
                let _ = notes.send(Note::OurEnd(result));
            });
        }
        drop(notes);
        let over = &over;
        let probing = prober.as_mut().map(|prober| scope.spawn(move || prober.loaded(over)));
        let ends = table.gather(&heard, &sender, stop, &abort);
        if ends.is_err() {
            // All threads have finished.
            abort.store(true, Ordering::Release);
            closer();
        }
        over.store(true, Ordering::Release);
        (ends, probing.and_then(|probing| probing.join().ok().flatten()))
    });
    let ends = ends?;
    // The server waits a short time for this message.
    let _ = sender.send(&TestOrder::Finished);
    let cut = ends.iter().find_map(|(ours, theirs)| theirs.cut.as_ref().or(ours.cut.as_ref()));
    let end = match cut {
        Some(reason) => TestEnd::Cut { reason: reason.clone() },
        None if stop.load(Ordering::Relaxed) => TestEnd::Interrupted,
        None => TestEnd::Completed,
    };
    let target = sender.peer().to_owned();
    let mut halves = table.finish().into_iter().zip(ends).map(|(half, (ours, theirs))| {
        let (from, to) = match half.role {
            End::Sender => (ours, theirs),
            End::Receiver => (theirs, ours),
        };
        (half.joined, from, to)
    });
    let (intervals, from, to) = halves.next().ok_or(EngineError::Interrupted)?;
    let measured = MeasuredHalf { intervals, sender: (&from).into(), receiver: (&to).into() };
    let mut result = TestResult::fold(target, plan.clone(), end, measured);
    if let Some((intervals, from, to)) = halves.next() {
        let measured = MeasuredHalf { intervals, sender: (&from).into(), receiver: (&to).into() };
        result = result.with_reverse(measured);
    }
    if plan.latency {
        result.latency = Some(LatencyResult { idle, loaded });
    }
    Ok(result)
}

/// Sends the plan and opens or accepts the data connections.
fn prepare(
    sender: &ControlSender,
    receiver: &mut ControlReceiver,
    dialer: &DataDialer,
    plan: &TestPlan,
) -> Result<Connections> {
    connect::check(plan, true)?;
    sender.send(&TestOrder::Plan(Box::new(plan.clone())))?;
    expect(receiver, &TestEvent::Accepted)?;
    let connections = match plan.opener {
        Opener::Client => connect::open(dialer, plan, true, usize::MAX)?,
        Opener::Server => {
            let listener = DataListener::open(dialer)?;
            sender.send(&TestOrder::Listening { port: listener.port })?;
            listener.accept(plan)?
        }
    };
    expect(receiver, &TestEvent::Ready)?;
    Ok(connections)
}

/// A listener for the data connections that the server opens.
struct DataListener {
    port: u16,
    acceptor: DataAcceptor,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl DataListener {
    fn open(dialer: &DataDialer) -> Result<Self> {
        // An IPv6 wildcard accepts IPv4, too; a host without IPv6 has no such address.
        let any = |ip: IpAddr| Listener::bind((ip, 0).into());
        let listener =
            any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        let port = listener.address().port();
        let registry = SessionRegistry::default();
        let acceptor = registry.register_mutual(dialer.secret().clone());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("data-listener".into())
            .spawn(move || listener.run_data(&registry, &stopped))
            .map_err(|source| EngineError::System { operation: "start a thread", source })?;
        Ok(DataListener { port, acceptor, stop, thread: Some(thread) })
    }

    fn accept(self, plan: &TestPlan) -> Result<Connections> {
        connect::accept(&self.acceptor, plan, true, usize::MAX, STEP_LIMIT)
    }
}

impl Drop for DataListener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn expect(receiver: &mut ControlReceiver, expected: &TestEvent) -> Result<()> {
    let peer = receiver.peer().to_owned();
    match receiver.receive()? {
        event if event == *expected => Ok(()),
        TestEvent::Refused { kind, reason } => Err(EngineError::Refused { peer, kind, reason }),
        TestEvent::Failed { reason } => Err(EngineError::Failed { peer, reason, again: false }),
        _ => Err(EngineError::Protocol { peer, what: "it sent an unexpected answer" }),
    }
}

/// A message from a thread of the client to the thread that joins the samples.
enum Note {
    Ours(SideSample),
    OurEnd(SideResult),
    Theirs(SideSample),
    TheirEnd(Result<SideResult>),
}

/// Passes the server's messages on until the end. It accepts at most the samples of all intervals
/// in each of the `halves`, so that the memory for samples is bounded by the duration.
fn listen(
    receiver: &mut ControlReceiver,
    interval: Duration,
    halves: u32,
    notes: &mpsc::Sender<Note>,
) {
    let peer = receiver.peer().to_owned();
    let begun = Instant::now();
    let (mut samples, mut ended) = (0u32, 0);
    while ended < halves {
        let end = match receiver.receive() {
            Ok(TestEvent::Sample(_))
                if begun.elapsed() + SAMPLE_SLACK < interval * (samples / halves) =>
            {
                Err(EngineError::Protocol {
                    peer: peer.clone(),
                    what: "it sent more samples than requested",
                })
            }
            Ok(TestEvent::Sample(sample)) => {
                samples += 1;
                let _ = notes.send(Note::Theirs(sample));
                continue;
            }
            Ok(TestEvent::Done(result)) => Ok(result),
            Ok(TestEvent::Failed { reason }) => {
                Err(EngineError::Failed { peer: peer.clone(), reason, again: false })
            }
            Ok(_) => Err(EngineError::Protocol {
                peer: peer.clone(),
                what: "it sent an unexpected \
                    message",
            }),
            Err(error) => Err(error),
        };
        let broken = end.is_err();
        let _ = notes.send(Note::TheirEnd(end));
        if broken {
            return;
        }
        ended += 1;
    }
}

/// Joins the samples of both ends per interval and direction.
struct Table<F> {
    halves: Vec<HalfTable>,
    on_sample: F,
}

/// One direction of the table.
struct HalfTable {
    /// The role of this end.
    role: End,
    reverse: bool,
    from: VecDeque<SideSample>,
    to: VecDeque<SideSample>,
    joined: Vec<TestSample>,
    ends: (Option<SideResult>, Option<SideResult>),
    /// The totals of the server's samples.
    server_so_far: SideResult,
}

impl HalfTable {
    /// Joins the next interval that both ends have completed.
    fn join(&mut self) -> Option<TestSample> {
        let (from, to) = (self.from.front()?, self.to.front()?);
        let joined = TestSample::join(to, Some(from));
        self.from.pop_front();
        self.to.pop_front();
        Some(joined)
    }
}

impl<F: FnMut(&TestSample)> Table<F> {
    fn new<T>(parts: &[(Part, T)], on_sample: F) -> Self {
        let half = |(part, _): &(Part, T)| HalfTable {
            role: part.role,
            reverse: part.reverse,
            from: VecDeque::new(),
            to: VecDeque::new(),
            joined: Vec::new(),
            ends: (None, None),
            server_so_far: SideResult::default(),
        };
        Table { halves: parts.iter().map(half).collect(), on_sample }
    }

    /// Receives messages until both ends have finished all directions. Returns the results of this
    /// end and of the server per direction.
    fn gather(
        &mut self,
        heard: &mpsc::Receiver<Note>,
        sender: &ControlSender,
        stop: &AtomicBool,
        abort: &AtomicBool,
    ) -> Result<Vec<(SideResult, SideResult)>> {
        let mut passed_on = false;
        loop {
            if stop.load(Ordering::Acquire) && !passed_on {
                passed_on = true;
                // A server that is gone ends the test by itself.
                let _ = sender.send(&TestOrder::Stop);
            }
            match heard.recv_timeout(STOP_LOOK) {
                Ok(Note::Ours(sample)) => self.add(true, sample),
                Ok(Note::Theirs(sample)) => self.add(false, sample),
                Ok(Note::OurEnd(result)) => {
                    if result.cut.is_some() {
                        // If one direction breaks, the other ends, too: alone it would be a
                        // different test.
                        abort.store(true, Ordering::Release);
                    }
                    if let Some(half) = self.half(result.reverse) {
                        half.ends.0 = Some(result);
                    }
                }
                // The measurements of a server that vanished count until then.
                Ok(Note::TheirEnd(Err(error))) if error.is_loss() && self.has_measured() => {
                    abort.store(true, Ordering::Release);
                    self.server_is_lost(&error);
                }
                Ok(Note::TheirEnd(result)) => {
                    let result = result?;
                    if let Some(half) = self.half(result.reverse) {
                        half.ends.1 = Some(result);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Every thread sends a last message unless it panics. A server that ends one
                // direction twice ends the loop, too.
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Interrupted),
            }
            if self.halves.iter().all(|half| half.ends.0.is_some() && half.ends.1.is_some()) {
                let ends = self.halves.iter_mut().map(|half| std::mem::take(&mut half.ends));
                return Ok(ends.filter_map(|(ours, theirs)| ours.zip(theirs)).collect());
            }
        }
    }

    /// Returns the direction of a sample or result; `None` if the test does not have it.
    fn half(&mut self, reverse: bool) -> Option<&mut HalfTable> {
        self.halves.iter_mut().find(|half| half.reverse == reverse)
    }

    /// Returns whether both ends have completed an interval.
    fn has_measured(&self) -> bool {
        self.halves.iter().any(|half| !half.joined.is_empty())
    }

    /// Ends the directions that the server has not ended, with the totals of its samples.
    fn server_is_lost(&mut self, error: &EngineError) {
        for half in self.halves.iter_mut().filter(|half| half.ends.1.is_none()) {
            let so_far = std::mem::take(&mut half.server_so_far);
            half.ends.1 = Some(SideResult { cut: Some(error.to_string()), ..so_far });
        }
    }

    fn add(&mut self, ours: bool, sample: SideSample) {
        let of = sample.reverse;
        let Some(half) = self.halves.iter_mut().find(|half| half.reverse == of) else { return };
        if !ours {
            half.server_so_far.add(&sample);
        }
        let sent = (half.role == End::Sender) == ours;
        let side = if sent { &mut half.from } else { &mut half.to };
        side.push_back(sample);
        while let Some(joined) = half.join() {
            half.joined.push(joined);
            if let Some(joined) = half.joined.last() {
                (self.on_sample)(joined);
            }
        }
    }

    /// Returns all intervals. The last interval of the receiver may have no counterpart and counts
    /// nevertheless.
    fn finish(mut self) -> Vec<HalfTable> {
        for half in &mut self.halves {
            for to in std::mem::take(&mut half.to) {
                let joined = TestSample::join(&to, None);
                (self.on_sample)(&joined);
                half.joined.push(joined);
            }
        }
        self.halves
    }
}
