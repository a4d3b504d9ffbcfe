//! The variation of one-way delays.

use crate::result::DelayVariation;

/// The most samples of each kind that are kept. When more arrive, every second sample is dropped,
/// so that the rest covers the whole time.
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

    /// Returns the least delay on the two clocks; `None` before the first packet.
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
    seen: u64,
    most: i64,
}

impl Default for Samples {
    fn default() -> Self {
        Samples { kept: Vec::new(), stride: 1, seen: 0, most: i64::MIN }
    }
}

impl Samples {
    fn push(&mut self, sample: i64) {
        self.most = self.most.max(sample);
        if self.seen.is_multiple_of(self.stride) {
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
        self.seen += 1;
    }
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
}
