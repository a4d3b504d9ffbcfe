//! The state of all connections of a copy together.

use std::time::Duration;

use longhaul_sys::tcp::TcpInfo;

/// The segments of the initial congestion window of Linux (RFC 6928).
const INITIAL_WINDOW: u64 = 10;

/// The state of all connections at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionsSample {
    /// The time since the start of the copy.
    pub(super) at: Duration,
    /// The bytes that the receiver has, of all connections.
    pub(super) delivered: u64,
    /// The bytes of all connections that were lost.
    pub(super) lost: u64,
    /// The lowest smoothed RTT of the connections.
    pub(super) rtt: Duration,
    /// The lowest RTT of any connection since its start.
    pub(super) least_rtt: Duration,
    /// The bytes of the initial congestion windows of all connections.
    pub(super) initial_windows: u64,
}

impl ConnectionsSample {
    /// Returns the sums over all connections; `None` before the first round trip.
    pub(super) fn of(infos: &[TcpInfo], at: Duration) -> Option<Self> {
        let sum = |of: fn(&TcpInfo) -> u64| infos.iter().map(of).sum();
        Some(ConnectionsSample {
            at,
            delivered: sum(delivered),
            lost: sum(lost),
            rtt: infos.iter().map(|info| info.rtt).filter(|rtt| !rtt.is_zero()).min()?,
            least_rtt: infos.iter().filter_map(|info| info.min_rtt).min()?,
            initial_windows: sum(|info| INITIAL_WINDOW * u64::from(info.send_mss)),
        })
    }
}

/// Returns the bytes that the receiver has. Behind a lost segment only selective acknowledgements
/// report them.
fn delivered(info: &TcpInfo) -> u64 {
    info.acked_bytes + u64::from(info.sacked_segments) * u64::from(info.send_mss)
}

/// Returns the bytes that were lost. They count when the kernel marks them as lost, because their
/// retransmission may take many round trips, in which they would appear as new losses.
fn lost(info: &TcpInfo) -> u64 {
    info.retransmitted_bytes + u64::from(info.lost_segments_to_resend()) * u64::from(info.send_mss)
}

/// Returns the bytes per second delivered between two samples.
pub(super) fn rate(then: &ConnectionsSample, now: &ConnectionsSample) -> f64 {
    let seconds = now.at.saturating_sub(then.at).as_secs_f64();
    if seconds > 0.0 { now.delivered.saturating_sub(then.delivered) as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(
        acked: u64,
        sacked: u32,
        lost: u32,
        retransmitting: u32,
        retransmitted: u64,
    ) -> TcpInfo {
        TcpInfo {
            rtt: Duration::from_millis(90),
            min_rtt: Some(Duration::from_millis(90)),
            send_mss: 1000,
            acked_bytes: acked,
            sacked_segments: sacked,
            lost_segments: lost,
            retransmitting_segments: retransmitting,
            retransmitted_bytes: retransmitted,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_segment_is_lost_once_however_late_it_is_retransmitted() {
        let of = |info| ConnectionsSample::of(&[info], Duration::ZERO).unwrap();
        let marked = of(info(5000, 0, 20, 0, 3000));
        let half = of(info(5000, 0, 20, 10, 13_000));
        let repaired = of(info(25_000, 0, 0, 0, 23_000));
        assert_eq!([marked.lost, half.lost, repaired.lost], [23_000; 3]);
    }

    #[test]
    fn bytes_behind_a_lost_segment_are_delivered() {
        let infos = [info(5000, 7, 1, 0, 0), info(1000, 0, 0, 0, 0)];
        assert_eq!(ConnectionsSample::of(&infos, Duration::ZERO).unwrap().delivered, 13_000);
    }
}
