//! Checks of the jitter distributions.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit, MachineTiming};
use longhaul_core::stats::{kolmogorov_bound, kolmogorov_distance, normal_p};

use super::super::case::{Case, FALSE_ALARM, Judged, VERDICT_DEVIATIONS, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;
use super::super::probe::DelayReport;

const DELAY_MS: f64 = 120.0;
const SPREAD_MS: f64 = 20.0;

/// The expected error of timing in ms.
const TIMING_MS: f64 = 0.1;

/// The largest density, that of the start of the Pareto distribution, per ms.
const DENSITY: f64 = 2.6 / SPREAD_MS;

/// The deviation from the configured delay, in spreads, to which larger deviations are cut before
/// the mean is taken. The fourth moment of the Pareto distribution is infinite, so the standard
/// deviation of a sample is meaningless.
const CUT: f64 = 3.0;

/// The number of datagrams that find an error of 5 % in each of the spreads.
const DATAGRAMS: u64 = 24_000;

type Distribution = fn(f64) -> f64;

/// Checks the spread and the shape of each distribution, and that jitter preserves the order by
/// default.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    let stream = Stream::single(DATAGRAMS, Duration::from_micros(100));
    for (name, distribution) in
        [("uniform", uniform as Distribution), ("normal", normal), ("pareto", pareto)]
    {
        twice(|| one(lab, name, distribution, stream)).into_iter().for_each(&mut *each);
    }
    let options = format!("--up-delay {DELAY_MS}ms --up-jitter {SPREAD_MS}ms:uniform");
    let case = Case::new("jitter keeps the order", &options, CheckUnit::Count);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, _)) => case.none("out of order", probe.reordered, probe.arrivals),
    });
}

fn one(lab: &mut dyn Lab, name: &str, distribution: Distribution, stream: Stream) -> Vec<Check> {
    let options = format!("--up-delay {DELAY_MS}ms --up-jitter {SPREAD_MS}ms:{name}:reorder");
    let spread = Case::new(format!("jitter {name}, spread"), &options, CheckUnit::Ms);
    let shape =
        Case::new(format!("jitter {name} (Kolmogorov distance)"), &options, CheckUnit::Share);
    match lab.send(&options, false, stream) {
        Err(reason) => [spread, shape].map(|case| case.not_done(reason.to_string())).into(),
        Ok((probe, outcome)) => {
            let delay = probe.delay.unwrap_or_default();
            vec![
                spread_check(&spread, &delay, distribution, outcome.machine),
                shape_check(&shape, &delay, distribution, outcome.machine),
            ]
        }
    }
}

/// Judges the mean absolute deviation from the delay, as a multiple of the one configured.
fn spread_check(
    case: &Case,
    delay: &DelayReport,
    distribution: Distribution,
    machine: MachineTiming,
) -> Check {
    let expected = Deviation::of(distribution);
    let deviations: Vec<f64> =
        delay.quantiles_ms.iter().map(|ms| ((ms - DELAY_MS) / SPREAD_MS).abs().min(CUT)).collect();
    // The quantiles are evenly spaced, so the mean of a trapezoid between two is their middle.
    let middles: Vec<f64> =
        deviations.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    let mean = middles.iter().sum::<f64>() / middles.len() as f64;
    let chance = VERDICT_DEVIATIONS * expected.deviation / (delay.samples as f64).sqrt();
    // A shift of all delays changes the deviations of both sides in opposite directions.
    let timing = TIMING_MS / SPREAD_MS * expected.excess_below.abs();
    let tolerance = SPREAD_MS * (chance + timing) / expected.mean;
    let noise = Noise::of(&machine).mean_ms() / expected.mean;
    case.near(SPREAD_MS, SPREAD_MS * mean / expected.mean, tolerance, delay.samples)
        .beside(machine, SPREAD_MS - tolerance - noise..=SPREAD_MS + tolerance + noise)
}

fn shape_check(
    case: &Case,
    delay: &DelayReport,
    distribution: Distribution,
    machine: MachineTiming,
) -> Check {
    let at = |ms: f64| distribution((ms - DELAY_MS) / SPREAD_MS);
    let distance = kolmogorov_distance(&delay.quantiles_ms, at);
    let bound = kolmogorov_bound(delay.samples as usize, FALSE_ALARM) + TIMING_MS * DENSITY;
    case.between((0.0, distance), (0.0, bound), delay.samples)
        .beside(machine, 0.0..=bound + Noise::of(&machine).distance(DENSITY))
}

/// The absolute deviation from zero of a distribution, cut to [`CUT`].
struct Deviation {
    mean: f64,
    /// Its standard deviation.
    deviation: f64,
    /// The probability below zero minus the probability above zero.
    excess_below: f64,
}

impl Deviation {
    fn of(distribution: Distribution) -> Self {
        const STEPS: u32 = 3000;
        let step = CUT / f64::from(STEPS);
        let (mut mean, mut square) = (0.0, 0.0);
        for i in 0..STEPS {
            let x = (f64::from(i) + 0.5) * step;
            let beyond = 1.0 - distribution(x) + distribution(-x);
            mean += beyond * step;
            square += 2.0 * x * beyond * step;
        }
        let excess_below = 2.0 * distribution(0.0) - 1.0;
        Deviation { mean, deviation: (square - mean * mean).sqrt(), excess_below }
    }
}

/// Returns the distribution function of uniform jitter, in units of its spread.
fn uniform(x: f64) -> f64 {
    ((x + 1.0) / 2.0).clamp(0.0, 1.0)
}

fn normal(x: f64) -> f64 {
    normal_p(x)
}

/// Returns the distribution function of Pareto with shape 3, mean 0 and standard deviation 1.
fn pareto(x: f64) -> f64 {
    // With scale m the mean is 1.5 m and the standard deviation m x sqrt(3) / 2.
    let scale = 2.0 / 3.0_f64.sqrt();
    let value = x + 1.5 * scale;
    if value <= scale { 0.0 } else { 1.0 - (scale / value).powi(3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distributions_have_mean_zero_and_their_spread() {
        for (distribution, deviation) in
            [(uniform as Distribution, 1.0 / 3.0_f64.sqrt()), (normal, 1.0), (pareto, 1.0)]
        {
            let step = 0.005;
            let (mut mean, mut square) = (0.0, 0.0);
            for i in -2000..200_000 {
                let x = f64::from(i) * step;
                let p = distribution(x + step) - distribution(x);
                mean += p * (x + step / 2.0);
                square += p * (x + step / 2.0).powi(2);
            }
            assert!(mean.abs() < 0.001, "{mean}");
            // The integral of the Pareto distribution's square ends at 1000.
            assert!((square.sqrt() - deviation).abs() < 0.01, "{square}");
        }
    }
}
