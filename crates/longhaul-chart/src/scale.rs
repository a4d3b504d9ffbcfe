//! Axes and scales.

/// A map from values to positions on an axis, as shares (0 to 1) of its length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Equal steps from zero.
    Linear {
        /// The value at the end.
        to: f64,
    },
    /// Equal factors at equal distances.
    Log {
        /// The value at the start.
        from: f64,
        /// The value at the end.
        to: f64,
    },
    /// Equal factors at equal distances, with a position for zero before them.
    ZeroLog {
        /// The smallest value above zero.
        from: f64,
        /// The value at the end.
        to: f64,
    },
}

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity of the axis, with its unit.
    pub label: String,
    /// The positions of values.
    pub scale: Scale,
    /// The values of the ticks and their texts.
    pub ticks: Vec<(f64, String)>,
}

/// The share of an axis between zero and the smallest other value.
const ZERO_GAP: f64 = 0.14;
/// The ratio of the largest to the smallest value above which a logarithmic scale is used, because
/// small values would be unreadable on a scale from zero.
const WIDE: f64 = 20.0;

impl Scale {
    /// Creates a scale from zero to a round value above all `values`.
    pub fn from_zero(values: &[f64]) -> Self {
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let greatest = if greatest > 0.0 { greatest } else { 1.0 };
        let step = step_for(greatest);
        Scale::Linear { to: (greatest / step - 1e-9).ceil() * step }
    }

    /// Creates a logarithmic scale for the `values` above zero, between marks of the series 1, 2,
    /// 5.
    pub fn log(values: &[f64]) -> Self {
        let above = || values.iter().copied().filter(|value| *value > 0.0);
        let least = above().fold(f64::INFINITY, f64::min);
        let greatest = above().fold(0.0, f64::max);
        let (least, greatest) = if least.is_finite() { (least, greatest) } else { (1.0, 10.0) };
        let from = marks().take_while(|&mark| mark <= least).last().unwrap_or(least);
        let to = marks().find(|&mark| mark >= greatest).unwrap_or(greatest);
        Scale::Log { from, to: if to > from { to } else { from * 2.0 } }
    }

    /// Creates a scale from zero, or a logarithmic one if the smallest value would be unreadable.
    pub fn for_values(values: &[f64]) -> Self {
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().filter(|value| *value > 0.0).fold(greatest, f64::min);
        if least > 0.0 && greatest / least > WIDE {
            Self::log(values)
        } else {
            Self::from_zero(values)
        }
    }

    /// Creates a logarithmic scale from the smallest to the largest of `values`, with a position
    /// for zero if `values` contain it.
    pub fn steps_between(values: &[f64]) -> Self {
        let above: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        let from = above.iter().copied().fold(f64::INFINITY, f64::min);
        let to = above.iter().copied().fold(0.0, f64::max);
        if !from.is_finite() {
            return Scale::Linear { to: 1.0 };
        }
        let to = if to > from { to } else { from * 2.0 };
        if above.len() < values.len() {
            Scale::ZeroLog { from, to }
        } else {
            Scale::Log { from, to }
        }
    }

    /// Returns the position of a value.
    pub fn place(&self, value: f64) -> f64 {
        match *self {
            Scale::Linear { to } => value / to,
            Scale::Log { from, to } => (value.max(from) / from).ln() / (to / from).ln(),
            Scale::ZeroLog { .. } if value <= 0.0 => 0.0,
            Scale::ZeroLog { from, to } => {
                ZERO_GAP + (1.0 - ZERO_GAP) * (value / from).ln() / (to / from).ln()
            }
        }
    }

    /// Returns whether the scale is logarithmic.
    pub fn is_log(&self) -> bool {
        !matches!(self, Scale::Linear { .. })
    }

