//! Statistics: summaries of repeated measurements, confidence intervals, and goodness-of-fit tests.

use crate::units::{Bytes, Rate};

/// Returns the rate of `bytes` in `seconds`; 0 for zero time.
pub(crate) fn rate(bytes: Bytes, seconds: f64) -> Rate {
    Rate::from_bps(if seconds > 0.0 { (bytes.get() as f64 * 8.0 / seconds) as u64 } else { 0 })
}

/// Returns `part` in percent of `whole`; 0 for a whole of 0.
pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

/// Sums numbers from a peer, saturating at the largest value.
pub(crate) fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// Sums numbers that are all known.
pub(crate) fn sum_known(mut values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.try_fold(0, |sum: u64, value| Some(sum.saturating_add(value?)))
}

/// Returns the mean of `values`; `None` for no values.
pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

/// Returns the `q`-quantile (0 to 1) of `values`, by linear interpolation between order statistics
/// (type 7 of Hyndman and Fan, the default of R and NumPy); `None` for no values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    Some(sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64))
}

/// Returns the median of `values`; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the sample standard deviation of `values` (with Bessel's correction); `None` for fewer
/// than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1.0)).sqrt())
}

/// Returns the distribution-free confidence interval of the median of the population of `values`,
/// with a probability of at least `confidence` (0 to 1): an interval between two order statistics,
/// from the sign test (Hahn and Meeker, Statistical Intervals, section 5.3). Returns `None` if
/// there are too few values; 95 % needs six.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut =
        (1..=sorted.len() / 2).take_while(|k| coverage(sorted.len(), *k) >= confidence).last()?;
    Some((sorted[cut - 1], sorted[sorted.len() - cut]))
}

/// Returns the probability that the median lies between the `k`-th smallest and the `k`-th largest
/// of `n`.
pub(crate) fn coverage(n: usize, k: usize) -> f64 {
    // The first k - 1 terms of the binomial distribution with probability 1/2, computed with
    // logarithms, because 2^-n underflows for n > 1074.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for i in 0..k {
        below += term.exp();
        term += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    1.0 - 2.0 * below
}

/// Returns the Clopper-Pearson interval (1934) of a probability after `hits` in `trials`: it
/// contains the true probability with at least this `confidence`, for every true value.
///
/// Returns `(0, 1)` for no trials.
pub fn proportion_interval(hits: u64, trials: u64, confidence: f64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let tail = (1.0 - confidence) / 2.0;
    let (k, n) = (hits.min(trials) as f64, trials as f64);
    let low = if hits == 0 { 0.0 } else { beta_quantile(k, n - k + 1.0, tail) };
    let high = if hits >= trials { 1.0 } else { beta_quantile(k + 1.0, n - k, 1.0 - tail) };
    (low, high)
}

/// Returns the interval of [`proportion_interval`] for a sample whose effective size is a
/// fraction: `hits` in `trials`, 0 < `hits` < `trials`.
pub(crate) fn fraction_interval(hits: f64, trials: f64, confidence: f64) -> (f64, f64) {
    let tail = (1.0 - confidence) / 2.0;
    let low = beta_quantile(hits, trials - hits + 1.0, tail);
    (low, beta_quantile(hits + 1.0, trials - hits, 1.0 - tail))
}

