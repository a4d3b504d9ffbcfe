//! Small types of link plans: the side of a link, probabilities, and derived seeds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One end of an emulated link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The end at which `wan run` starts its main command.
    Near,
    /// The other end.
    Far,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Side; 2] = [Side::Near, Side::Far];

    /// Returns the host name of this end: `near` or `far`.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Near => "near",
            Side::Far => "far",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The probability of an event per segment: a number from 0 to 1.
///
/// In text `1e-4`, `0.0001` and `0.01%` are equal; documents contain the number.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(f64);

/// The reason why a number is not a probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", Probability::RANGE)]
pub struct NotAProbability;

impl Probability {
    /// The probability zero.
    pub const ZERO: Probability = Probability(0.0);
    /// The probability one.
    pub const ONE: Probability = Probability(1.0);
    /// The form of a valid text, for error messages.
    pub const RANGE: &str = "a probability is from 0 to 1, such as 1e-4 or 0.01%";

    /// Returns the number, from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns whether the probability is zero.
    pub fn is_zero(&self) -> bool {
        self.0 == 0.0
    }
}

impl TryFrom<f64> for Probability {
    type Error = NotAProbability;

    fn try_from(number: f64) -> Result<Self, NotAProbability> {
        // The range check rejects NaN. Adding 0 turns a negative zero into zero.
        if (0.0..=1.0).contains(&number) {
            Ok(Probability(number + 0.0))
        } else {
            Err(NotAProbability)
        }
    }
}

impl From<Probability> for f64 {
    fn from(probability: Probability) -> f64 {
        probability.0
    }
}

impl FromStr for Probability {
    type Err = NotAProbability;

    fn from_str(text: &str) -> Result<Self, NotAProbability> {
        let (number, scale) = match text.trim().strip_suffix('%') {
            Some(percent) => (percent, 100.0),
            None => (text, 1.0),
        };
        let number: f64 = number.trim().parse().map_err(|_| NotAProbability)?;
        Probability::try_from(number / scale)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0.0 && self.0 < 1e-3 { write!(f, "{:e}", self.0) } else { self.0.fmt(f) }
    }
}

/// Derives a seed from `root` and `identity`. Equal arguments give equal seeds; different arguments
/// give independent seeds.
///
/// An experiment passes its own seed as `root` and, for example, its name, the cell and the number
/// of the repeat as `identity`. The result is below 2^53, so that every JSON parser keeps it.
pub fn derive_seed(root: u64, identity: &[&str]) -> u64 {
    let mut bytes = Vec::new();
    for part in identity {
        // The length distinguishes ["a", "bc"] from ["ab", "c"].
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    twox_hash::XxHash3_64::oneshot_with_seed(root, &bytes) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_from_0_to_1_are_probabilities() {
        for (text, number) in [("1e-4", 1e-4), ("0.01%", 1e-4), ("0", 0.0), ("1", 1.0), ("-0", 0.0)]
        {
            assert_eq!(text.parse::<Probability>().unwrap().get(), number, "{text}");
        }
        for text in ["1.01", "-1e-9", "NaN", "inf", "", "101%", "one"] {
            assert!(text.parse::<Probability>().is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Probability>("0.5").unwrap(), Probability(0.5));
        assert!(serde_json::from_str::<Probability>("1.5").is_err());
        assert_eq!(Probability(1e-4).to_string(), "1e-4");
    }

    #[test]
    fn seeds_follow_the_identity() {
        let seed = derive_seed(7, &["sc10", "90ms", "1"]);
        assert_eq!(seed, derive_seed(7, &["sc10", "90ms", "1"]));
        assert!(seed < 1 << 53);
        for other in [["sc10", "90ms", "2"], ["sc1", "090ms", "1"], ["sc10", "90ms1", ""]] {
            assert_ne!(seed, derive_seed(7, &other));
        }
        assert_ne!(seed, derive_seed(8, &["sc10", "90ms", "1"]));
    }
}
