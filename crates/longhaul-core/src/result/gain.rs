//! The sample size and the uncertainty of the gain without a limit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::median_interval;

/// The ratio of the rates of two limits, computed within each round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GainRounds {
    /// The number of rounds that measured both rates, 1 or more.
    pub rounds: u32,
    /// The lowest ratio of a round.
    pub least: f64,
    /// The highest ratio of a round.
    pub most: f64,
    /// The 95 % confidence interval of the median ratio; `None` for fewer than six rounds.
    pub interval: Option<(f64, f64)>,
}

impl GainRounds {
    /// Summarizes the ratios of the rounds; `None` for no rounds.
    pub(crate) fn of(ratios: &[f64]) -> Option<Self> {
        Some(GainRounds {
            rounds: u32::try_from(ratios.len()).ok()?,
            least: ratios.iter().copied().reduce(f64::min)?,
            most: ratios.iter().copied().reduce(f64::max)?,
            interval: median_interval(ratios, 0.95),
        })
    }
}

impl fmt::Display for GainRounds {
    /// Writes the sample size, and the interval or the range of the rounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GainRounds { rounds, least, most, interval } = self;
        match (rounds, interval) {
            (_, Some((low, high))) => {
                write!(f, "95 % interval {low:.1} to {high:.1}, {rounds} rounds")
            }
            (1, None) => f.write_str("one round, no interval"),
            (_, None) => {
                write!(f, "{least:.1} to {most:.1} in {rounds} rounds, too few for a 95 % interval")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_states_its_rounds_and_an_interval_from_six_rounds_on() {
        let words = |ratios: &[f64]| GainRounds::of(ratios).map(|rounds| rounds.to_string());
        assert_eq!(words(&[]), None);
        assert_eq!(words(&[1.5]).unwrap(), "one round, no interval");
        assert_eq!(
            words(&[2.2, 1.5]).unwrap(),
            "1.5 to 2.2 in 2 rounds, too few for a 95 % interval"
        );
        // The sign test needs six values for 95 %: the interval is then their whole range.
        let six = [1.3, 1.2, 1.1, 1.6, 1.5, 1.4];
        assert_eq!(GainRounds::of(&six[..5]).unwrap().interval, None);
        assert_eq!(words(&six).unwrap(), "95 % interval 1.1 to 1.6, 6 rounds");
    }
}
