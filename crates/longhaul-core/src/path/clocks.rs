//! Judges the difference of one-way delays that two clocks measured.

use serde::{Deserialize, Serialize};

use crate::result::{Asymmetry, AsymmetryVerdict};

/// The state of an end's clock.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Clock {
    /// True if a program synchronises the clock.
    pub synchronised: bool,
    /// The largest error in ms, as that program states it.
    pub max_error_ms: f64,
}

/// The error in ms that scheduling adds to the least of many delays on one clock.
const NOISE_MS: f64 = 0.1;

/// Returns how much longer one direction takes than the other, from the least one-way delays in ms
/// on the clocks of the two ends, and whether these clocks are accurate enough. `same` means that
/// both ends use one clock.
///
/// If the far clock is ahead by `d`, the forward delay reads `d` too long and the reverse delay `d`
/// too short, so the difference is wrong by `2 d`. `d` is at most the sum of both clocks' errors.
pub fn asymmetry(
    forward_ms: f64,
    reverse_ms: f64,
    near: Clock,
    far: Clock,
    same: bool,
) -> Asymmetry {
    let difference_ms = forward_ms - reverse_ms;
    let uncertainty_ms = if same {
        Some(NOISE_MS)
    } else if near.synchronised && far.synchronised {
        Some(NOISE_MS + 2.0 * (near.max_error_ms.max(0.0) + far.max_error_ms.max(0.0)))
    } else {
        None
    };
    let verdict = match uncertainty_ms {
        None => AsymmetryVerdict::ClocksUnknown,
        // A delay cannot be negative, so a clock is worse than stated.
        _ if forward_ms < 0.0 || reverse_ms < 0.0 => AsymmetryVerdict::ClocksWrong,
        Some(uncertainty) if difference_ms.abs() > uncertainty => AsymmetryVerdict::Known,
        Some(_) => AsymmetryVerdict::Within,
    };
    Asymmetry { forward_ms, reverse_ms, difference_ms, uncertainty_ms, same_clock: same, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_when_it_is_beyond_what_the_clocks_may_be_off() {
        let good = Clock { synchronised: true, max_error_ms: 0.5 };
        let free = Clock { synchronised: false, max_error_ms: 0.5 };
        let verdict = |forward, reverse, near, far, same| {
            let found = asymmetry(forward, reverse, near, far, same);
            (found.verdict, found.uncertainty_ms)
        };
        use AsymmetryVerdict::{ClocksUnknown, ClocksWrong, Known, Within};
        assert_eq!(verdict(50.0, 40.0, good, good, false), (Known, Some(2.1)));
        assert_eq!(verdict(41.0, 40.0, good, good, false), (Within, Some(2.1)));
        assert_eq!(verdict(50.0, 40.0, good, free, false), (ClocksUnknown, None));
        assert_eq!(verdict(50.0, 40.0, free, free, true), (Known, Some(0.1)));
        assert_eq!(verdict(-5.0, 95.0, good, good, false), (ClocksWrong, Some(2.1)));
        assert!((asymmetry(50.0, 40.0, good, good, false).difference_ms - 10.0).abs() < 1e-9);
    }
}
