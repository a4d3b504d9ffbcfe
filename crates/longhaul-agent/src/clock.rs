//! The hub's clock, as this host knows it.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The hub's clock. It follows the monotonic clock of this host between two answers of the hub, so
/// steps of this host's clock do not move windows.
#[derive(Debug)]
pub(crate) struct HubClock(Mutex<Reference>);

#[derive(Debug, Clone, Copy)]
struct Reference {
    at: Instant,
    hub_ms: i64,
}

impl HubClock {
    /// Returns a clock that starts with the time of this host.
    pub(crate) fn new() -> Self {
        HubClock(Mutex::new(Reference { at: Instant::now(), hub_ms: local_ms() }))
    }

    /// Returns the hub's time in ms since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        let reference = *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let elapsed = i64::try_from(reference.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        reference.hub_ms.saturating_add(elapsed)
    }

    /// Sets the clock by an answer with the time `hub_ms`, received now after at most `trip` on the
    /// way.
    pub(crate) fn set(&self, hub_ms: i64, trip: Duration) {
        let trip = i64::try_from(trip.as_millis()).unwrap_or(0);
        let reference = Reference { at: Instant::now(), hub_ms: hub_ms.saturating_add(trip / 2) };
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = reference;
    }
}

/// Returns this host's time in ms since 1970.
pub(crate) fn local_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}
