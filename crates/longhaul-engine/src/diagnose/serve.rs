//! The server of one end of a diagnosis.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_core::text::chain;
use longhaul_core::units::Bytes;
use longhaul_core::wire::{
    DIAGNOSE_LIMIT_SECONDS, DiagnoseEvent, DiagnoseOrder, FilePath, RefusalKind,
};

use super::local_end::{LocalEnd, OpenedLocalEnd, Role};
use super::write::Writing;
use crate::copy::tree::wire_path;
use crate::copy::{Tree, check_options as check};
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, KeyRate, Operation, Reserved, ServedSession, WorkRecord};

/// The time limit for the first order.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit between two orders: other steps may run at the other end meanwhile.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);
/// The number of waiting orders; a client sends the next one after the answer.
const ORDERS: usize = 1;

/// The interval at which the stop flag is checked.
const ORDER_CHECK: Duration = Duration::from_millis(100);

/// Serves the steps of one authorized client within `tree`. The temporary directory is removed when
/// the client leaves or `stop` is set.
///
/// # Errors
/// The client was refused, or its channel broke.
pub fn serve(session: ServedSession, tree: &Tree, stop: &AtomicBool) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, record, quota, rate, .. } = session;
    // This service needs no data connections.
    drop(streams);
    let peer = sender.peer().to_owned();
    receiver.set_timeout(Some(OPENING_TIMEOUT))?;
    let DiagnoseOrder::Open { sources, target, options } = receiver.receive()? else {
        let what = "its first message is not the description of this end";
        return Err(EngineError::Protocol { peer, what });
    };
    let paths: Vec<_> = target.iter().chain(&sources).map(path).collect();
    record.note_request(Operation::Diagnose, paths.iter().map(PathBuf::as_path));
    let role = role(target.as_ref(), &sources);
    let allowed = allowed(tree, &role, quota.is_some())
        .map_err(|reason| (RefusalKind::NotAuthorized, reason));
    if let Err((kind, reason)) = allowed.and_then(|()| check(&options)) {
        sender.send(&DiagnoseEvent::Refused { kind, reason: reason.clone() })?;
        return Err(EngineError::Refused { peer, kind, reason });
    }
    let OpenedLocalEnd { mut local_end, view, subset, failure } =
        LocalEnd::open(tree, &role, &options);
    let failure = failure.map(|error| chain(&error));
    sender.send(&DiagnoseEvent::Opened { view: Box::new(view), subset, failure })?;
    receiver.set_timeout(Some(SILENCE_LIMIT))?;
    let closer = receiver.closer();
    let gone = AtomicBool::new(false);
    let (orders, waiting) = mpsc::sync_channel(ORDERS);
    thread::scope(|scope| {
        let gone = &gone;
        scope.spawn(move || {
            queue_orders(&mut receiver, &orders);
            // A client that leaves ends its running order.
            gone.store(true, Ordering::Relaxed);
        });
        let mut execute = |order| {
            execute(&mut local_end, order, rate.as_ref(), gone)
                .unwrap_or_else(|error| DiagnoseEvent::Failed { reason: chain(&error) })
        };
        let done = loop {
            match waiting.recv_timeout(ORDER_CHECK) {
                Ok(order) => {
                    let event = execute(order);
                    note(&record, &event);
                    if let Err(error) = sender.send(&event) {
                        break Err(error);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    break Err(EngineError::Interrupted);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break Ok(()),
            }
        };
        drop(waiting);
        closer();
        done
    })
}

/// Queues the client's orders until it leaves or nothing takes them.
fn queue_orders(receiver: &mut ControlReceiver, orders: &mpsc::SyncSender<DiagnoseOrder>) {
    while let Ok(order) = receiver.receive::<DiagnoseOrder>() {
        if orders.send(order).is_err() {
            return;
        }
    }
}

/// Returns the role of this end: the sink if the client names a target.
fn role(target: Option<&FilePath>, sources: &[FilePath]) -> Role {
    match target {
        Some(target) => {
            Role::Sink(Some(path(target)).filter(|path| path != Path::new("/dev/null")))
        }
        None => Role::Source(sources.iter().map(path).collect()),
    }
}

/// Adds the bytes that were read or written to the record.
fn note(record: &WorkRecord, event: &DiagnoseEvent) {
    if let DiagnoseEvent::Done(report) = event {
        record.note(|work| {
            work.bytes = Bytes::new(work.bytes.get().saturating_add(report.bytes.get()));
            let time = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
            work.duration = Some(work.duration.unwrap_or_default().saturating_add(time));
        });
    }
}

/// Refuses a client that may not reach the files.
///
/// # Errors
/// The refusal, for the server's record, or the control channel broke.
pub fn refuse(session: ServedSession, kind: RefusalKind, reason: String) -> Result<()> {
    let ServedSession { sender, mut receiver, .. } = session;
    receiver.set_timeout(Some(OPENING_TIMEOUT))?;
    let _: DiagnoseOrder = receiver.receive()?;
    sender.send(&DiagnoseEvent::Refused { kind, reason: reason.clone() })?;
    Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason })
}

