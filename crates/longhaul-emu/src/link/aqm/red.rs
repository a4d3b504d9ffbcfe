//! RED (Floyd and Jacobson, "Random early detection gateways for congestion avoidance", 1993): drops
//! or marks arriving segments with a probability that follows the mean length of the queue.

use longhaul_core::plan::link::{Probability, QueueLimit};

use super::{Arriving, Management};

/// The weight of a new length in the mean (`w_q` in section 11 of the paper).
const WEIGHT: f64 = 0.002;

/// The state of RED. Lengths are bytes, or nanoseconds of queueing delay.
#[derive(Debug, Clone)]
pub(in super::super) struct Red {
    in_time: bool,
    min: f64,
    max: f64,
    probability: f64,
    mean: f64,
    /// The number of segments since the last drop while the mean was between both thresholds.
    since_drop: f64,
}

impl Red {
    pub(super) fn new(min: QueueLimit, max: QueueLimit, probability: Probability) -> Self {
        let length = |limit| match limit {
            QueueLimit::Bytes(bytes) => bytes.get() as f64,
            QueueLimit::Time(time) => time.as_nanos() as f64,
            QueueLimit::Segments(count) => f64::from(count),
        };
        Red {
            in_time: matches!(min, QueueLimit::Time(_)),
            min: length(min),
            max: length(max),
            probability: probability.get(),
            mean: 0.0,
            since_drop: -1.0,
        }
    }

    /// Decides on an arriving segment. Above the upper threshold ECN-capable segments are dropped
    /// too (RFC 3168, section 7).
    pub(super) fn decide(&mut self, segment: &Arriving) -> Management {
        self.update(segment);
        if self.mean < self.min {
            self.since_drop = -1.0;
            return Management::Pass;
        }
        if self.mean >= self.max {
            self.since_drop = 0.0;
            return Management::Drop;
        }
        self.since_drop += 1.0;
        let base = self.probability * (self.mean - self.min) / (self.max - self.min);
        // The distance between two drops is then uniform instead of geometric (section 7).
        let spread = 1.0 - self.since_drop * base;
        if spread > 0.0 && segment.random() > base / spread {
            return Management::Pass;
        }
        self.since_drop = 0.0;
        if segment.ecn_capable { Management::Mark } else { Management::Drop }
    }

    /// Updates the mean length. It falls while the queue is empty, as if small packets had arrived
    /// (section 4).
    fn update(&mut self, segment: &Arriving) {
        let idle = segment.now.since(segment.free_at);
        if !idle.is_zero() {
            let packets = idle.as_secs_f64() / segment.packet_time.as_secs_f64().max(1e-9);
            self.mean *= (1.0 - WEIGHT).powf(packets);
        }
        let length = if self.in_time {
            segment.wait().as_nanos() as f64
        } else {
            segment.waiting_bytes as f64
        };
        self.mean += WEIGHT * (length - self.mean);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::units::Bytes;

    use super::super::super::LinkTime;
    use super::super::tests::arriving;
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn red(in_time: bool) -> Red {
        let limit = |ms: u64| {
            if in_time {
                QueueLimit::Time(MS(ms))
            } else {
                QueueLimit::Bytes(Bytes::new(ms * 1000))
            }
        };
        Red::new(limit(10), limit(30), Probability::try_from(0.1).unwrap())
    }

    /// Offers segments every ms that would wait for `wait` ms, until the mean is steady, and then
    /// 20,000 more. Returns the numbers of those that were stopped.
    fn stopped(red: &mut Red, wait: u64, ecn_capable: bool) -> Vec<u64> {
        let mut fate = |number: u64| {
            let now = LinkTime::default() + MS(number);
            red.decide(&Arriving { ecn_capable, ..arriving(now, MS(wait), number) })
        };
        (0..10_000).for_each(|number| {
            fate(number);
        });
        let wanted = if ecn_capable { Management::Mark } else { Management::Drop };
        (10_000..30_000).filter(|number| fate(*number) == wanted).collect()
    }

    #[test]
    fn a_mean_between_the_thresholds_drops_its_share_at_even_distances() {
        for in_time in [true, false] {
            // Halfway, the base probability is 0.05, and distances are uniform from 1 to 20.
            let dropped = stopped(&mut red(in_time), 20, false);
            let distances: Vec<u64> = dropped.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(distances.iter().all(|distance| (1..=21).contains(distance)));
            let mean = distances.iter().sum::<u64>() as f64 / distances.len() as f64;
            // 1900 distances with a standard deviation of 5.8.
            assert!((mean - 10.5).abs() < 0.6, "{mean}");
        }
    }

    #[test]
    fn outside_of_the_thresholds_all_or_none_are_dropped() {
        assert_eq!(stopped(&mut red(true), 9, false), [0; 0]);
        assert_eq!(stopped(&mut red(true), 40, false).len(), 20_000);
        assert_eq!(stopped(&mut red(true), 40, true), [0; 0], "capable segments are dropped too");
        assert!(stopped(&mut red(true), 20, true).len() > 1000);
    }

    #[test]
    fn a_short_burst_passes_and_idle_time_lowers_the_mean() {
        let mut red = red(true);
        let at = |ms| LinkTime::default() + MS(ms);
        let burst = (0..50).all(|n| red.decide(&arriving(at(0), MS(60), n)) == Management::Pass);
        assert!(burst, "the mean is {}", red.mean);
        let before = red.mean;
        let idle = Arriving { free_at: at(100), ..arriving(at(1600), MS(0), 51) };
        red.decide(&idle);
        // 1000 packets of 1.5 ms: 0.998 to the power of 1000 is 0.135.
        assert!((red.mean / before - 0.135).abs() < 0.002, "{}", red.mean / before);
    }
}
