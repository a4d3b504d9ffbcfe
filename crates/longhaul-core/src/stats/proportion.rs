//! Confidence intervals of probabilities.

use super::special::incomplete_beta;

/// Returns the Clopper-Pearson interval (1934) of a probability after `hits` in `trials`: whatever
/// the true probability, the interval contains it with at least this `confidence`.
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

/// Returns the value at which the distribution function reaches `p`, by bisection: the function is
/// monotone, and this runs only a few times per measurement.
fn beta_quantile(a: f64, b: f64, p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if incomplete_beta(a, b, middle) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
