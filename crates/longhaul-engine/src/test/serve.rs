//! The server of a test: receives the plan, runs the server's end and sends its measurements.

use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use longhaul_core::plan::{Opener, TestPlan};
use longhaul_core::result::SideResult;
use longhaul_core::units::Bytes;
use longhaul_core::wire::{RefusalKind, TestEvent, TestOrder};

use super::connect::{self, Connections};
use super::context::{Bounds, Context, Ending, Part, Signals};
use super::end;
use super::latency;
use super::limits::{PLAN_LIMIT, STEP_LIMIT, TestLimits, reserve_rate};
use super::memory::Memory;
use super::mover::Carrier;
use super::placement::Places;
use crate::error::{EngineError, Result};
use crate::session::{
    ControlReceiver, ControlSender, DataAcceptor, DataDialer, FlowAnswers, Operation,
    ServedSession, WorkRecord,
};

/// Serves one test under `limits` on the calling thread. It returns in bounded time for every
/// behavior of the client.
///
/// # Errors
/// The client was refused, its data connections did not arrive, or the control channel broke.
pub fn serve(session: ServedSession, limits: &TestLimits) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, record, rate, .. } = session;
    let peer = sender.peer().to_owned();
    record.note_request(Operation::Test, []);
    receiver.set_timeout(Some(PLAN_LIMIT))?;
    let TestOrder::Plan(plan) = receiver.receive()? else {
        return Err(EngineError::Protocol { peer, what: "its first message is not a plan" });
    };
    receiver.set_timeout(Some(STEP_LIMIT))?;
    let limits = &limits.within(rate.as_deref(), &plan);
    let reserved = reserve(&plan, limits, &streams).and_then(|memory| {
        let rate = reserve_rate(rate.as_ref(), &plan);
        rate.map(|rate| (memory, rate)).map_err(|reason| (RefusalKind::Limit, reason))
    });
    let (memory, _rate) = match reserved {
        Ok(reserved) => reserved,
        Err((kind, reason)) => {
            sender.send(&TestEvent::Refused { kind, reason: reason.clone() })?;
            return Err(EngineError::Refused { peer, kind, reason });
        }
    };
    let prepared = Places::of(&plan, false).and_then(|places| {
        connect::check(&plan, false)?;
        Ok(places)
    });
    let places = match prepared {
        Ok(places) => places,
        Err(error) => return fail(&sender, error),
    };
    sender.send(&TestEvent::Accepted)?;
    let connections = match plan.opener {
        Opener::Client => connect::accept(&streams, &plan, false, memory.socket_bytes, STEP_LIMIT),
        Opener::Server => {
            let TestOrder::Listening { port } = receiver.receive()? else {
                return Err(EngineError::Protocol { peer, what: "it did not send its port" });
            };
            let dialer = dialer(&peer, port, &streams)?;
            connect::open(&dialer, &plan, false, memory.socket_bytes)
        }
    };
    let Connections { parts, probe, answers } = match connections {
        Ok(connections) => connections,
        Err(error) => return fail(&sender, error),
    };
    sender.send(&TestEvent::Ready)?;
    thread::scope(|scope| {
        // The client sends requests before the test begins.
        if let Some(probe) = &probe {
            scope.spawn(move || latency::echo(probe));
        }
        let read_bytes = memory.read_bytes;
        let bounds = Bounds { read_bytes, ..Bounds::new(&plan, limits) };
        let task = Task { plan: &plan, places: &places, bounds, record: &record };
        let reported = record.time(|| run(sender, receiver, parts, answers, task));
        if let Some(probe) = &probe {
            let _ = probe.shutdown(Shutdown::Both);
        }
        reported
    })
}

/// An accepted test and the record of its work.
#[derive(Clone, Copy)]
struct Task<'a> {
    plan: &'a TestPlan,
    places: &'a Places,
    bounds: Bounds<'a>,
    record: &'a WorkRecord,
}

fn note(record: &WorkRecord, result: &SideResult) {
    let moved: u64 = result.streams.iter().map(|stream| stream.total_bytes.get()).sum();
    record.note(|work| {
        work.bytes = Bytes::new(work.bytes.get().saturating_add(moved));
        if work.cut.is_none() {
            work.cut.clone_from(&result.cut);
        }
    });
}

