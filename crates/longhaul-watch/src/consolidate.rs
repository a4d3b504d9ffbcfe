//! Consolidation: bins of fixed length with average, minimum and maximum. Pure.
//!
//! An interval belongs to the bin that contains its middle, so a bin never shares an interval with
//! another one. Time without intervals is not covered: it is in no average, and a bin without intervals
//! does not exist.

use longhaul_chart::traffic::Bin;

use crate::series::{Quantity, TrafficInterval};

/// The bins of one length, and the time for which they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinLevel {
    /// The length of a bin in seconds.
    pub step_seconds: i64,
    /// The retention in seconds.
    pub keep_seconds: i64,
}

/// The retention of intervals of about a second: 48 hours.
pub const KEEP_INTERVALS_SECONDS: i64 = 48 * 3600;

/// The levels: 5 minutes for 50 days, 2 hours for 2 years, 1 day for 10 years.
pub const LEVELS: [BinLevel; 3] = [
    BinLevel { step_seconds: 300, keep_seconds: 50 * 86_400 },
    BinLevel { step_seconds: 7200, keep_seconds: 731 * 86_400 },
    BinLevel { step_seconds: 86_400, keep_seconds: 3653 * 86_400 },
];

/// The values of one channel in a bin, per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BinValues {
    /// The mean over the covered time.
    pub average: f64,
    /// The lowest rate of an interval.
    pub minimum: f64,
    /// The highest rate of an interval.
    pub maximum: f64,
}

/// The traffic of an interface in one bin.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesBin {
    /// The start in Unix seconds; a multiple of the step.
    pub start: i64,
    /// The sum of the lengths of the intervals in ms; above zero.
    pub covered_ms: u64,
    /// The number of intervals; above zero.
    pub intervals: u64,
    /// The values by the index of [`Quantity::ALL`].
    pub channels: [BinValues; Quantity::COUNT],
}

impl SeriesBin {
    /// Returns the start of the bin that contains the middle of `interval`.
    pub fn start_of(interval: &TrafficInterval, step_seconds: i64) -> i64 {
        let middle_ms = interval.end_ms.saturating_sub(i64::from(interval.span_ms) / 2);
        let step = step_seconds.max(1);
        middle_ms.div_euclid(1000).div_euclid(step).saturating_mul(step)
    }

    /// Creates the bin of `interval` with it as the only interval.
    pub fn of(interval: &TrafficInterval, step_seconds: i64) -> Self {
        let spread = |channel: Quantity| {
            let rate = interval.rate(channel);
            BinValues { average: rate, minimum: rate, maximum: rate }
        };
        SeriesBin {
            start: Self::start_of(interval, step_seconds),
            covered_ms: u64::from(interval.span_ms.max(1)),
            intervals: 1,
            channels: Quantity::ALL.map(spread),
        }
    }

    /// Adds the intervals of `other` to this bin.
    pub fn merge(&mut self, other: &SeriesBin) {
        let sum = self.covered_ms.saturating_add(other.covered_ms);
        let part = other.covered_ms as f64 / sum.max(1) as f64;
        for (one, two) in self.channels.iter_mut().zip(&other.channels) {
            one.average += (two.average - one.average) * part;
            one.minimum = one.minimum.min(two.minimum);
            one.maximum = one.maximum.max(two.maximum);
        }
        self.covered_ms = sum;
        self.intervals = self.intervals.saturating_add(other.intervals);
    }

    /// Returns the values of one channel for a graph.
    pub fn bin(&self, channel: Quantity) -> Bin {
        let spread = self.channels[channel as usize];
        Bin {
            start: self.start,
            covered_seconds: self.covered_ms as f64 / 1000.0,
            average: spread.average,
            minimum: spread.minimum,
            maximum: spread.maximum,
        }
    }
}

/// Collects the intervals of one series in bins of one length.
#[derive(Debug, Clone)]
pub struct Consolidator {
    step_seconds: i64,
    open: Option<SeriesBin>,
}

impl Consolidator {
    /// Creates a consolidator without data.
    pub fn new(step_seconds: i64) -> Self {
        Consolidator { step_seconds: step_seconds.max(1), open: None }
    }

    /// Returns the bin that the latest interval belongs to.
    pub fn open(&self) -> Option<&SeriesBin> {
        self.open.as_ref()
    }

    /// Returns the length of a bin in seconds.
    pub fn step_seconds(&self) -> i64 {
        self.step_seconds
    }

    /// Continues `bin`, which an earlier process began, or which the clock went back to.
    pub fn resume(&mut self, bin: SeriesBin) {
        self.open = Some(bin);
    }

    /// Returns the start of the bin of `interval` if that is not the open bin.
    pub fn opens(&self, interval: &TrafficInterval) -> Option<i64> {
        let start = SeriesBin::start_of(interval, self.step_seconds);
        self.open.as_ref().is_none_or(|open| open.start != start).then_some(start)
    }

    /// Adds an interval. Returns the previous bin if the interval opens another one.
    pub fn push(&mut self, interval: &TrafficInterval) -> Option<SeriesBin> {
        let bin = SeriesBin::of(interval, self.step_seconds);
        match &mut self.open {
            Some(open) if open.start == bin.start => {
                open.merge(&bin);
                None
            }
            open => open.replace(bin),
        }
    }
}

