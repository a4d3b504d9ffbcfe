//! Waiting in a busy server's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::session::{ConnectOptions, HostPort, Session, connect_early, connect_queued};
use longhaul_engine::{EngineError, Result};

use crate::output::say;

/// Opens a session for a copy, which asks before the server has welcomed it.
///
/// # Errors
/// As [`connect_early`].
pub(super) fn connect_to_copy(
    target: &HostPort,
    options: &ConnectOptions<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<Session> {
    let (name, stop) = (target.clone(), stop.clone());
    let queued = Box::new(move |place| in_turn(&name, place, &stop));
    connect_early(target, Service::Copy, options, queued)
}

/// Opens a session with the server at `target`, telling the user the place in its queue, if it
/// has one, until `stop` is set.
///
/// # Errors
/// As [`connect_queued`].
pub(super) fn connect_in_turn(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
    stop: &AtomicBool,
) -> Result<Session> {
    connect_within(target, service, options, stop, Duration::MAX)
}

/// As [`connect_in_turn`], waiting no longer than `patience`.
///
/// # Errors
/// As [`connect_queued`], and when the turn did not come.
pub(super) fn connect_within(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
    stop: &AtomicBool,
    patience: Duration,
) -> Result<Session> {
    let begun = Instant::now();
    let stopped = || stop.load(Ordering::Acquire);
    let session = connect_queued(target, service, options, |place| {
        in_turn(target, place, stop) && begun.elapsed() < patience
    });
    match session {
        Err(EngineError::Interrupted) if !stopped() => Err(EngineError::Refused {
            peer: target.to_string(),
            kind: RefusalKind::Limit,
            reason: "it serves no further client at present".to_owned(),
        }),
        session => session,
    }
}

/// Says the place in the queue, and whether to go on waiting.
fn in_turn(target: &HostPort, place: u32, stop: &AtomicBool) -> bool {
    say(format_args!("number {place} in the queue of {target}"));
    !stop.load(Ordering::Acquire)
}