/// Returns the value at which the distribution function reaches `p`, by bisection. Bisection
/// suffices, because the function is monotone and the program calls it only a few times per
/// measurement.
fn beta_quantile(a: f64, b: f64, p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if incomplete_beta(a, b, middle) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Returns the probability of a chi-square statistic of at least `statistic` with `freedom` degrees
/// of freedom, under the null hypothesis.
pub fn chi_square_p(statistic: f64, freedom: u32) -> f64 {
    if freedom == 0 { 1.0 } else { upper_gamma(f64::from(freedom) / 2.0, statistic / 2.0) }
}

/// Returns the probability that a normal variable with mean 0 and standard deviation 1 is at most
/// `x`.
pub fn normal_p(x: f64) -> f64 {
    let beyond = 0.5 * upper_gamma(0.5, x * x / 2.0);
    if x < 0.0 { beyond } else { 1.0 - beyond }
}

/// Returns the p-value of Pearson's chi-square test of the hypothesis that events fall into cell
/// `i` with probability `probabilities[i]`. Cells are merged from the end until each expects at
/// least 5 events, as the approximation requires.
///
/// Returns `None` if fewer than two cells remain.
pub fn pearson_p(counts: &[u64], probabilities: &[f64]) -> Option<f64> {
    const LEAST_EXPECTED: f64 = 5.0;
    let total = counts.iter().sum::<u64>() as f64;
    let mut cells: Vec<(f64, f64)> = Vec::new();
    let (mut seen, mut expected) = (0.0, 0.0);
    for (count, probability) in counts.iter().zip(probabilities).rev() {
        seen += *count as f64;
        expected += probability * total;
        if expected >= LEAST_EXPECTED {
            cells.push((seen, expected));
            (seen, expected) = (0.0, 0.0);
        }
    }
    if let Some(last) = cells.last_mut() {
        last.0 += seen;
        last.1 += expected;
    }
    let freedom = u32::try_from(cells.len()).ok()?.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let statistic = cells.iter().map(|(seen, expected)| (seen - expected).powi(2) / expected).sum();
    Some(chi_square_p(statistic, freedom))
}

/// Returns the Kolmogorov-Smirnov distance: the largest difference between the empirical
/// distribution of the `sorted` values and `distribution`, which returns the probability of a value
/// of at most x.
pub fn kolmogorov_distance(sorted: &[f64], distribution: impl Fn(f64) -> f64) -> f64 {
    let n = sorted.len() as f64;
    let differences = sorted.iter().enumerate().map(|(i, x)| {
        let p = distribution(*x);
        (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
    });
    differences.fold(0.0, f64::max)
}

/// Returns the distance that `n` values from the distribution exceed with probability `alpha` (the
/// bound of Dvoretzky, Kiefer and Wolfowitz with Massart's constant).
pub fn kolmogorov_bound(n: usize, alpha: f64) -> f64 {
    ((2.0 / alpha).ln() / (2.0 * n as f64)).sqrt()
}

const ITERATIONS: u32 = 10_000;
const EPSILON: f64 = 1e-14;
const TINY: f64 = 1e-300;

/// Returns the logarithm of the gamma function for `x > 0` (Lanczos, g = 7).
pub(super) fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let base = x + 7.5;
    let series: f64 = (1..9).map(|i| COEFFICIENTS[i] / (x + i as f64)).sum();
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * base.ln() - base
        + (COEFFICIENTS[0] + series).ln()
}

/// Returns the probability that a beta variable with parameters `a` and `b` is at most `x`.
pub(super) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on one side of the mean; symmetry gives the other side.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front =
        ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p() - a.ln();
    let mut fraction = Lentz::new(1.0, 1.0 - (a + b) * x / (a + 1.0));
    for m in 1..ITERATIONS {
        let m = f64::from(m);
        fraction.step(m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)), 1.0);
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        if fraction.step(odd, 1.0) {
            break;
        }
    }
    front.exp() * fraction.value
}

/// Returns the probability that a gamma variable of shape `a` exceeds `x`.
pub(super) fn upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..ITERATIONS {
            term *= x / (a + f64::from(n));
            sum += term;
            if term < sum * EPSILON {
                break;
            }
        }
        return 1.0 - front * sum;
    }
    let mut fraction = Lentz::new(1.0 / TINY, x + 1.0 - a);
    for n in 1..ITERATIONS {
        let n = f64::from(n);
        if fraction.step(-n * (n - a), x + 2.0 * n + 1.0 - a) {
            break;
        }
    }
    front * fraction.value
}

/// A continued fraction, evaluated by the modified Lentz method (Lentz 1976).
struct Lentz {
    value: f64,
    c: f64,
    d: f64,
}

impl Lentz {
    /// Starts with 1 / (`first` + ...), where `c` is the ratio of the numerators of the two
    /// previous levels.
    fn new(c: f64, first: f64) -> Self {
        let d = 1.0 / keep_away_from_zero(first);
        Lentz { value: d, c, d }
    }

    /// Adds a level. Returns whether the value has converged.
    fn step(&mut self, numerator: f64, denominator: f64) -> bool {
        self.d = 1.0 / keep_away_from_zero(denominator + numerator * self.d);
        self.c = keep_away_from_zero(denominator + numerator / self.c);
        self.value *= self.c * self.d;
        (self.c * self.d - 1.0).abs() < EPSILON
    }
}