/// Merges `bins`, which are in order of time, to bins of `step_seconds`.
pub fn coarser(bins: &[SeriesBin], step_seconds: i64) -> Vec<SeriesBin> {
    let step = step_seconds.max(1);
    let mut found: Vec<SeriesBin> = Vec::new();
    for bin in bins {
        let start = bin.start.div_euclid(step).saturating_mul(step);
        match found.last_mut() {
            Some(last) if last.start == start => last.merge(bin),
            _ => found.push(SeriesBin { start, ..bin.clone() }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use longhaul_sys::traffic::LinkCounters;
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    /// An interval of a second that ends at `end` seconds.
    fn second(end: i64, in_bytes: u64) -> TrafficInterval {
        let counts = LinkCounters { in_bytes, ..LinkCounters::default() };
        TrafficInterval { end_ms: end * 1000, span_ms: 1000, counts }
    }

    /// Returns the bins of a sequence of intervals.
    fn bins(step: i64, intervals: &[TrafficInterval]) -> Vec<SeriesBin> {
        let mut consolidator = Consolidator::new(step);
        let mut found: Vec<SeriesBin> =
            intervals.iter().filter_map(|interval| consolidator.push(interval)).collect();
        found.extend(consolidator.open().cloned());
        found
    }

    #[test]
    fn a_bin_has_average_minimum_and_maximum() {
        let intervals: Vec<TrafficInterval> =
            (1..=600).map(|end| second(end, end as u64)).collect();
        let found = bins(300, &intervals);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].start, found[0].covered_ms, found[0].intervals), (0, 300_000, 300));
        let spread = found[0].channels[Quantity::InBits as usize];
        assert_eq!((spread.minimum, spread.maximum), (8.0, 2400.0));
        assert!((spread.average - 150.5 * 8.0).abs() < 1e-6, "{spread:?}");
        assert_eq!(found[0].channels[Quantity::OutBits as usize], BinValues::default());
    }

    #[test]
    fn a_gap_is_neither_zero_nor_a_spike() {
        let mut intervals: Vec<TrafficInterval> = (1..=100).map(|end| second(end, 1000)).collect();
        intervals.extend((1001..=1100).map(|end| second(end, 1000)));
        let found = bins(300, &intervals);
        let starts: Vec<i64> = found.iter().map(|bin| bin.start).collect();
        assert_eq!(starts, [0, 900], "bins without intervals do not exist");
        for bin in &found {
            let spread = bin.channels[Quantity::InBits as usize];
            assert_eq!((spread.minimum, spread.average, spread.maximum), (8e3, 8e3, 8e3));
        }
        assert_eq!(found[0].covered_ms, 100_000);
    }

    #[test]
    fn late_samples_stay_in_one_bin() {
        // The samples are 400 ms late, so every bin begins within an interval.
        let late = |end: i64| TrafficInterval { end_ms: end * 1000 + 400, ..second(0, 10) };
        let found = bins(10, &(1..=30).map(late).collect::<Vec<_>>());
        assert_eq!(found.iter().map(|bin| bin.intervals).collect::<Vec<_>>(), [10, 10, 10]);
    }

    #[test]
    fn a_bin_continues_after_a_restart() {
        let intervals: Vec<TrafficInterval> =
            (1..=200).map(|end| second(end, end as u64 * 7)).collect();
        let whole = bins(300, &intervals);
        let mut first = Consolidator::new(300);
        intervals[..120].iter().for_each(|interval| assert_eq!(first.push(interval), None));
        let mut second = Consolidator::new(300);
        assert_eq!(second.opens(&intervals[120]), Some(0));
        second.resume(first.open().unwrap().clone());
        assert_eq!(second.opens(&intervals[120]), None);
        intervals[120..].iter().for_each(|interval| assert_eq!(second.push(interval), None));
        let found = second.open().unwrap();
        let average = |bin: &SeriesBin| bin.channels[0].average;
        assert!((average(found) - average(&whole[0])).abs() < 1e-6);
        assert_eq!((found.covered_ms, found.intervals), (200_000, 200));
    }

    #[test]
    fn coarser_bins_keep_the_peaks() {
        let intervals: Vec<TrafficInterval> =
            (1..=3600).map(|end| second(end, if end == 1800 { 1_000_000 } else { 10 })).collect();
        let fine = bins(300, &intervals);
        let coarse = coarser(&fine, 1800);
        assert_eq!(coarse.len(), 2);
        assert_eq!(coarse[0].channels[0].maximum, 8e6);
        assert_eq!(coarse[1].channels[0].maximum, 80.0);
        assert!(
            (coarse[0].channels[0].average - bins(1800, &intervals)[0].channels[0].average).abs()
                < 1e-3
        );
    }

    proptest! {
        #[test]
        fn volume_is_conserved_and_averages_lie_between(
            counts in proptest::collection::vec((0u64..1_000_000_000, 0i64..20), 1..200),
        ) {
            let mut end = 1_000;
            let intervals: Vec<TrafficInterval> = counts.iter().map(|(count, gap)| {
                end += 1 + gap;
                second(end, *count)
            }).collect();
            let found = bins(60, &intervals);
            let sum: f64 = found
                .iter()
                .map(|bin| bin.channels[0].average * bin.covered_ms as f64 / 8000.0)
                .sum();
            let sent: u64 = counts.iter().map(|(count, _)| count).sum();
            prop_assert!((sum - sent as f64).abs() <= 1.0 + sent as f64 * 1e-9, "{sum} {sent}");
            for bin in &found {
                let BinValues { average, minimum, maximum } = bin.channels[0];
                prop_assert!(minimum <= average * (1.0 + 1e-9) && average <= maximum * (1.0 + 1e-9));
                prop_assert!(bin.covered_ms <= 61_000);
            }
        }
    }
}
