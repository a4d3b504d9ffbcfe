//! Arithmetic that is also defined for zero time and zero amounts.

use crate::units::{Bytes, Rate};

pub(super) fn rate(bytes: Bytes, seconds: f64) -> Rate {
    Rate::from_bps(if seconds > 0.0 { (bytes.get() as f64 * 8.0 / seconds) as u64 } else { 0 })
}

pub(super) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

/// Sums numbers from a peer, saturating at the largest value.
pub(super) fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// Sums numbers that are all known.
pub(super) fn sum_known(mut values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.try_fold(0, |sum: u64, value| Some(sum.saturating_add(value?)))
}

pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}
