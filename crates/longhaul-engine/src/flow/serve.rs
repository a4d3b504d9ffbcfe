//! The service: takes one client's plan, runs the server's end, and tells the client what it
//! sees.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use longhaul_core::plan::FlowPlan;
use longhaul_core::wire::{FlowEvent, FlowOrder, RefusalKind};

use super::end::{self, Bounds, Signals, server_role};
use super::limits::{FlowLimits, PLAN_LIMIT, STEP_LIMIT};
use super::options::accepted_options;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ServedSession};

/// Serves one test under `limits`, on the calling thread. It returns in bounded time whatever
/// the client does.
///
/// # Errors
/// The client was refused (and told so), its data connections did not come, or the control
/// channel broke.
pub fn serve(session: ServedSession, limits: &FlowLimits) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, .. } = session;
    let peer = sender.peer().to_owned();
    receiver.set_timeout(Some(PLAN_LIMIT))?;
    let FlowOrder::Plan(plan) = receiver.receive()? else {
        return Err(EngineError::Protocol { peer, what: "it did not begin with a plan" });
    };
    receiver.set_timeout(Some(STEP_LIMIT))?;
    if let Some((kind, reason)) = refusal(&plan, limits) {
        sender.send(&FlowEvent::Refused { kind, reason: reason.clone() })?;
        return Err(EngineError::Refused { peer, kind, reason });
    }
    sender.send(&FlowEvent::Accepted)?;
    let connections = match streams.accept_all(plan.streams, STEP_LIMIT) {
        Ok(connections) => connections,
        Err(error) => {
            sender.send(&FlowEvent::Failed { reason: error.to_string() })?;
            return Err(error);
        }
    };
    if let Err(error) = set_up(&connections, &plan) {
        sender.send(&FlowEvent::Failed { reason: error.to_string() })?;
        return Err(error);
    }
    sender.send(&FlowEvent::Ready)?;
    let FlowOrder::Start = receiver.receive()? else {
        return Err(EngineError::Protocol { peer, what: "it did not start the test" });
    };

    let (stop, abort) = (AtomicBool::new(false), AtomicBool::new(false));
    let bounds = Bounds::new(&plan, limits);
    // From now on the client may be silent until the test is over.
    receiver.set_timeout(Some(bounds.time + STEP_LIMIT))?;
    let closer = receiver.closer();
    let (finished, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (stop, abort) = (&stop, &abort);
        scope.spawn(move || {
            obey(&mut receiver, stop, abort);
            drop(finished);
        });
        let signals = Signals { stop, abort };
        let role = server_role(plan.direction);
        let result = end::run(role, connections, &plan, bounds, signals, |sample| {
            // A client that is gone is noticed by the thread that listens to it.
            let _ = sender.send(&FlowEvent::Sample(sample));
        });
        let told = sender.send(&FlowEvent::Done(result));
        if told.is_ok() {
            let _ = wait.recv_timeout(STEP_LIMIT);
        }
        closer();
        told
    })
}

/// Why `plan` is not run here.
fn refusal(plan: &FlowPlan, limits: &FlowLimits) -> Option<(RefusalKind, String)> {
    if let Err(error) = plan.validate() {
        return Some((RefusalKind::Invalid, error.to_string()));
    }
    limits.refusal(plan).map(|reason| (RefusalKind::Limit, reason))
}

fn set_up(connections: &[TcpStream], plan: &FlowPlan) -> Result<()> {
    let options = accepted_options(plan, server_role(plan.direction));
    connections.iter().try_for_each(|connection| Ok(options.apply(connection)?))
}

/// Does what the client says until it has finished or is gone.
fn obey(receiver: &mut ControlReceiver, stop: &AtomicBool, abort: &AtomicBool) {
    loop {
        match receiver.receive() {
            Ok(FlowOrder::Stop) => stop.store(true, Ordering::Release),
            Ok(FlowOrder::Finished) => return,
            Ok(FlowOrder::Plan(_) | FlowOrder::Listening { .. } | FlowOrder::Start) | Err(_) => {
                abort.store(true, Ordering::Release);
                return;
            }
        }
    }
}
