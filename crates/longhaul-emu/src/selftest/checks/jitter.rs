//! Checks of the jitter distributions.

use std::time::Duration;

use longhaul_core::result::{Check, Unit};
use longhaul_core::stats::{kolmogorov_bound, kolmogorov_distance, normal_p};

use super::super::case::{Case, FALSE_ALARM, Judged, twice};
use super::super::lab::{Lab, Stream};

const DELAY_MS: f64 = 60.0;
const SPREAD_MS: f64 = 10.0;

/// The part of the distance between the distributions that timing explains: an error of 0.1 ms
/// times the largest density, 0.26 per ms for a spread of 10 ms (the start of the Pareto
/// distribution).
const TIMING: f64 = 0.026;

/// Checks the distribution of delays, and that jitter preserves the order by default.
pub(super) fn check(lab: &mut Lab<'_>, quick: bool, each: &mut dyn FnMut(Check)) {
    let stream = Stream::single(if quick { 4000 } else { 15_000 }, Duration::from_micros(100));
    for (name, distribution) in
        [("uniform", uniform as fn(f64) -> f64), ("normal", normal), ("pareto", pareto)]
    {
        let options = format!("--up-delay {DELAY_MS}ms --up-jitter {SPREAD_MS}ms:{name}:reorder");
        let name = format!("jitter {name} (Kolmogorov distance)");
        let once = || {
            let case = Case::new(&name, &options, Unit::Share);
            vec![match lab.send(&options, false, stream) {
                Err(reason) => case.not_done(reason.to_string()),
                Ok((probe, outcome)) => {
                    let delay = probe.delay.unwrap_or_default();
                    let at = |ms: f64| distribution((ms - DELAY_MS) / SPREAD_MS);
                    let distance = kolmogorov_distance(&delay.quantiles_ms, at);
                    let bound = kolmogorov_bound(delay.samples as usize, FALSE_ALARM) + TIMING;
                    case.between((0.0, distance), (0.0, bound), delay.samples)
                        .given(outcome.machine)
                }
            }]
        };
        twice(once).into_iter().for_each(&mut *each);
    }
    let options = format!("--up-delay {DELAY_MS}ms --up-jitter {SPREAD_MS}ms:uniform");
    let case = Case::new("jitter keeps the order", &options, Unit::Count);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, _)) => case.none("out of order", probe.reordered, probe.arrivals),
    });
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
            [(uniform as fn(f64) -> f64, 1.0 / 3.0_f64.sqrt()), (normal, 1.0), (pareto, 1.0)]
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
