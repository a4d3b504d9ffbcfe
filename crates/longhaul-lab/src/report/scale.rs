//! Axes: from values to places, and where the ticks are.

/// A scale from zero, in equal steps.
pub(super) struct Linear {
    to: f64,
    length: f64,
}

/// A scale in which equal factors are equal distances.
pub(super) struct Log {
    from: f64,
    to: f64,
    length: f64,
}

impl Linear {
    /// Zero to `to` on `length` units.
    pub(super) fn new(to: f64, length: f64) -> Self {
        Linear { to: if to > 0.0 { to } else { 1.0 }, length }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        value / self.to * self.length
    }
}

impl Log {
    /// A scale on `length` units that holds all `values` (positive) between marks of the series
    /// 1, 2, 5.
    pub(super) fn around(values: &[f64], length: f64) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let (least, greatest) = if least.is_finite() { (least, greatest) } else { (1.0, 10.0) };
        let from = marks().take_while(|&mark| mark <= least).last().unwrap_or(least);
        let to = marks().find(|&mark| mark >= greatest).unwrap_or(greatest);
        let to = if to > from { to } else { from * 2.0 };
        Log { from, to, length }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        (value / self.from).ln() / (self.to / self.from).ln() * self.length
    }

    /// The marks of the series 1, 2, 5 on the scale.
    pub(super) fn ticks(&self) -> Vec<f64> {
        marks().filter(|mark| (self.from..=self.to).contains(mark)).collect()
    }
}

/// 1, 2, 5, 10, ... from one bit in a second to far beyond any link.
fn marks() -> impl Iterator<Item = f64> {
    (0..16).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
}

/// Moves `places` apart until neighbours are at least `gap` from each other, and none is outside
/// of 0 to `length`; their order stays.
pub(super) fn spread(places: &[f64], gap: f64, length: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
    let mut moved = places.to_vec();
    for pair in 1..order.len() {
        let floor = moved[order[pair - 1]] + gap;
        moved[order[pair]] = moved[order[pair]].max(floor);
    }
    let mut ceiling = length;
    for &index in order.iter().rev() {
        moved[index] = moved[index].min(ceiling);
        ceiling = moved[index] - gap;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_scale_has_round_ends() {
        let scale = Log::around(&[0.57e9, 24e9], 100.0);
        assert_eq!(scale.ticks(), [5e8, 1e9, 2e9, 5e9, 1e10, 2e10, 5e10]);
        assert_eq!((scale.place(5e8), scale.place(5e10)), (0.0, 100.0));
        assert!((scale.place(5e9) - 50.0).abs() < 1e-9);
        assert!(Log::around(&[1e9], 100.0).place(1e9).is_finite());
        assert!(Log::around(&[], 100.0).ticks().len() > 1);
    }

    #[test]
    fn labels_move_apart_and_stay_inside() {
        assert_eq!(spread(&[10.0, 50.0], 16.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[10.0, 12.0], 16.0, 100.0), [10.0, 26.0]);
        assert_eq!(spread(&[99.0, 98.0], 16.0, 100.0), [100.0, 84.0]);
    }
}