fn allowed(tree: &Tree, role: &Role, quota: bool) -> std::result::Result<(), String> {
    let rights = tree.rights();
    match role {
        Role::Source(_) if !rights.may_read() => Err("the server is write-only".to_owned()),
        // A diagnosis removes the files that it writes.
        Role::Sink(Some(_)) if !rights.may_replace() => {
            Err("this key may not remove what a diagnosis would write".to_owned())
        }
        Role::Sink(Some(_)) if quota => {
            Err("this key has a quota, which does not count the files of a diagnosis".to_owned())
        }
        _ => Ok(()),
    }
}

fn path(path: &FilePath) -> PathBuf {
    Path::new(OsStr::from_bytes(path.as_bytes())).to_owned()
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(DIAGNOSE_LIMIT_SECONDS)).unwrap_or_default()
}

/// Executes one order. Reading and writing reserve half of the key's `rate`.
fn execute(
    local_end: &mut LocalEnd,
    order: DiagnoseOrder,
    rate: Option<&Arc<KeyRate>>,
    gone: &AtomicBool,
) -> Result<DiagnoseEvent> {
    if let DiagnoseOrder::Read { options, .. } | DiagnoseOrder::Forget { options } = &order
        && let Err((_, reason)) = check(options)
    {
        return Ok(DiagnoseEvent::Failed { reason });
    }
    let moves = matches!(order, DiagnoseOrder::Read { .. } | DiagnoseOrder::Write { .. });
    let reserved = match rate.filter(|_| moves).map(KeyRate::reserve_half).transpose() {
        Ok(reserved) => reserved,
        Err(taken) => return Ok(DiagnoseEvent::Failed { reason: taken.to_string() }),
    };
    let rate = reserved.as_ref().map(Reserved::rate);
    Ok(match order {
        DiagnoseOrder::Open { .. } => {
            let what = "it described this end twice";
            return Err(EngineError::Protocol { peer: "the client".to_owned(), what });
        }
        DiagnoseOrder::Read { options, seconds: time } => {
            DiagnoseEvent::Done(Box::new(local_end.read(&options, seconds(time), rate, gone)?))
        }
        DiagnoseOrder::Write { bytes, files, durable, seconds: time } => {
            let time = seconds(time);
            let writing = Writing { bytes: bytes.get(), files, durable, time, rate };
            DiagnoseEvent::Done(Box::new(local_end.write(writing, gone)?))
        }
        DiagnoseOrder::Forget { options } => {
            local_end.forget(&options)?;
            DiagnoseEvent::Forgotten
        }
        DiagnoseOrder::Fresh => DiagnoseEvent::Fresh { path: wire_path(&local_end.fresh()?) },
        DiagnoseOrder::HostUse => DiagnoseEvent::HostUse(local_end.sample()),
        DiagnoseOrder::Examine { rate_bps, rtt_ms } => {
            DiagnoseEvent::Findings(local_end.examine(rate_bps, seconds(rtt_ms / 1e3)))
        }
    })
}
