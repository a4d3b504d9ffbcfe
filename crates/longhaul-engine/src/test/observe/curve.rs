//! The curve of bytes over time.

use std::time::Duration;

use longhaul_core::result::Curve;

/// The shortest period.
const PERIOD: Duration = Duration::from_millis(20);
/// The maximum number of periods. When they are used up, pairs are merged and the period doubles,
/// so that a test of a day needs the memory of one of twenty seconds.
const MOST: usize = 1024;

/// Records bytes over time.
#[derive(Debug)]
pub(super) struct Recorder {
    period: Duration,
    bytes: Vec<f64>,
    last: (Duration, u64),
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder { period: PERIOD, bytes: Vec::new(), last: (Duration::ZERO, 0) }
    }
}

impl Recorder {
    /// Records that `total` bytes had passed by `now`. They are spread evenly over the time since
    /// the last call.
    pub(super) fn record(&mut self, now: Duration, total: u64) {
        let (mut from, before) = self.last;
        if now <= from {
            return;
        }
        let each_second = total.saturating_sub(before) as f64 / (now - from).as_secs_f64();
        while from < now {
            let period = (from.as_nanos() / self.period.as_nanos()) as usize;
            if period >= MOST {
                self.coarsen();
                continue;
            }
            self.bytes.resize(self.bytes.len().max(period + 1), 0.0);
            let until = now.min(self.period * (period as u32 + 1));
            self.bytes[period] += each_second * (until - from).as_secs_f64();
            from = until;
        }
        self.last = (now, total);
    }

    fn coarsen(&mut self) {
        self.bytes = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.period *= 2;
    }

    /// Returns the curve; `None` before a whole period has passed.
    pub(super) fn finish(mut self) -> Option<Curve> {
        self.bytes.truncate((self.last.0.as_nanos() / self.period.as_nanos()) as usize);
        let bytes: Vec<u64> = self.bytes.iter().map(|bytes| bytes.round() as u64).collect();
        (!bytes.is_empty()).then_some(Curve { period_seconds: self.period.as_secs_f64(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn bytes_are_spread_over_the_time_they_took() {
        let mut recorder = Recorder::default();
        recorder.record(millis(10), 100);
        recorder.record(millis(50), 500);
        recorder.record(millis(50), 900);
        recorder.record(millis(65), 500);
        let curve = recorder.finish().unwrap();
        assert_eq!((curve.period_seconds, curve.bytes), (0.02, vec![200, 200, 100]));
        assert_eq!(Recorder::default().finish(), None);
    }

    #[test]
    fn a_long_test_takes_no_more_memory() {
        let mut recorder = Recorder::default();
        (1..=100_000u64).for_each(|n| recorder.record(millis(20 * n), 1000 * n));
        let curve = recorder.finish().unwrap();
        assert!(curve.bytes.len() <= MOST && curve.bytes.len() >= MOST / 2 - 1);
        assert_eq!(curve.period_seconds, 2.56);
        assert!(curve.bytes.iter().all(|bytes| *bytes == 128_000), "{:?}", curve.bytes);
    }

    #[test]
    fn a_gap_of_hours_is_spread_too() {
        let mut recorder = Recorder::default();
        recorder.record(Duration::from_secs(86_400), 1 << 40);
        assert!(recorder.finish().unwrap().bytes.len() <= MOST);
    }
}
