//! Cross traffic: random bursts of other packets that share the queue.

use longhaul_core::plan::link::CrossTraffic;

use super::LinkTime;
use super::random::Stream;

/// Bursts of other traffic, generated on demand up to a given time.
///
/// The gap before burst number n and its size depend only on n.
#[derive(Debug, Clone)]
pub(super) struct Cross {
    gaps: Stream,
    bursts: Stream,
    /// The mean time between the starts of bursts, in nanoseconds.
    mean_gap: f64,
    /// The probability that a packet is the last of its burst.
    end: f64,
    burst: u64,
    /// The time of the next burst, in nanoseconds.
    next: f64,
}

impl Cross {
    /// Creates the traffic of `plan` in packets of `packet_bytes`, as the rate counts them, from
    /// `now` on.
    pub(super) fn new(
        plan: &CrossTraffic,
        packet_bytes: u32,
        gaps: Stream,
        bursts: Stream,
        now: LinkTime,
    ) -> Self {
        let packet = f64::from(packet_bytes);
        let mean_packets =
            plan.burst_bytes.map_or(1.0, |burst| (burst.get() as f64 / packet).max(1.0));
        let mean_gap = mean_packets * packet * 8e9 / plan.rate_bps.bps() as f64;
        let mut cross =
            Cross { gaps, bursts, mean_gap, end: 1.0 / mean_packets, burst: 0, next: 0.0 };
        cross.next = now.as_nanos() as f64 + cross.gap();
        cross
    }

    /// Continues the burst numbers of `before`, which had another plan.
    pub(super) fn continue_from(&mut self, before: &Cross) {
        self.burst = before.burst;
        self.next = self.next - self.gaps.exponential(0) * self.mean_gap + self.gap();
    }

    /// Returns the next burst until `now`: its time, its number of packets and its number.
    pub(super) fn next_until(&mut self, now: LinkTime) -> Option<(LinkTime, u64, u64)> {
        if self.next > now.as_nanos() as f64 {
            return None;
        }
        let (at, burst) = (LinkTime::from_nanos(self.next as u64), self.burst);
        self.burst += 1;
        self.next += self.gap();
        Some((at, 1 + self.bursts.failures(burst, self.end), burst))
    }

    /// Skips the bursts before `time`. Poisson traffic is memoryless, so this does not change the
    /// statistics of later bursts.
    pub(super) fn skip_to(&mut self, time: LinkTime) {
        let time = time.as_nanos() as f64;
        if self.next < time {
            self.burst += 1;
            self.next = time + self.gap();
        }
    }

    fn gap(&self) -> f64 {
        self.gaps.exponential(self.burst) * self.mean_gap
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::Side;
    use longhaul_core::units::{Bytes, Rate};

    use super::super::random::Purpose;
    use super::*;

    fn cross(burst: Option<u64>) -> Cross {
        let plan = CrossTraffic {
            rate_bps: Rate::from_bps(100_000_000),
            burst_bytes: burst.map(Bytes::new),
        };
        let stream = |purpose| Stream::new(3, Side::Near, purpose);
        Cross::new(
            &plan,
            1500,
            stream(Purpose::CrossGap),
            stream(Purpose::CrossBurst),
            LinkTime::default(),
        )
    }

    /// Returns the bursts of ten seconds: their bytes, and the number of packets of each.
    fn ten_seconds(mut cross: Cross) -> (f64, Vec<u64>) {
        let end = LinkTime::default() + Duration::from_secs(10);
        let bursts: Vec<u64> =
            std::iter::from_fn(|| cross.next_until(end)).map(|(_, packets, _)| packets).collect();
        (bursts.iter().sum::<u64>() as f64 * 1500.0, bursts)
    }

    #[test]
    fn the_mean_rate_and_the_mean_burst_are_those_of_the_plan() {
        // 83,333 packets give a standard error of 0.35 %.
        let (bytes, bursts) = ten_seconds(cross(None));
        assert!((bytes / 125e6 - 1.0).abs() < 0.01, "{bytes}");
        assert!(bursts.iter().all(|packets| *packets == 1));
        // 2083 bursts of 40 packets with geometric length give 3 %.
        let (bytes, bursts) = ten_seconds(cross(Some(60_000)));
        assert!((bytes / 125e6 - 1.0).abs() < 0.09, "{bytes}");
        let mean = bursts.iter().sum::<u64>() as f64 / bursts.len() as f64;
        assert!((mean / 40.0 - 1.0).abs() < 0.07, "{mean}");
    }

    #[test]
    fn a_long_gap_is_skipped_and_the_rest_goes_on() {
        let mut cross = cross(None);
        let later = LinkTime::default() + Duration::from_secs(1_000_000);
        cross.skip_to(later);
        assert_eq!(cross.next_until(later), None);
        assert!(cross.next_until(later + Duration::from_secs(1)).is_some());
    }
}
