//! Waiting in a busy server's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::wire::Service;
use longhaul_engine::Result;
use longhaul_engine::session::{ConnectOptions, HostPort, Session, connect_early, connect_queued};

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
    connect_queued(target, service, options, |place| in_turn(target, place, stop))
}

/// Says the place in the queue, and whether to go on waiting.
fn in_turn(target: &HostPort, place: u32, stop: &AtomicBool) -> bool {
    eprintln!("longhaul: number {place} in the queue of {target}");
    !stop.load(Ordering::Acquire)
}
