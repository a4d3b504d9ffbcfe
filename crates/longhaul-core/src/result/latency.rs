//! Latency of small requests.

use serde::{Deserialize, Serialize};

/// The round-trip times of small requests over a separate connection, before and during a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyResult {
    /// Before the first byte of the test.
    pub idle: Option<LatencyQuantiles>,
    /// During the test, including the omitted time.
    pub loaded: Option<LatencyQuantiles>,
}

/// The distribution of the round-trip times of answered requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyQuantiles {
    /// The number of answered requests.
    pub answered: u64,
    /// The lowest time in ms.
    pub min_ms: f64,
    /// The median in ms.
    pub p50_ms: f64,
    /// The 90th percentile in ms.
    pub p90_ms: f64,
    /// The 99th percentile in ms.
    pub p99_ms: f64,
    /// The highest time in ms.
    pub max_ms: f64,
}

impl LatencyQuantiles {
    /// Computes the quantiles of `times_ms`, in any order; `None` if it is empty.
    pub fn of(mut times_ms: Vec<f64>) -> Option<Self> {
        times_ms.sort_by(f64::total_cmp);
        let (first, last) = (*times_ms.first()?, *times_ms.last()?);
        // The smallest value that at least a share `part` of all values does not exceed.
        let quantile = |part: f64| {
            let rank = (part * times_ms.len() as f64).ceil() as usize;
            times_ms[rank.clamp(1, times_ms.len()) - 1]
        };
        Some(LatencyQuantiles {
            answered: times_ms.len() as u64,
            min_ms: first,
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            max_ms: last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let times = (1..=100).rev().map(f64::from).collect();
        let found = LatencyQuantiles::of(times).unwrap();
        let all = [found.min_ms, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms];
        assert_eq!(all, [1.0, 50.0, 90.0, 99.0, 100.0]);
        let one = LatencyQuantiles::of(vec![3.0]).unwrap();
        assert_eq!((one.answered, one.p50_ms, one.p99_ms), (1, 3.0, 3.0));
        assert_eq!(LatencyQuantiles::of(vec![]), None);
    }
}