fn keep_away_from_zero(x: f64) -> f64 {
    if x.abs() < TINY { TINY } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[0.0, 10.0], 0.25), Some(2.5));
        assert_eq!(quantile(&[5.0], 0.99), Some(5.0));
    }
    #[test]
    fn the_deviation_is_that_of_the_population() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!((deviation(&values).unwrap() - 2.138_089_935).abs() < 1e-9);
        assert_eq!(deviation(&[1.0]), None);
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        // Hahn and Meeker, table A.15: for 95 %, n = 6 gives 1 and 6, 10 gives 2 and 9, 20 gives 6
        // and 15, 100 gives 40 and 61.
        for (n, low, high) in [(6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61)] {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let expected = (f64::from(low), f64::from(high));
            assert_eq!(median_interval(&values, 0.95), Some(expected), "n = {n}");
        }
    }

    #[test]
    fn five_values_do_not_bound_a_median_with_95_percent() {
        assert_eq!(median_interval(&[1.0; 5], 0.95), None);
        assert_eq!(median_interval(&[], 0.95), None);
    }

    #[test]
    fn many_values_are_no_trouble() {
        let values = vec![1.0; 5000];
        assert_eq!(median_interval(&values, 0.95), Some((1.0, 1.0)));
    }

    #[track_caller]
    fn assert_interval(hits: u64, trials: u64, confidence: f64, low: f64, high: f64) {
        let (l, h) = proportion_interval(hits, trials, confidence);
        assert!((l - low).abs() < 1e-6 && (h - high).abs() < 1e-6, "{l} {h}");
    }

    /// Values from R's `binom.test`.
    #[test]
    fn agrees_with_published_values() {
        assert_interval(0, 10, 0.95, 0.0, 0.308_497_1);
        assert_interval(10, 10, 0.95, 0.691_502_9, 1.0);
        assert_interval(3, 20, 0.95, 0.032_070_9, 0.378_926_8);
        assert_interval(50, 100, 0.95, 0.398_321_1, 0.601_678_9);
        assert_eq!(proportion_interval(0, 0, 0.95), (0.0, 1.0));
    }

    #[test]
    fn narrows_with_trials_and_widens_with_confidence() {
        let (low, high) = proportion_interval(1000, 1_000_000, 0.95);
        assert!(low < 1e-3 && 1e-3 < high && high - low < 1.3e-4, "{low} {high}");
        let (wider_low, wider_high) = proportion_interval(1000, 1_000_000, 0.999_9);
        assert!(wider_low < low && high < wider_high);
    }

    /// Compares with the 5 % and 1 % points of common tables.
    #[test]
    fn chi_square_agrees_with_the_tables() {
        for (statistic, freedom, p) in
            [(3.841_459, 1, 0.05), (18.307_04, 10, 0.05), (23.209_25, 10, 0.01), (0.0, 3, 1.0)]
        {
            assert!((chi_square_p(statistic, freedom) - p).abs() < 1e-6, "{statistic}");
        }
    }

    #[test]
    fn the_normal_distribution_agrees_with_the_tables() {
        for (x, p) in [(0.0, 0.5), (1.959_964, 0.975), (-1.959_964, 0.025), (3.719_016, 0.999_9)] {
            assert!((normal_p(x) - p).abs() < 1e-7, "{x}: {}", normal_p(x));
        }
    }

    #[test]
    fn pearson_distinguishes_a_fair_die_from_a_loaded_one() {
        let die = [1.0 / 6.0; 6];
        assert!(pearson_p(&[101, 99, 103, 97, 100, 100], &die).unwrap() > 0.9);
        assert!(pearson_p(&[150, 90, 90, 90, 90, 90], &die).unwrap() < 1e-3);
        assert_eq!(pearson_p(&[1, 2], &[0.5, 0.5]), None, "too few to say");
    }

    #[test]
    fn kolmogorov_sees_a_shift() {
        let values: Vec<f64> = (0..1000).map(|i| (f64::from(i) + 0.5) / 1000.0).collect();
        let uniform = |x: f64| x.clamp(0.0, 1.0);
        assert!(kolmogorov_distance(&values, uniform) < 0.001);
        let shifted = kolmogorov_distance(&values, |x| uniform(x + 0.1));
        assert!((shifted - 0.1).abs() < 0.001, "{shifted}");
        let bound = kolmogorov_bound(1000, 0.05);
        assert!((bound - 0.042_95).abs() < 1e-4, "{bound}");
    }
}
