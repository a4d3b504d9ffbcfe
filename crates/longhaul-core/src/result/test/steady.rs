//! Separates ramp-up from the steady part of a test, from the receiver's bytes over time.
//!
//! The curve is divided into bins of a round-trip time, at least 50 ms: TCP sends in rounds, and a
//! shorter bin would show its bursts. The first reference rate is the median of the second half of
//! the test. The ramp-up ends with the first of two consecutive bins that reach 90 % of it. The end of
//! the ramp-up is then determined once more with the median from there on. A test has no steady part
//! if its ramp-up takes half of it, or if the rate still rises by a quarter from the first to the last
//! quarter of the rest.
//!
//! The receiver delivers bytes in order: a lost segment delays the bytes behind it, and a later bin
//! counts all of them at once. The rates of many bins can therefore exceed the rate of the path. The
//! steady rate is the median of the bins, but at most a [rate that the path carries](carried). Its
//! spread is that of the bins, as quartiles.

use serde::{Deserialize, Serialize};

use crate::stats::percent;
use crate::stats::{median, quantile};
use crate::units::Rate;

/// The share of the steady rate at which the ramp-up ends.
const RAMPED: f64 = 0.9;
/// The shortest bin in seconds: several times the delay that the scheduler of a busy host may
/// cause.
const LEAST_BIN_SECONDS: f64 = 0.05;
/// The minimum number of bins for quartiles.
const LEAST_BINS: usize = 8;
/// The relative increase over the steady part above which a rate is not steady. CUBIC's saw-tooth,
/// which falls to 0.7 of its height (RFC 9438), changes the medians of quarters by less.
const RISING: f64 = 1.25;
/// Bytes over time at one end, from its first byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The seconds that each element of [`bytes`](Self::bytes) covers.
    pub period_seconds: f64,
    /// The bytes per period, in order; an incomplete last period is omitted.
    pub bytes: Vec<u64>,
}

/// The part of a test after its ramp-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Seconds from the first byte until the goodput first stays at 90 % of the steady rate.
    pub ramp_up_seconds: f64,
    /// The steady rate: the median goodput after the ramp-up, at most the rate that the path carries.
    pub throughput_bps: Rate,
    /// The lower quartile of the goodput per round trip.
    pub lower_quartile_bps: Rate,
    /// The upper quartile of the goodput per round trip.
    pub upper_quartile_bps: Rate,
}

impl Steady {
    /// Returns the interquartile range in percent of the steady rate.
    pub fn spread_percent(&self) -> f64 {
        let width = self.upper_quartile_bps.bps().saturating_sub(self.lower_quartile_bps.bps());
        percent(width as f64, self.throughput_bps.bps() as f64)
    }

    /// Returns the steady part of `curve` for a test over a path of `rtt_seconds`, whose first
    /// `omit_seconds` are omitted; `None` if it has no steady part.
    pub fn find(curve: &Curve, rtt_seconds: f64, omit_seconds: f64) -> Option<Self> {
        let (rates, bin_seconds) = bins(curve, rtt_seconds.max(LEAST_BIN_SECONDS))?;
        let omitted = (omit_seconds / bin_seconds).ceil() as usize;
        let mut steady = median(&rates[rates.len() / 2..])?;
        let mut ramped = 0;
        for _ in 0..2 {
            let up = |pair: &[f64]| pair.iter().all(|rate| *rate >= RAMPED * steady);
            ramped = rates.windows(2).position(up)?;
            steady = median(rates.get(ramped.max(omitted)..)?)?;
        }
        let part = rates.get(ramped.max(omitted)..)?;
        if ramped > rates.len() / 2 || part.len() < LEAST_BINS / 2 || rises(part) {
            return None;
        }
        let rate = |value: f64| Rate::from_bps(value as u64);
        let steady = steady.min(carried(part));
        // Most bins are empty: the receiver had nothing to deliver, or waited for a retransmission.
        if steady < 1.0 {
            return None;
        }
        Some(Steady {
            ramp_up_seconds: ramped as f64 * bin_seconds,
            throughput_bps: rate(steady),
            lower_quartile_bps: rate(quantile(part, 0.25)?.min(steady)),
            upper_quartile_bps: rate(quantile(part, 0.75)?.max(steady)),
        })
    }
}

