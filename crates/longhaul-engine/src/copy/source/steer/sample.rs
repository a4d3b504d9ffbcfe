//! The state of all connections of a copy together.

use std::time::Duration;

/// The state of all connections at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionsSample {
    /// The time since the start of the copy.
    pub(super) at: Duration,
    /// The acknowledged bytes of all connections.
    pub(super) acked: u64,
    /// The retransmitted bytes of all connections.
    pub(super) retransmitted: u64,
    /// The lowest smoothed RTT of the connections.
    pub(super) rtt: Duration,
    /// The lowest RTT of any connection since its start.
    pub(super) least_rtt: Duration,
    /// The bytes of the initial congestion windows of all connections.
    pub(super) initial_windows: u64,
}

/// Returns the bytes per second acknowledged between two samples.
pub(super) fn rate(then: &ConnectionsSample, now: &ConnectionsSample) -> f64 {
    let seconds = now.at.saturating_sub(then.at).as_secs_f64();
    if seconds > 0.0 { now.acked.saturating_sub(then.acked) as f64 / seconds } else { 0.0 }
}
