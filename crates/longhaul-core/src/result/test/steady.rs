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
//! counts all of them at once. The rate of a bin can therefore exceed the rate of the path. The
//! steady rate is the median of the [arrival rates](arrivals), which cannot. Its spread is that of
//! the bins, as quartiles.

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
/// The share of the median below which a bin belongs to an outage of the path, unless
/// [`DELAYED`] bytes follow.
const OUTAGE: f64 = 0.1;
/// The multiple of the median that shows that the bytes of an empty bin were only delayed.
const DELAYED: f64 = 1.25;

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
    /// The steady rate: the median rate of arrival after the ramp-up.
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
        let carried = without_outages(part);
        let arrival = median(&arrivals(&carried[caught_up(&carried)..]))?;
        Some(Steady {
            ramp_up_seconds: ramped as f64 * bin_seconds,
            throughput_bps: rate(arrival),
            lower_quartile_bps: rate(quantile(part, 0.25)?.min(arrival)),
            upper_quartile_bps: rate(quantile(part, 0.75)?.max(arrival)),
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

/// Returns the arrival rate at the receiver per bin: the slopes of the least concave curve above the
/// delivered bytes.
///
/// The bytes that arrived by any time are at least the bytes delivered by then, and they grow at
/// most at the rate of the path. If all bytes that had arrived at the beginning were delivered, no
/// prefix of `rates` has a mean above the rate of the path, and no slope exceeds the largest of
/// these means.
fn arrivals(rates: &[f64]) -> Vec<f64> {
    let mut pools = Vec::new();
    for rate in rates.iter().rev() {
        prepend(&mut pools, *rate);
    }
    let bins = pools.iter().rev();
    bins.flat_map(|pool| std::iter::repeat_n(pool.mean(), pool.bins)).collect()
}

/// Returns the index in the first half of `rates` where the delivery has most probably caught up:
/// where the largest mean of a prefix is least. If it has caught up anywhere in this half, no slope
/// of [`arrivals`] from there on exceeds the rate of the path.
fn caught_up(rates: &[f64]) -> usize {
    let mut pools = Vec::new();
    let mut least = (f64::INFINITY, 0);
    for (at, rate) in rates.iter().enumerate().rev() {
        prepend(&mut pools, *rate);
        let largest = pools.last().map_or(0.0, Pool::mean);
        if at <= rates.len() / 2 && largest <= least.0 {
            least = (largest, at);
        }
    }
    least.1
}

/// Adjacent bins whose bytes arrived at one rate.
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

/// Adds a bin before the others; the last pool is the earliest. A bin joins the pool after it if that
/// pool is faster, because then some of its bytes arrived in this bin.
fn prepend(pools: &mut Vec<Pool>, rate: f64) {
    let mut pool = Pool { sum: rate, bins: 1 };
    while let Some(after) = pools.pop_if(|after| after.mean() > pool.mean()) {
        pool = Pool { sum: pool.sum + after.sum, bins: pool.bins + after.bins };
    }
    pools.push(pool);
}

/// Returns the bins without those of outages: almost empty bins whose bytes do not follow in the
/// next two bins with data.
fn without_outages(rates: &[f64]) -> Vec<f64> {
    let usual = median(rates).unwrap_or_default();
    let is_empty = |rate: f64| rate < OUTAGE * usual;
    let is_outage = |at: usize| {
        let mut next = rates[at..].iter().filter(|rate| !is_empty(**rate)).take(2);
        is_empty(rates[at]) && next.all(|rate| *rate < DELAYED * usual)
    };
    rates.iter().enumerate().filter(|(at, _)| !is_outage(*at)).map(|(_, rate)| *rate).collect()
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

    /// Bytes delivered per period over a link that carries `carried` bytes per period, when the
    /// bytes behind a loss wait for `wait` periods: the streams lose in turn, every `every` periods.
    fn delivered(carried: u64, streams: u64, every: usize, wait: usize) -> Vec<u64> {
        let share = carried / streams;
        let (mut waiting, mut until) = (vec![0; streams as usize], vec![0; streams as usize]);
        let mut turn = 0;
        (0..200)
            .map(|period| {
                if period > 0 && period % every == 0 {
                    until[turn % streams as usize] = period + wait;
                    turn += 1;
                }
                let mut bytes = 0;
                for (waiting, until) in waiting.iter_mut().zip(&until) {
                    *waiting += share;
                    if period >= *until {
                        bytes += std::mem::take(waiting);
                    }
                }
                bytes
            })
            .collect()
    }

    #[test]
    fn a_steady_rate_never_exceeds_the_link() {
        let mut above = 0;
        for streams in [1, 2, 4, 8] {
            for every in 1..12 {
                for wait in 1..12 {
                    let bytes = delivered(8000, streams, every, wait);
                    // The share of bins above the link shows that the median of bins would be wrong.
                    let rates: Vec<f64> = bytes.iter().map(|bytes| *bytes as f64).collect();
                    above += usize::from(median(&rates).unwrap() > 8000.0);
                    for skipped in 0..wait {
                        let late = curve(bytes[skipped..].iter().copied());
                        if let Some(steady) = Steady::find(&late, 0.0, 0.0) {
                            let rate = steady.throughput_bps.bps();
                            assert!(rate <= 8000 * 8 * 20, "{streams} {every} {wait} {steady:?}");
                        }
                    }
                }
            }
        }
        assert!(above > 20, "only {above} of the cases have a median above the link");
    }

    #[test]
    fn delayed_bytes_belong_to_the_time_of_their_arrival() {
        // A hole of three bins, and its bytes over the next ten.
        let catch_up = [0, 0, 0].into_iter().chain([1300; 10]);
        let bytes = [1000; 4].into_iter().chain(catch_up.cycle().take(13 * 6));
        let steady = Steady::find(&curve(bytes), 0.0, 0.0).unwrap();
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_000));
        assert!(steady.upper_quartile_bps >= steady.throughput_bps);
    }

    #[test]
    fn an_outage_does_not_count() {
        let mut bytes = vec![1000; 100];
        bytes[20..50].fill(0);
        let steady = Steady::find(&curve(bytes), 0.0, 0.0).unwrap();
        assert_eq!(steady.throughput_bps, Rate::from_bps(160_000));
    }

    #[test]
    fn a_growing_or_short_test_has_no_steady_part() {
        assert_eq!(Steady::find(&curve((0..60).map(|i| i * 100)), 0.0, 0.0), None);
        assert_eq!(Steady::find(&curve([1000; 7]), 0.0, 0.0), None);
        // Bins are as long as a round trip: two seconds have too few bins of 400 ms.
        assert_eq!(Steady::find(&curve([1000; 40]), 0.4, 0.0), None);
        assert_eq!(Steady::find(&curve([0; 40]), 0.0, 0.0).unwrap().throughput_bps.bps(), 0);
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
