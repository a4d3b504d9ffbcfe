//! Goodness-of-fit tests: whether a sample comes from the expected distribution.

use super::special::upper_gamma;

/// Returns the probability of a chi-square statistic of at least `statistic` with `freedom` degrees
/// of freedom if the hypothesis holds.
pub fn chi_square_p(statistic: f64, freedom: u32) -> f64 {
    if freedom == 0 { 1.0 } else { upper_gamma(f64::from(freedom) / 2.0, statistic / 2.0) }
}

/// Returns the probability that a normal variable with mean 0 and standard deviation 1 is at most
/// `x`.
pub fn normal_p(x: f64) -> f64 {
    let beyond = 0.5 * upper_gamma(0.5, x * x / 2.0);
    if x < 0.0 { beyond } else { 1.0 - beyond }
}

/// Does Pearson's test of the hypothesis that events fall into cell `i` with probability
/// `probabilities[i]`. Cells are merged from the end until each expects at least 5 events, as the
/// approximation requires.
///
/// Returns the probability of a deviation at least as large; `None` if fewer than two cells remain.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The 5 % and 1 % points of common tables.
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
    fn pearson_tells_a_fair_die_from_a_loaded_one() {
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