/// Returns the goodput in bit/s per bin of at least `bin_seconds`, and the bin length in seconds.
fn bins(curve: &Curve, bin_seconds: f64) -> Option<(Vec<f64>, f64)> {
    // The values come from a peer, so they are checked.
    let period = Some(curve.period_seconds).filter(|p| p.is_finite() && *p > 0.0)?;
    let width = (bin_seconds / period).ceil().max(1.0) as usize;
    let bin_seconds = period * width as f64;
    let rate =
        |chunk: &[u64]| chunk.iter().map(|bytes| *bytes as f64).sum::<f64>() * 8.0 / bin_seconds;
    let rates: Vec<f64> = curve.bytes.chunks_exact(width).map(rate).collect();
    (rates.len() >= LEAST_BINS).then_some((rates, bin_seconds))
}

/// Returns an upper bound of the steady rate. Per bin of the first quarter, the function takes the
/// largest mean from this bin up to any later bin; the bound is the least of these.
///
/// The bytes that have arrived by any time are at least the bytes delivered by then. At a bin where
/// the delivery has caught up both are equal, so no mean from there on exceeds the rate of the path.
/// The result does not exceed it if the delivery has caught up anywhere in the first quarter.
fn carried(rates: &[f64]) -> f64 {
    let last = (rates.len() / 4).max(2).min(rates.len() / 2);
    let mut pools: Vec<Pool> = Vec::new();
    let mut least = f64::INFINITY;
    // From the last bin on, the latest pool begins at the bin `at` and has the largest mean.
    for (at, rate) in rates.iter().enumerate().rev() {
        let mut pool = Pool { sum: *rate, bins: 1 };
        while let Some(after) = pools.pop_if(|after| after.mean() > pool.mean()) {
            pool = Pool { sum: pool.sum + after.sum, bins: pool.bins + after.bins };
        }
        pools.push(pool);
        if at <= last {
            least = least.min(pool.mean());
        }
    }
    least
}

/// Adjacent bins: a segment of the least concave curve above the delivered bytes (pool of adjacent
/// violators).
#[derive(Debug, Clone, Copy)]
struct Pool {
    sum: f64,
    bins: usize,
}

impl Pool {
    fn mean(&self) -> f64 {
        self.sum / self.bins as f64
    }
}