/// Reports to the client the reason why the test cannot begin.
fn fail(sender: &ControlSender, error: EngineError) -> Result<()> {
    sender.send(&TestEvent::Failed { reason: error.to_string() })?;
    Err(error)
}

/// Returns the dialer of the client's data port. It connects only to the address of the control
/// channel.
fn dialer(peer: &str, port: u16, streams: &DataAcceptor) -> Result<DataDialer> {
    let mut address: SocketAddr =
        peer.parse().map_err(|_| EngineError::Address(peer.to_owned()))?;
    address.set_port(port);
    if let SocketAddr::V6(v6) = address
        && let Some(v4) = v6.ip().to_ipv4_mapped()
    {
        address = (v4, port).into();
    }
    Ok(DataDialer::to_be_proved(address, streams.secret().clone()))
}

/// Runs the server's end from the client's start to its last message.
fn run(
    sender: ControlSender,
    mut receiver: ControlReceiver,
    parts: Vec<(Part, Vec<Carrier>)>,
    answers: Option<FlowAnswers>,
    task: Task<'_>,
) -> Result<()> {
    let Task { plan, places, bounds, record } = task;
    let peer = sender.peer().to_owned();
    let TestOrder::Start = receiver.receive()? else {
        return Err(EngineError::Protocol { peer, what: "it did not start the test" });
    };
    drop(answers);
    let (stop, abort) = (AtomicBool::new(false), AtomicBool::new(false));
    // The client may be silent until the test is over.
    receiver.set_timeout(Some(bounds.time + STEP_LIMIT))?;
    let closer = receiver.closer();
    let (finished, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (stop, abort, sender) = (&stop, &abort, &sender);
        scope.spawn(move || {
            obey(&mut receiver, stop, abort);
            drop(finished);
        });
        let signals = Signals { stop, abort };
        let half = move |(part, carriers)| {
            let ending = Ending::HalfClose;
            let context = Context { plan, places, bounds, signals, ending, blocks: None };
            let result = end::run(part, carriers, context, |sample| {
                // A client that does not read would block this thread at every sample.
                if sender.send(&TestEvent::Sample(sample)).is_err() {
                    abort.store(true, Ordering::Release);
                }
            });
            note(record, &result);
            if result.cut.is_some() {
                // If one direction breaks, the other ends, too: a test of one direction would be a
                // different test.
                abort.store(true, Ordering::Release);
            }
            sender.send(&TestEvent::Done(result))
        };
        let halves: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || half(part))).collect();
        let reported: Vec<_> = halves.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let reported = reported
            .into_iter()
            .try_for_each(|reported| reported.unwrap_or(Err(EngineError::Interrupted)));
        if reported.is_ok() {
            let _ = wait.recv_timeout(STEP_LIMIT);
        }
        closer();
        reported
    })
}

/// Reserves the memory and the descriptors of a test, or returns the refusal.
fn reserve(
    plan: &TestPlan,
    limits: &TestLimits,
    streams: &DataAcceptor,
) -> std::result::Result<Memory, (RefusalKind, String)> {
    if let Some(refused) = refusal(plan, limits) {
        return Err(refused);
    }
    let limit = |reason| (RefusalKind::Limit, reason);
    let memory = Memory::take(plan, limits.pool.as_ref()).map_err(limit)?;
    let announced = streams.announce(connect::announced(plan));
    announced.map_err(|shortage| limit(shortage.to_string()))?;
    Ok(memory)
}

/// Returns the reason why `plan` is refused.
fn refusal(plan: &TestPlan, limits: &TestLimits) -> Option<(RefusalKind, String)> {
    if let Err(error) = plan.validate() {
        return Some((RefusalKind::Invalid, error.to_string()));
    }
    limits.refusal(plan).map(|reason| (RefusalKind::Limit, reason))
}

/// Executes the client's orders until it has finished or left.
fn obey(receiver: &mut ControlReceiver, stop: &AtomicBool, abort: &AtomicBool) {
    loop {
        match receiver.receive() {
            Ok(TestOrder::Stop) => stop.store(true, Ordering::Release),
            Ok(TestOrder::Finished) => return,
            Ok(TestOrder::Plan(_) | TestOrder::Listening { .. } | TestOrder::Start) | Err(_) => {
                abort.store(true, Ordering::Release);
                return;
            }
        }
    }
}
