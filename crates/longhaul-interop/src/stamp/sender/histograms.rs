//! The distributions of delays in the records of a continuous measurement that runs until it is stopped.

use hdrhistogram::Histogram;
use longhaul_core::result::StampHistograms;

use super::period::Times;

/// The longest delay of a histogram in us; longer ones count as this.
const LONGEST_US: u64 = 60_000_000;
/// Two significant digits: intervals of about 1 %.
const DIGITS: u8 = 2;

/// Returns the distributions.
pub(super) fn histograms(times: &[Times]) -> StampHistograms {
    let above_least = |of: fn(&Times) -> i64| {
        let least = times.iter().map(of).min().unwrap_or(0);
        distribution(times.iter().map(|times| of(times).saturating_sub(least)))
    };
    StampHistograms {
        rtt: distribution(times.iter().map(|times| times.rtt)),
        forward_variation: above_least(|times| times.forward),
        reverse_variation: above_least(|times| times.reverse),
    }
}

/// Returns the upper ends of the intervals in ms with the number of delays, given in ns.
fn distribution(delays_ns: impl Iterator<Item = i64>) -> Vec<(f64, u64)> {
    let mut histogram =
        Histogram::<u32>::new_with_bounds(1, LONGEST_US, DIGITS).expect("the bounds are valid");
    for delay in delays_ns {
        histogram.saturating_record(delay.max(0) as u64 / 1000);
    }
    histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to() as f64 / 1e3, step.count_since_last_iteration()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delay_is_in_an_interval_of_one_percent() {
        let delays = [0, 1_500, 999_000, 90_000_000, 90_000_000, i64::MAX, -5];
        let found = distribution(delays.into_iter());
        assert_eq!(found.iter().map(|(_, count)| count).sum::<u64>(), 7);
        let (upper, count) = found[3];
        assert!(count == 2 && (90.0..90.9).contains(&upper), "{found:?}");
        assert_eq!(found[0], (0.0, 2));
        assert!(found[4].0 >= 60_000.0);
    }

    #[test]
    fn one_way_delays_are_above_the_lowest() {
        let times = |forward| Times { rtt: 1_000_000, forward, reverse: -7_000_000, reply: 0 };
        let found = histograms(&[times(-5_000_000), times(-3_000_000)]);
        assert_eq!(found.reverse_variation, [(0.0, 2)]);
        assert_eq!(found.forward_variation.len(), 2);
        assert!((found.forward_variation[1].0 - 2.0).abs() < 0.02);
        assert_eq!(histograms(&[]), StampHistograms::default());
    }
}
