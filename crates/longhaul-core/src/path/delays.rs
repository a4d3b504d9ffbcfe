//! One-way delays: their variation, and the difference of the two directions as far as the clocks of
//! both ends are accurate.

use serde::{Deserialize, Serialize};

use crate::result::{Asymmetry, AsymmetryVerdict, DelayVariation};

/// The maximum number of samples of each kind that are kept. When more arrive, every second sample
/// is dropped, so that the rest covers the whole time.
const MOST_SAMPLES: usize = 1 << 15;

/// Collects one-way delays measured with two clocks. Their offset does not affect the variation.
#[derive(Debug, Clone)]
pub struct Delays {
    /// The receiving time minus the sending time of each packet in ns, on the two clocks.
    transits: Samples,
    /// The differences between packets with consecutive numbers.
    differences: Samples,
    last: Option<(u64, i64)>,
    least: i64,
}

impl Default for Delays {
    fn default() -> Self {
        let (transits, differences) = (Samples::default(), Samples::default());
        Delays { transits, differences, last: None, least: i64::MAX }
    }
}

impl Delays {
    /// Adds packet `number` with its times in ns.
    pub fn take(&mut self, number: u64, sent_ns: u64, received_ns: u64) {
        let transit = received_ns.wrapping_sub(sent_ns) as i64;
        self.least = self.least.min(transit);
        self.transits.push(transit);
        if let Some((before, then)) = self.last.replace((number, transit))
            && before.checked_add(1) == Some(number)
        {
            self.differences.push(transit.saturating_sub(then).saturating_abs());
        }
    }

    /// Returns the minimum delay on the two clocks; `None` before the first packet.
    pub fn least_ns(&self) -> Option<i64> {
        (!self.transits.kept.is_empty()).then_some(self.least)
    }

    /// Returns the variation; `None` before the first packet.
    pub fn variation(&self) -> Option<DelayVariation> {
        let mut over: Vec<i64> =
            self.transits.kept.iter().map(|one| one.saturating_sub(self.least)).collect();
        over.sort_unstable();
        let mut differences = self.differences.kept.clone();
        differences.sort_unstable();
        Some(DelayVariation {
            p50_ms: quantile(&over, 0.5)?,
            p99_ms: quantile(&over, 0.99)?,
            max_ms: self.transits.most.saturating_sub(self.least) as f64 / 1e6,
            next_p50_ms: quantile(&differences, 0.5),
            next_p99_ms: quantile(&differences, 0.99),
        })
    }
}

/// Returns the quantile `part` in ms.
fn quantile(sorted: &[i64], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map(|ns| *ns as f64 / 1e6)
}

#[derive(Debug, Clone)]
struct Samples {
    kept: Vec<i64>,
    /// Every `stride`-th sample is kept.
    stride: u64,
    offered: u64,
    most: i64,
}

impl Default for Samples {
    fn default() -> Self {
        Samples { kept: Vec::new(), stride: 1, offered: 0, most: i64::MIN }
    }
}

impl Samples {
    fn push(&mut self, sample: i64) {
        self.most = self.most.max(sample);
        if self.offered.is_multiple_of(self.stride) {
            if self.kept.len() == MOST_SAMPLES {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
            self.kept.push(sample);
        }
        self.offered += 1;
    }
}

/// The state of an end's clock.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Clock {
    /// True if a program synchronizes the clock.
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
    fn variation_does_not_depend_on_the_clocks() {
        for offset in [0, 1 << 60, u64::MAX - 5_000_000] {
            let mut delays = Delays::default();
            // 10 ms, and 3 ms more for each tenth packet; number 50 is missing.
            for number in (0..100u64).filter(|number| *number != 50) {
                let sent = number * 1_000_000;
                let late = if number % 10 == 9 { 3_000_000 } else { 0 };
                delays.take(number, sent, (sent + 10_000_000 + late).wrapping_add(offset));
            }
            let found = delays.variation().unwrap();
            assert_eq!((found.p50_ms, found.p99_ms, found.max_ms), (0.0, 3.0, 3.0));
            assert_eq!((found.next_p50_ms, found.next_p99_ms), (Some(0.0), Some(3.0)));
            assert_eq!(delays.least_ns(), Some(10_000_000u64.wrapping_add(offset) as i64));
        }
        assert_eq!(Delays::default().variation(), None);
        assert_eq!(Delays::default().least_ns(), None);
    }

    #[test]
    fn many_are_thinned_over_the_whole_time() {
        let mut delays = Delays::default();
        for number in 0..200_000u64 {
            delays.take(number, 0, number * 1000);
        }
        let kept = &delays.transits.kept;
        assert!(kept.len() <= MOST_SAMPLES && kept.len() > MOST_SAMPLES / 3);
        let found = delays.variation().unwrap();
        assert!((found.p50_ms - 100.0).abs() < 0.1, "{found:?}");
        assert!((found.max_ms - 199.999).abs() < 1e-9, "{found:?}");
        assert_eq!(found.next_p99_ms, Some(0.001));
    }

    #[test]
    fn monstrous_times_do_no_harm() {
        let mut delays = Delays::default();
        for (number, sent, received) in [(0, 0, 1 << 63), (1, 1 << 63, 0), (u64::MAX, 1, 0)] {
            delays.take(number, sent, received);
        }
        assert!(delays.variation().is_some());
    }

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
