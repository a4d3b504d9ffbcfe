use serde::{Deserialize, Serialize};

use crate::result::{Asymmetry, AsymmetryVerdict};

/// What an end knows of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Clock {
    /// A program keeps it in step with the world's.
    pub synchronised: bool,
    /// How far it may be off at most, by that program's account.
    pub max_error_ms: f64,
}

/// What scheduling at both ends makes of the least of many delays on one clock.
const NOISE_MS: f64 = 0.1;

/// How much longer one direction takes than the other, by the least one-way delays in milliseconds
/// on the two ends' clocks, and whether these clocks allow to say so. `same` is that both ends run
/// on one clock.
///
/// With the far clock ahead by `d` the forward delay reads `d` too long and the other `d` too short,
/// so that the difference is off by `2 d`; `d` is at most both clocks' errors together.
pub fn asymmetry(
    forward_ms: f64,
    reverse_ms: f64,
    near: Clock,
    far: Clock,
    same: bool,
) -> Asymmetry {
    let difference_ms = forward_ms - reverse_ms;
    let uncertainty_ms = match same {
        true => Some(NOISE_MS),
        false if near.synchronised && far.synchronised => {
            Some(NOISE_MS + 2.0 * (near.max_error_ms.max(0.0) + far.max_error_ms.max(0.0)))
        }
        false => None,
    };
    let verdict = match uncertainty_ms {
        None => AsymmetryVerdict::ClocksUnknown,
        // A negative delay is no delay: a clock is worse than it says.
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