    /// Returns round values on the scale with their texts.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = match *self {
            Scale::Linear { to } => {
                let step = step_for(to);
                (0..).map(|n| f64::from(n) * step).take_while(|v| *v <= to * 1.000_001).collect()
            }
            Scale::Log { from, to } | Scale::ZeroLog { from, to } => {
                let on = |mark: &f64| (from * 0.999_999..=to * 1.000_001).contains(mark);
                let all: Vec<f64> = marks().filter(on).collect();
                // Over many decades only the powers of ten get a tick.
                let decades = |mark: &f64| (mark.log10() - mark.log10().round()).abs() < 1e-6;
                if all.len() > 10 { all.into_iter().filter(decades).collect() } else { all }
            }
        };
        values.into_iter().map(|value| (value, plain(value))).collect()
    }
}

impl Axis {
    /// Creates an axis with round ticks. The label states if the axis is logarithmic.
    pub fn new(label: &str, scale: Scale) -> Self {
        let label =
            if scale.is_log() { format!("{label} (logarithmic)") } else { label.to_owned() };
        Axis { label, scale, ticks: scale.ticks() }
    }
}

/// Returns the marks 1, 2, 5, 10 ... times one millionth.
fn marks() -> impl Iterator<Item = f64> {
    (-6..13).flat_map(|power: i32| {
        // Powers of ten with a positive exponent are exact; their reciprocals are correctly
        // rounded.
        let decade = 10_f64.powi(power.abs());
        [1.0, 2.0, 5.0].map(|digit| if power < 0 { digit / decade } else { digit * decade })
    })
}

/// Returns the smallest step of 1, 2 or 5 times a power of ten of which at most six reach `to`.
fn step_for(to: f64) -> f64 {
    marks().find(|step| to / step <= 6.0 + 1e-9).unwrap_or(to)
}

/// Formats a number with as many digits as it needs, at most six.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Moves `places` apart until neighbors are at least `gap` from each other and all lie within 0 to
/// `length`. Their order does not change.
pub(crate) fn spread(places: &[f64], gap: f64, length: f64) -> Vec<f64> {
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
        let scale = Scale::log(&[0.57, 24.0]);
        let ticks: Vec<String> = scale.ticks().into_iter().map(|(_, text)| text).collect();
        assert_eq!(ticks, ["0.5", "1", "2", "5", "10", "20", "50"]);
        assert_eq!((scale.place(0.5), scale.place(50.0)), (0.0, 1.0));
        assert!((scale.place(5.0) - 0.5).abs() < 1e-9);
        assert!(Scale::log(&[1.0]).place(1.0).is_finite());
        assert!(Scale::log(&[]).ticks().len() > 1);
    }

    #[test]
    fn a_linear_scale_begins_at_zero_and_ends_round() {
        let scale = Scale::from_zero(&[7.3, 2.0]);
        assert_eq!(scale, Scale::Linear { to: 8.0 });
        assert_eq!(scale.ticks().len(), 5);
        assert_eq!(scale.place(4.0), 0.5);
        assert_eq!(Scale::from_zero(&[]), Scale::Linear { to: 1.0 });
        assert_eq!(Scale::from_zero(&[0.3]).ticks()[1].1, "0.05");
    }

    #[test]
    fn values_far_apart_are_logarithmic() {
        assert!(!Scale::for_values(&[1.0, 19.0]).is_log());
        assert!(Scale::for_values(&[0.1, 9.0]).is_log());
        assert!(!Scale::for_values(&[0.0, 9.0]).is_log());
    }

    #[test]
    fn zero_has_a_place_beside_a_log_scale() {
        let scale = Scale::steps_between(&[0.0, 1e-6, 1e-3]);
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(1e-6), ZERO_GAP);
        assert!((scale.place(1e-3) - 1.0).abs() < 1e-9);
        assert_eq!(Scale::steps_between(&[2.0, 8.0]).place(4.0), 0.5);
    }

    #[test]
    fn labels_move_apart_and_stay_inside() {
        assert_eq!(spread(&[10.0, 50.0], 16.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[10.0, 12.0], 16.0, 100.0), [10.0, 26.0]);
        assert_eq!(spread(&[99.0, 98.0], 16.0, 100.0), [100.0, 84.0]);
    }
}
