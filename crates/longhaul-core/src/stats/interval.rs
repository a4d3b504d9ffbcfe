//! Confidence intervals of medians.

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
fn coverage(n: usize, k: usize) -> f64 {
    // The first k - 1 terms of the binomial distribution of n fair coins, computed with logarithms,
    // because 2^-n underflows beyond n = 1074.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for i in 0..k {
        below += term.exp();
        term += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    1.0 - 2.0 * below
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
