//! Finds connections that BBR holds at a few segments per round trip, and gives them CUBIC until their
//! losses are repaired.
//!
//! A receiver that runs out of memory drops segments that it has already acknowledged selectively.
//! The kernel of the sender then takes no rate samples until all losses are repaired
//! (`is_sack_reneg` in `tcp_rate_gen`, net/ipv4/tcp_rate.c). Without samples BBR counts no round
//! trips and never leaves packet conservation (`bbr_set_cwnd`, net/ipv4/tcp_bbr.c): each further
//! loss shrinks its window, and nothing enlarges it. CUBIC repairs the losses in slow start if the
//! slow-start threshold is high.

use std::time::{Duration, Instant};

use longhaul_sys::tcp::TcpInfo;

use super::steered::SteeredStreams;

/// A repair is long if more lost segments than this number of congestion windows wait.
const LONG_REPAIR: u32 = 8;
/// The time after which a long repair is stuck, in round trips, and its minimum. After a timeout,
/// slow start reaches a window of 2^10 segments in 10 round trips.
const STUCK_TRIPS: u32 = 10;
const STUCK_FLOOR: Duration = Duration::from_millis(500);
/// The default congestion control of Linux.
const REPAIRING: &str = "cubic";
/// The sentence of the report on the first stuck connection.
const NOTE: &str = "cubic instead of bbr on a connection that repairs its losses too slowly: the \
                    receiver may have no memory left for TCP (net.ipv4.tcp_mem)";

/// The state of the repair of one connection.
#[derive(Debug, Default)]
enum Repair {
    /// No losses, or few.
    #[default]
    Short,
    /// Many segments have waited for their retransmission since this time.
    Long(Instant),
    /// [`REPAIRING`] replaces BBR.
    Replaced,
}

/// A change of the congestion control of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Replace,
    Restore,
}

/// The repairs of all connections of a copy.
#[derive(Debug, Default)]
pub(super) struct StuckConnections {
    repairs: Vec<Repair>,
    /// True once the report names the cause.
    noted: bool,
}

impl StuckConnections {
    /// Changes the congestion control of the connections that are stuck, and of those that no longer
    /// are. `infos` is the state of all connections at `now`.
    pub(super) fn check(&mut self, steered: &SteeredStreams, infos: &[TcpInfo], now: Instant) {
        self.repairs.resize_with(infos.len(), Repair::default);
        for (number, (info, repair)) in infos.iter().zip(&mut self.repairs).enumerate() {
            match repair.next(info, now) {
                Some(Change::Replace) if steered.begin_repair(number, REPAIRING) => {
                    *repair = Repair::Replaced;
                    if !self.noted {
                        self.noted = true;
                        steered.note(NOTE.to_owned());
                    }
                }
                // Not BBR, or the kernel refused.
                Some(Change::Replace) => *repair = Repair::Long(now),
                Some(Change::Restore) => steered.end_repair(number),
                None => {}
            }
        }
    }
}

impl Repair {
    /// Advances to the state `info` at `now`. Returns the change that it requires.
    fn next(&mut self, info: &TcpInfo, now: Instant) -> Option<Change> {
        let waiting = info.lost_segments_to_resend();
        let is_long = waiting > LONG_REPAIR.saturating_mul(info.congestion_window_segments.max(1));
        match self {
            Repair::Replaced if info.lost_segments > 0 => None,
            Repair::Replaced => {
                *self = Repair::Short;
                Some(Change::Restore)
            }
            Repair::Long(since) if is_long => {
                let limit = STUCK_FLOOR.max(info.rtt * STUCK_TRIPS);
                (now - *since > limit).then_some(Change::Replace)
            }
            Repair::Short if is_long => {
                *self = Repair::Long(now);
                None
            }
            Repair::Long(_) | Repair::Short => {
                *self = Repair::Short;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lost: u32, window: u32) -> TcpInfo {
        TcpInfo {
            rtt: Duration::from_millis(90),
            lost_segments: lost,
            congestion_window_segments: window,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_repair_without_progress_is_stuck_until_nothing_is_lost() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut repair = Repair::default();
        assert_eq!(repair.next(&info(500, 4), at(0)), None);
        assert_eq!(repair.next(&info(490, 4), at(900)), None);
        assert_eq!(repair.next(&info(480, 4), at(901)), Some(Change::Replace));
        repair = Repair::Replaced;
        assert_eq!(repair.next(&info(2, 300), at(1500)), None);
        assert_eq!(repair.next(&info(0, 300), at(1600)), Some(Change::Restore));
        assert_eq!(repair.next(&info(0, 300), at(1700)), None);
    }

    #[test]
    fn slow_start_after_a_timeout_is_not_stuck() {
        let start = Instant::now();
        let mut repair = Repair::default();
        for trip in 0..12_u32 {
            let waiting = 2400_u32.saturating_sub(1 << trip);
            let now = start + Duration::from_millis(90) * trip;
            assert_eq!(repair.next(&info(waiting, 1 << trip), now), None, "{trip}");
        }
    }
}
