//! Waiting in a busy server's queue.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::wire::Service;
use longhaul_engine::Result;
use longhaul_engine::session::{ConnectOptions, HostPort, Session, connect_queued};

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
    connect_queued(target, service, options, |place| {
        eprintln!("longhaul: number {place} in the queue of {target}");
        !stop.load(Ordering::Acquire)
    })
}
