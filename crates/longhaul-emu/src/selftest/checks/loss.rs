//! Checks of independent and bursty loss.

use longhaul_core::result::{Check, Unit};
use longhaul_core::stats::pearson_p;

use super::super::case::{Case, FALSE_ALARM, Tallies};
use super::super::lab::{Lab, Stream};

/// Checks independent losses of datagrams within super-packets of 64.
pub(super) fn independent(
    lab: &mut Lab<'_>,
    ipv6: bool,
    rate: f64,
    datagrams: u64,
    each: &mut dyn FnMut(Check),
) {
    let options = format!("--up-loss {rate:e}");
    let case = Case::new(format!("loss {rate:e}"), &options, Unit::Share).over(ipv6);
    each(match lab.send(&options, ipv6, Stream::many(datagrams)) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.link.up.impairments.lost.segments;
            case.share(rate, Tallies { seen: probe.lost, of: probe.sent.datagrams, emulator })
        }
    });
}

/// Checks the mean length of loss bursts, and that their lengths are geometric.
pub(super) fn bursty(lab: &mut Lab<'_>, datagrams: u64, each: &mut dyn FnMut(Check)) {
    const MEAN: f64 = 5.0;
    let options = format!("--up-loss 1e-2 --up-loss-burst {MEAN}");
    let mean_case = Case::new("mean burst of losses", &options, Unit::Count);
    let shape_case = Case::new("bursts are geometric (chi-square p)", &options, Unit::Share);
    let probe = match lab.send(&options, false, Stream::many(datagrams)) {
        Ok((probe, _)) => probe,
        Err(reason) => {
            each(mean_case.not_done(reason.to_string()));
            each(shape_case.not_done(reason.to_string()));
            return;
        }
    };
    let Some((runs, mean)) = probe.mean_loss_run() else {
        each(mean_case.not_done("nothing was lost"));
        each(shape_case.not_done("nothing was lost"));
        return;
    };
    // The standard deviation of a geometric variable with this mean.
    let deviation = (MEAN * (MEAN - 1.0)).sqrt();
    each(mean_case.mean(MEAN, mean, deviation / (runs as f64).sqrt(), runs));
    each(match fit(&probe.loss_runs, MEAN) {
        Some(p) => shape_case.between((1.0, p), (FALSE_ALARM, 1.0), runs),
        None => shape_case.not_done("too few bursts to tell"),
    });
}

/// Returns the probability of run lengths at least as unusual as these, if they are geometric with
/// this mean.
fn fit(runs: &std::collections::BTreeMap<u64, u64>, mean: f64) -> Option<f64> {
    let longest = *runs.keys().next_back()?;
    let counts: Vec<u64> =
        (1..=longest).map(|length| runs.get(&length).copied().unwrap_or(0)).collect();
    let go_on = 1.0 - 1.0 / mean;
    let mut probabilities: Vec<f64> =
        (0..longest).map(|before| go_on.powf(before as f64) / mean).collect();
    // The last class holds all longer runs.
    if let Some(last) = probabilities.last_mut() {
        *last = go_on.powf((longest - 1) as f64);
    }
    pearson_p(&counts, &probabilities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometric_runs_fit_and_others_do_not() {
        let geometric = (1..30).map(|n| (n, (2000.0 * 0.8_f64.powi(n as i32 - 1)) as u64));
        assert!(fit(&geometric.collect(), 5.0).unwrap() > 0.9);
        assert!(fit(&[(5, 1000)].into(), 5.0).unwrap() < 1e-9, "all of one length");
        assert_eq!(fit(&[(1, 3)].into(), 5.0), None);
    }
}
