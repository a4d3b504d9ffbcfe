//! The consolidation of points into intervals with average, minimum and maximum.
//!
//! A bucket keeps the sum weighted by time, so that merging is exact in any order. An interval
//! without points has no bucket: a gap stays a gap.

use super::{Malformed, Point};

/// A metric of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Span {
    /// The measured time in ms.
    pub weight_ms: f64,
    /// The sum of the values times their weights.
    pub sum: f64,
    /// The lowest value.
    pub min: f64,
    /// The highest value.
    pub max: f64,
}

impl Span {
    /// Returns the average, or `None` if nothing was measured.
    pub fn average(&self) -> Option<f64> {
        (self.weight_ms > 0.0).then(|| self.sum / self.weight_ms)
    }

    fn add(&mut self, other: &Span) {
        if other.weight_ms <= 0.0 {
            return;
        }
        if self.weight_ms <= 0.0 {
            *self = *other;
            return;
        }
        self.weight_ms += other.weight_ms;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// The metrics of one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// The start of the interval in ms since 1970.
    pub start_ms: i64,
    /// The metrics, in the order of the kind's.
    pub spans: Vec<Span>,
}

impl Bucket {
    /// Returns the bucket of `step_ms` that a point begins in, with this point only.
    pub fn of(point: &Point, step_ms: i64) -> Self {
        #[allow(clippy::cast_precision_loss)]
        let weight_ms = (point.end_ms - point.start_ms) as f64;
        let span = |value: &Option<f64>| {
            value.filter(|value| value.is_finite()).map_or(Span::default(), |value| Span {
                weight_ms,
                sum: value * weight_ms,
                min: value,
                max: value,
            })
        };
        Bucket {
            start_ms: point.start_ms.div_euclid(step_ms) * step_ms,
            spans: point.values.iter().map(span).collect(),
        }
    }

    /// Adds the measurements of another bucket.
    pub fn add(&mut self, other: &Bucket) {
        self.spans.resize(self.spans.len().max(other.spans.len()), Span::default());
        for (span, other) in self.spans.iter_mut().zip(&other.spans) {
            span.add(other);
        }
    }
}

/// Merges buckets, in any order, into buckets of `step_ms` in the order of time.
pub fn merge(buckets: impl IntoIterator<Item = Bucket>, step_ms: i64) -> Vec<Bucket> {
    let mut merged = std::collections::BTreeMap::<i64, Bucket>::new();
    for mut bucket in buckets {
        bucket.start_ms = bucket.start_ms.div_euclid(step_ms) * step_ms;
        match merged.entry(bucket.start_ms) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(bucket);
            }
            std::collections::btree_map::Entry::Occupied(mut taken) => taken.get_mut().add(&bucket),
        }
    }
    merged.into_values().collect()
}

/// Returns the metrics of a bucket as bytes: four doubles each.
pub fn pack_bucket(bucket: &Bucket) -> Vec<u8> {
    let numbers = bucket.spans.iter().flat_map(|s| [s.weight_ms, s.sum, s.min, s.max]);
    numbers.flat_map(f64::to_le_bytes).collect()
}

/// Returns the bucket with metrics from bytes.
///
/// # Errors
/// The bytes are not whole metrics.
pub fn unpack_bucket(start_ms: i64, bytes: &[u8]) -> Result<Bucket, Malformed> {
    let (chunks, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(Malformed);
    }
    let spans = chunks.iter().map(|chunk| {
        let (numbers, _) = chunk.as_chunks::<8>();
        let at = |index: usize| f64::from_le_bytes(numbers[index]);
        Span { weight_ms: at(0), sum: at(1), min: at(2), max: at(3) }
    });
    Ok(Bucket { start_ms, spans: spans.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(start_ms: i64, value: Option<f64>) -> Point {
        Point { start_ms, end_ms: start_ms + 1000, values: vec![value] }
    }

    #[test]
    fn averages_are_weighted_and_extremes_survive() {
        let points = [(0, Some(1.0)), (1000, Some(9.0)), (2000, None), (300_000, Some(4.0))];
        let fine = merge(points.map(|(at, value)| Bucket::of(&point(at, value), 300_000)), 300_000);
        assert_eq!(fine.len(), 2);
        assert_eq!(fine[0].spans[0].average(), Some(5.0));
        assert_eq!((fine[0].spans[0].min, fine[0].spans[0].max), (1.0, 9.0));
        let coarse = merge(fine.clone(), 7_200_000);
        assert_eq!(coarse[0].spans[0].average(), Some(14.0 / 3.0));
        assert_eq!(coarse[0].spans[0].max, 9.0);
        for bucket in fine {
            assert_eq!(unpack_bucket(bucket.start_ms, &pack_bucket(&bucket)), Ok(bucket));
        }
        assert_eq!(unpack_bucket(0, &[0; 33]), Err(Malformed));
    }

    #[test]
    fn an_unmeasured_value_has_no_average() {
        let bucket = Bucket::of(&point(0, None), 1000);
        assert_eq!(bucket.spans[0].average(), None);
        assert_eq!(Bucket::of(&point(0, Some(f64::NAN)), 1000).spans[0].average(), None);
    }
}
