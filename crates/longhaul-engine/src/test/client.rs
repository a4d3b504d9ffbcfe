//! The client of a test: sends the plan, runs its own end, and combines the results of both ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use longhaul_core::plan::{Opener, TestPlan};
use longhaul_core::result::{End, LatencyResult, MeasuredHalf, TestEnd, TestResult, TestSample};
use longhaul_core::wire::{TestEvent, TestOrder};

use super::connect::{self, Connections};
use super::context::{Bounds, Context, Ending, Part, Signals};
use super::end;
use super::latency::Prober;
use super::limits::{STEP_LIMIT, TestLimits};
use super::mover::Carrier;
use super::placement::Places;
use super::table::{BothEnds, HalfTable, Note, Table, listen};
use crate::error::{EngineError, Result};
use crate::serve::Listener;
use crate::session::{
    ControlReceiver, ControlSender, DataAcceptor, DataDialer, Session, SessionRegistry,
};

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
    let operation = "set up the connection for latency probes";
    let prober = probe.map(Prober::new).transpose();
    let mut prober = prober.map_err(|source| EngineError::System { operation, source })?;
    let idle = prober.as_mut().and_then(Prober::idle);
    let limits = TestLimits::default();
    // The server sends a message every interval, and one when nothing moves. Longer silence means
    // that the server is gone.
    receiver.set_timeout(Some(plan.interval + limits.idle + STEP_LIMIT))?;
    drop(answers);
    sender.send(&TestOrder::Start)?;

    let (abort, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (bounds, ending) = (Bounds::new(plan, &limits), Ending::HalfClose);
    let signals = Signals { stop, abort: &abort };
    let context = Context { plan, places: &places, bounds, signals, ending, blocks: None };
    let closer = receiver.closer();
    let (notes, incoming) = mpsc::channel();
    let mut table = Table::new(&parts, on_sample);
    let (ends, loaded) = thread::scope(|scope| {
        let server_notes = notes.clone();
        let (interval, halves) = (plan.interval, parts.len() as u32);
        scope.spawn(move || listen(&mut receiver, interval, halves, &server_notes));
        for (part, carriers) in parts {
            let notes = notes.clone();
            scope.spawn(move || run_part(part, carriers, context, &notes));
        }
        drop(notes);
        let over = &over;
        let probing = prober.as_mut().map(|prober| scope.spawn(move || prober.loaded(over)));
        let ends = table.gather(&incoming, &sender, stop, &abort);
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
    let end = test_end(&ends, stop);
    let target = sender.peer().to_owned();
    let mut result = fold(target, plan, end, table.finish().into_iter().zip(ends))?;
    if plan.latency {
        result.latency = Some(LatencyResult { idle, loaded });
    }
    Ok(result)
}

/// Runs this end of one direction.
fn run_part(part: Part, carriers: Vec<Carrier>, context: Context<'_>, notes: &mpsc::Sender<Note>) {
    let result = end::run(part, carriers, context, |sample| {
        let _ = notes.send(Note::Ours(sample));
    });
    let _ = notes.send(Note::OurEnd(result));
}

/// Returns the reason for the end of a test.
fn test_end(ends: &[BothEnds], stop: &AtomicBool) -> TestEnd {
    let cut = ends.iter().find_map(|(ours, theirs)| theirs.cut.as_ref().or(ours.cut.as_ref()));
    match cut {
        Some(reason) => TestEnd::Cut { reason: reason.clone() },
        None if stop.load(Ordering::Relaxed) => TestEnd::Interrupted,
        None => TestEnd::Completed,
    }
}

/// Returns the result of a test from the intervals and results of its directions.
fn fold(
    target: String,
    plan: &TestPlan,
    end: TestEnd,
    directions: impl Iterator<Item = (HalfTable, BothEnds)>,
) -> Result<TestResult> {
    let mut measured = directions.map(|(half, (ours, theirs))| {
        let (from, to) = match half.role {
            End::Sender => (ours, theirs),
            End::Receiver => (theirs, ours),
        };
        MeasuredHalf { intervals: half.joined, sender: (&from).into(), receiver: (&to).into() }
    });
    let forward = measured.next().ok_or(EngineError::Interrupted)?;
    let result = TestResult::fold(target, plan.clone(), end, forward);
    Ok(match measured.next() {
        Some(reverse) => result.with_reverse(reverse),
        None => result,
    })
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
