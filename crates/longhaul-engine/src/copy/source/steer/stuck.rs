//! Finds connections that repair a few segments per round trip although many are lost, and lets them
//! repair in slow start.
//!
//! A receiver that runs out of memory drops segments that it has already acknowledged selectively.
//! Two congestion controls then repair slowly:
//!
//! - BBR: the kernel of the sender takes no rate samples until all losses are repaired
//!   (`is_sack_reneg` in `tcp_rate_gen`, net/ipv4/tcp_rate.c). Without samples BBR counts no round
//!   trips and never leaves packet conservation (`bbr_set_cwnd`, net/ipv4/tcp_bbr.c): each further
//!   loss shrinks its window, and nothing enlarges it. CUBIC replaces it until the losses are
//!   repaired.
//! - CUBIC, if several losses have lowered its slow-start threshold to a few segments. It then
//!   adds about one segment per round trip. Only the start of BBR raises the threshold again
//!   (`bbr_init`), so BBR replaces CUBIC for an instant.

use std::time::{Duration, Instant};

use longhaul_sys::tcp::TcpInfo;

use super::steered::SteeredStreams;

/// A repair is long if more lost segments than this number of congestion windows wait.
const LONG_REPAIR: u32 = 8;
/// The time after which a long repair is stuck, in round trips, and its minimum. After a timeout,
/// slow start reaches a window of 2^10 segments in 10 round trips.
const STUCK_TRIPS: u32 = 10;
const STUCK_FLOOR: Duration = Duration::from_millis(500);
/// The sentence of the report on the first stuck connection.
const NOTE: &str = "slow start on a connection that repairs its losses too slowly: the receiver \
                    may have no memory left for TCP (net.ipv4.tcp_mem)";

/// The repair of the losses of one connection.
#[derive(Debug, Default)]
struct Repair {
    /// The time from which on many segments have waited for their retransmission, or that of the
    /// last [`Change::Restart`].
    long_since: Option<Instant>,
    /// True if the losses have been repaired in slow start since a [`Change::Restart`].
    restarted: bool,
}

/// A change of the congestion control of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// Repairs in slow start from now on.
    Restart,
    /// Ends the repair.
    End,
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
                Some(Change::Restart) if steered.repair_in_slow_start(number) && !self.noted => {
                    self.noted = true;
                    steered.note(NOTE.to_owned());
                }
                Some(Change::End) => steered.end_repair(number),
                Some(Change::Restart) | None => {}
            }
        }
    }
}

impl Repair {
    /// Advances to the state `info` at `now`. Returns the change that it requires.
    fn next(&mut self, info: &TcpInfo, now: Instant) -> Option<Change> {
        if self.restarted && info.lost_segments == 0 {
            *self = Repair::default();
            return Some(Change::End);
        }
        let waiting = info.lost_segments_to_resend();
        if waiting <= LONG_REPAIR.saturating_mul(info.congestion_window_segments.max(1)) {
            self.long_since = None;
            return None;
        }
        let since = *self.long_since.get_or_insert(now);
        if now - since <= STUCK_FLOOR.max(info.rtt * STUCK_TRIPS) {
            return None;
        }
        *self = Repair { long_since: Some(now), restarted: true };
        Some(Change::Restart)
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
        assert_eq!(repair.next(&info(480, 4), at(901)), Some(Change::Restart));
        assert_eq!(repair.next(&info(2, 300), at(1500)), None);
        assert_eq!(repair.next(&info(0, 300), at(1600)), Some(Change::End));
        assert_eq!(repair.next(&info(0, 300), at(1700)), None);
    }

    #[test]
    fn a_repair_that_is_stuck_again_restarts_again() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut repair = Repair::default();
        let restarts: Vec<u64> = (0..4000)
            .filter(|ms| repair.next(&info(1400, 5), at(*ms)) == Some(Change::Restart))
            .collect();
        assert_eq!(restarts, [901, 1802, 2703, 3604]);
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
