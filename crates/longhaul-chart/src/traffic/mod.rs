//! Traffic over time, as MRTG draws it: an area for incoming and a line for outgoing traffic, with
//! a table of maximum, average and current values. A time without data is a gap, never a zero.
//!
//! ```
//! use longhaul_chart::Width;
//! use longhaul_chart::traffic::{Bin, Period, TrafficGraph, TrafficUnit};
//!
//! let bin = |start| Bin { start, covered_seconds: 300.0, average: 4e9, minimum: 1e9, maximum: 9e9 };
//! let graph = TrafficGraph {
//!     title: "eth0".into(),
//!     inbound: vec![bin(0), bin(300), bin(900)],
//!     outbound: vec![],
//!     capacity: Some(10e9),
//!     sample_seconds: Some(1.0),
//!     ..TrafficGraph::new(Period::Day, 1200, TrafficUnit::Bits)
//! };
//! assert_eq!(graph.inbound_figures().average, Some(4e9));
//! assert!(graph.draw(Width::Page).document().starts_with("<svg"));
//! ```

mod graph;
mod period;
mod table;

pub use graph::TrafficGraph;
pub use period::{Period, TrafficUnit, span_words};
pub use table::{figures_table, section};

/// The values of a series in one interval. All values have the unit of the graph per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// The start in Unix seconds.
    pub start: i64,
    /// The part of the bin with data, in seconds.
    pub covered_seconds: f64,
    /// The mean over the part with data.
    pub average: f64,
    /// The lowest sample.
    pub minimum: f64,
    /// The highest sample.
    pub maximum: f64,
}

/// The figures of one direction over a window; `None` without data.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrafficFigures {
    /// The highest sample.
    pub peak: Option<f64>,
    /// The highest average of a bin.
    pub maximum: Option<f64>,
    /// The mean over the time with data. Zeros count, gaps do not.
    pub average: Option<f64>,
    /// The average of the newest bin; `None` if the newest data are older than two bins.
    pub current: Option<f64>,
    /// The 95th percentile of the averages of bins: the lowest average that at least 95 % of the bins do
    /// not exceed.
    pub percentile_95: Option<f64>,
}

impl TrafficFigures {
    /// Computes the figures of `bins`, each `step` seconds long, in a window that ends at `end`.
    pub(crate) fn of(bins: &[Bin], step: i64, end: i64) -> Self {
        let greatest = |value: fn(&Bin) -> f64| bins.iter().map(value).reduce(f64::max);
        let covered: f64 = bins.iter().map(|bin| bin.covered_seconds).sum();
        let total: f64 = bins.iter().map(|bin| bin.average * bin.covered_seconds).sum();
        let fresh = |bin: &&Bin| bin.start.saturating_add(step.saturating_mul(2)) >= end;
        TrafficFigures {
            peak: greatest(|bin| bin.maximum),
            maximum: greatest(|bin| bin.average),
            average: (covered > 0.0).then(|| total / covered),
            current: bins.last().filter(fresh).map(|bin| bin.average),
            percentile_95: percentile_95(bins),
        }
    }
}

fn percentile_95(bins: &[Bin]) -> Option<f64> {
    let mut averages: Vec<f64> = bins.iter().map(|bin| bin.average).collect();
    averages.sort_by(f64::total_cmp);
    let rank = (averages.len() * 95).div_ceil(100);
    averages.get(rank.checked_sub(1)?).copied()
}

/// Splits `bins` into runs without a gap.
pub(crate) fn runs(bins: &[Bin], step: i64) -> impl Iterator<Item = &[Bin]> {
    bins.chunk_by(move |one, next| next.start.checked_sub(one.start) == Some(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(start: i64, average: f64) -> Bin {
        Bin { start, covered_seconds: 10.0, average, minimum: 0.0, maximum: average * 2.0 }
    }

    #[test]
    fn gaps_are_in_no_figure_and_zeros_are() {
        let bins = [bin(0, 4.0), bin(10, 0.0), bin(50, 8.0)];
        let figures = TrafficFigures::of(&bins, 10, 60);
        assert_eq!(figures.average, Some(4.0));
        assert_eq!((figures.peak, figures.maximum), (Some(16.0), Some(8.0)));
        assert_eq!(figures.current, Some(8.0));
        assert_eq!(TrafficFigures::of(&bins, 10, 71).current, None, "the newest data are too old");
        assert_eq!(TrafficFigures::of(&[], 10, 60), TrafficFigures::default());
        let starts: Vec<usize> = runs(&bins, 10).map(<[Bin]>::len).collect();
        assert_eq!(starts, [2, 1]);
    }

    #[test]
    fn half_a_bin_counts_half() {
        let mut bins = [bin(0, 4.0), bin(10, 10.0)];
        bins[1].covered_seconds = 5.0;
        assert_eq!(TrafficFigures::of(&bins, 10, 20).average, Some(6.0));
    }

    #[test]
    fn the_percentile_is_a_value_of_a_bin() {
        let bins: Vec<Bin> = (1..=100).map(|n| bin(n * 10, n as f64)).collect();
        assert_eq!(percentile_95(&bins), Some(95.0));
        assert_eq!(percentile_95(&bins[..1]), Some(1.0));
        assert_eq!(percentile_95(&bins[..20]), Some(19.0));
        assert_eq!(percentile_95(&[]), None);
    }
}
