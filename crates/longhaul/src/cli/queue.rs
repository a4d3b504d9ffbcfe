//! Sessions with a busy server: the client waits in its queue and prints its position.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::session::{ConnectOptions, HostPort, Session, connect_early, connect_queued};
use longhaul_engine::{EngineError, Result};

use crate::output::print_message;

/// Opens a session for a copy. The client sends its request before the server's welcome arrives.
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

/// Opens a session with the server at `target` and prints the position in its queue, until `stop`
/// is set.
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

/// Opens a session as [`connect_in_turn`], within `limit`.
///
/// # Errors
/// As [`connect_queued`], and if the time ends in the queue.
pub(super) fn connect_within(
    target: &HostPort,
    service: Service,
    options: &ConnectOptions<'_>,
    stop: &AtomicBool,
    limit: Duration,
) -> Result<Session> {
    let begun = Instant::now();
    let stopped = || stop.load(Ordering::Acquire);
    let session = connect_queued(target, service, options, |place| {
        in_turn(target, place, stop) && begun.elapsed() < limit
    });
    match session {
        Err(EngineError::Interrupted) if !stopped() => Err(EngineError::Refused {
            peer: target.to_string(),
            kind: RefusalKind::Limit,
            reason: "the server has too many clients; try again later".to_owned(),
        }),
        session => session,
    }
}

/// Prints the position in the queue and returns whether to continue waiting.
fn in_turn(target: &HostPort, place: u32, stop: &AtomicBool) -> bool {
    print_message(format_args!("position {place} in the queue of {target}"));
    !stop.load(Ordering::Acquire)
}