fn rises(rates: &[f64]) -> bool {
    let quarter = (rates.len() / 4).max(1);
    let (first, last) = (median(&rates[..quarter]), median(&rates[rates.len() - quarter..]));
    matches!((first, last), (Some(first), Some(last)) if last > RISING * first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(bytes: impl IntoIterator<Item = u64>) -> Curve {
        Curve { period_seconds: 0.05, bytes: bytes.into_iter().collect() }
    }

    #[test]
    fn the_ramp_up_is_separated_from_the_steady_part() {
        // Doubling for ten bins, then 1000 bytes per 50 ms with a little noise.
        let ramp = (0..10).map(|i| 1u64 << i);
        let flat = (0..50).map(|i| 1000 + i % 5);
        let steady = Steady::find(&curve(ramp.chain(flat)), 0.01, 0.0).unwrap();
        assert!((steady.ramp_up_seconds - 0.5).abs() < 1e-9, "{steady:?}");
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_320));
        assert!(steady.lower_quartile_bps < steady.upper_quartile_bps);
        assert!(steady.spread_percent() < 0.5);
    }

    #[test]
    fn a_dip_and_a_burst_do_not_move_the_steady_rate() {
        let mut bytes = vec![1000; 60];
        bytes[30] = 0;
        bytes[0] = 9000;
        let steady = Steady::find(&curve(bytes), 0.0, 0.0).unwrap();
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_000));
        assert_eq!(steady.ramp_up_seconds, 0.0);
        assert_eq!(steady.spread_percent(), 0.0);
    }

    /// Bytes delivered per period over a link that carries 8000 bytes per period, by a receiver that
    /// reads at most `most`: every `every` periods, the bytes of the next of `streams` streams begin to
    /// wait for `wait` periods.
    fn delivered(streams: usize, every: usize, wait: usize, most: u64) -> Vec<u64> {
        let (mut waiting, mut until) = (vec![0; streams], vec![0; streams]);
        let (mut turn, mut ready) = (0, 0);
        let mut period_bytes = |period: usize| {
            if period > 0 && period.is_multiple_of(every) {
                until[turn % streams] = period + wait;
                turn += 1;
            }
            for (waiting, until) in waiting.iter_mut().zip(&until) {
                *waiting += 8000 / streams as u64;
                if period >= *until {
                    ready += std::mem::take(waiting);
                }
            }
            let bytes = most.min(ready);
            ready -= bytes;
            bytes
        };
        (0..80).map(&mut period_bytes).collect()
    }

    #[test]
    fn a_steady_rate_never_exceeds_the_link() {
        let (mut above, mut found) = (0, 0);
        let link = 8000 * 8 * 20;
        for (streams, every, wait) in [1, 2, 4, 8]
            .into_iter()
            .flat_map(|streams| (1..12).map(move |every| (streams, every)))
            .flat_map(|(streams, every)| (1..12).map(move |wait| (streams, every, wait)))
        {
            for most in [8200, 9000, u64::MAX] {
                let bytes = delivered(streams, every, wait, most);
                let rates: Vec<f64> = bytes.iter().map(|bytes| *bytes as f64).collect();
                above += usize::from(median(&rates).unwrap() > 8000.0);
                // The test also begins while bytes wait.
                for skipped in 0..wait {
                    let late = curve(bytes[skipped..].iter().copied());
                    let Some(steady) = Steady::find(&late, 0.0, 0.0) else { continue };
                    found += 1;
                    let rate = steady.throughput_bps.bps();
                    assert!(rate <= link, "{streams} {every} {wait} {most} {skipped} {steady:?}");
                }
            }
        }
        assert!(
            above > 100 && found > 1000,
            "{above} medians above the link, {found} steady rates"
        );
    }

    #[test]
    fn delayed_bytes_belong_to_the_time_of_their_arrival() {
        // A hole of three bins, and its bytes over the next ten.
        let catch_up = [0, 0, 0].into_iter().chain([1300; 10]);
        let bytes = [1000; 4].into_iter().chain(catch_up.cycle().take(13 * 6));
        let steady = Steady::find(&curve(bytes), 0.0, 0.0).unwrap();
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_000));
        assert!(steady.upper_quartile_bps > steady.throughput_bps);
    }

    #[test]
    fn an_outage_does_not_lower_the_rate() {
        let mut bytes = vec![1000; 100];
        bytes[30..60].fill(0);
        let steady = Steady::find(&curve(bytes), 0.0, 0.0).unwrap();
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_000));
    }

    #[test]
    fn a_growing_or_short_test_has_no_steady_part() {
        assert_eq!(Steady::find(&curve((0..60).map(|i| i * 100)), 0.0, 0.0), None);
        assert_eq!(Steady::find(&curve([1000; 7]), 0.0, 0.0), None);
        // Bins are as long as a round trip: two seconds have too few bins of 400 ms.
        assert_eq!(Steady::find(&curve([1000; 40]), 0.4, 0.0), None);
        // Without bytes there is no rate.
        assert_eq!(Steady::find(&curve([0; 40]), 0.0, 0.0), None);
    }

    #[test]
    fn the_omitted_time_does_not_count() {
        let bytes = [2000; 20].into_iter().chain([1000; 40]);
        let steady = Steady::find(&curve(bytes), 0.0, 1.0).unwrap();
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_000));
    }

    #[test]
    fn a_malformed_curve_is_ignored() {
        for period_seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            let curve = Curve { period_seconds, bytes: vec![u64::MAX; 100] };
            let _ = Steady::find(&curve, 1.0, 1e300);
        }
    }
}
