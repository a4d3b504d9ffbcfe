//! The deviations of figures that the timing of the machine explains.

use std::ops::RangeInclusive;

use longhaul_core::result::MachineTiming;

/// The wake-ups on which the delay of a datagram depends: the emulator's thread wakes to read the
/// datagram, and again to write it.
const WAKE_UPS: f64 = 2.0;

/// The lateness that the machine adds to the delay of a datagram, according to a bare timer in the
/// same seconds. It is zero if the timer had no real-time priority, because its lateness then
/// includes the effect of other programs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Noise {
    /// Pairs, in ascending order, of a quantile and the lateness in ms that this share of the datagrams does not exceed.
    quantiles: [(f64, f64); 5],
    /// The time for which the timer was late by more than [`MachineTiming::STALLED_MS`].
    stalled_seconds: f64,
}

impl Noise {
    pub(super) fn of(machine: &MachineTiming) -> Self {
        if !machine.realtime {
            return Noise::default();
        }
        let mut quantiles = [
            (0.5, machine.p50_ms),
            (1.0 - machine.stalled_share, MachineTiming::STALLED_MS),
            (0.99, machine.p99_ms),
            (0.999, machine.p999_ms),
            (1.0, machine.max_ms),
        ];
        quantiles.sort_by(|one, other| one.0.total_cmp(&other.0));
        Noise {
            quantiles: quantiles.map(|(q, late_ms)| (q, late_ms * WAKE_UPS)),
            stalled_seconds: machine.stalled_share * machine.seconds,
        }
    }

    /// Returns the lateness in ms at quantile `q`, or at the next higher known quantile.
    pub(super) fn at(&self, q: f64) -> f64 {
        self.quantiles.iter().find(|(known, _)| q <= *known).map_or(0.0, |(_, late_ms)| *late_ms)
    }

    /// Returns an upper bound of the mean lateness in ms.
    pub(super) fn mean_ms(&self) -> f64 {
        let mut below = 0.0;
        self.quantiles.iter().fold(0.0, |sum, (q, late_ms)| {
            let share = q - std::mem::replace(&mut below, *q);
            sum + share * late_ms
        })
    }

    /// Returns the Kolmogorov distance that the lateness adds to a distribution with the greatest
    /// density `density` per ms. A lateness of at most l moves the distribution function by at most
    /// l times the density; the share of later datagrams moves it by at most this share.
    pub(super) fn distance(&self, density: f64) -> f64 {
        let added = |(q, late_ms): &(f64, f64)| {
            if *late_ms == 0.0 { 0.0 } else { late_ms * density + WAKE_UPS * (1.0 - q) }
        };
        self.quantiles.iter().map(added).fold(1.0, f64::min)
    }

    /// Returns the rates over a second that are explained if the rate is `bps` and has a relative
    /// `tolerance`: the first and the last datagram of the second may be late, and a thread that
    /// stalls sends nothing.
    pub(super) fn rates(&self, bps: f64, tolerance: f64) -> RangeInclusive<f64> {
        let off = bps * (tolerance + self.at(1.0) / 1e3 + self.stalled_seconds);
        bps - off..=bps + off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_is_that_of_a_real_time_timer() {
        let machine = MachineTiming {
            realtime: true,
            p50_ms: 0.05,
            p99_ms: 0.5,
            p999_ms: 2.0,
            max_ms: 10.0,
            stalled_share: 0.05,
            seconds: 2.0,
            ..MachineTiming::default()
        };
        let noise = Noise::of(&machine);
        assert_eq!((noise.at(0.5), noise.at(0.9), noise.at(0.98)), (0.1, 0.5, 1.0));
        assert_eq!(noise.at(1.0), 20.0);
        // 0.5 x 0.1 + 0.45 x 0.5 + 0.04 x 1 + 0.009 x 4 + 0.001 x 20 ms
        assert!((noise.mean_ms() - 0.371).abs() < 1e-9, "{}", noise.mean_ms());
        // At the 99th percentile: 1 ms x 0.01 per ms + 2 x 0.01.
        assert!((noise.distance(0.01) - 0.03).abs() < 1e-9, "{}", noise.distance(0.01));
        // 1 % of tolerance, 20 ms at the edges, and 100 ms of stalls.
        let rates = noise.rates(1e9, 0.01);
        assert!((rates.start() - 0.87e9).abs() < 1.0 && (rates.end() - 1.13e9).abs() < 1.0);
        let ordinary = Noise::of(&MachineTiming { realtime: false, ..machine });
        assert_eq!((ordinary.at(1.0), ordinary.mean_ms(), ordinary.distance(1.0)), (0.0, 0.0, 0.0));
    }
}
