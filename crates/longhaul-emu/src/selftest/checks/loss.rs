//! Checks of independent and bursty loss.

use longhaul_core::result::{Check, CheckUnit};
use longhaul_core::stats::pearson_p;

use super::super::case::{Case, FALSE_ALARM, Judged, Tallies};
use super::super::lab::{Lab, Stream};
use super::super::probe::ProbeReport;

/// Checks independent losses of datagrams within super-packets of 64, given as (rate, datagrams).
pub(in super::super) fn independent(
    lab: &mut dyn Lab,
    ipv6: bool,
    (rate, datagrams): (f64, u64),
    each: &mut dyn FnMut(Check),
) {
    let options = format!("--up-loss {rate:e}");
    let case = Case::new(format!("loss {rate:e}"), &options, CheckUnit::Share).over(ipv6);
    each(match lab.send(&options, ipv6, Stream::many(datagrams)) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.lost.segments;
            case.share(rate, Tallies { counted: probe.lost, of: probe.sent.datagrams, emulator })
        }
    });
}

/// Checks the share of datagrams that bit errors destroy.
pub(in super::super) fn bit_errors(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    const RATE: f64 = 5e-5;
    let options = format!("--up-ber {RATE:e}");
    let case = Case::new("bit errors 5e-5", &options, CheckUnit::Share);
    let stream = Stream { datagrams: 400_000, ..Stream::shares() };
    let bits = 8 * stream.ip_bytes(false);
    let expected = 1.0 - (1.0 - RATE).powf(bits as f64);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.bit_errors.segments;
            let of = probe.sent.datagrams;
            case.share(expected, Tallies { counted: probe.lost, of, emulator })
        }
    });
}

/// Sends a stream. Returns the report of the probe, the losses that the emulator counted, and the number
/// and the mean length of the runs of losses.
pub(super) fn loss_runs(
    lab: &mut dyn Lab,
    options: &str,
    stream: Stream,
) -> Result<(ProbeReport, u64, (u64, f64)), String> {
    let (probe, outcome) = lab.send(options, false, stream).map_err(|reason| reason.to_string())?;
    let runs = probe.mean_loss_run().ok_or("nothing was lost")?;
    Ok((probe, outcome.counts.lost.segments, runs))
}

/// Checks the rate of bursty losses, the mean length of the bursts, and that their lengths are
/// geometric.
pub(in super::super) fn bursty(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    const RATE: f64 = 0.2;
    const MEAN: f64 = 3.0;
    let options = format!("--up-loss {RATE} --up-loss-burst {MEAN}");
    let rate_case = Case::new("loss 0.2 in bursts", &options, CheckUnit::Share);
    let mean_case = Case::new("mean burst of losses", &options, CheckUnit::Count);
    let shape_case = Case::new("bursts are geometric (chi-square p)", &options, CheckUnit::Share);
    let stream = Stream { datagrams: 600_000, ..Stream::shares() };
    let (probe, emulator, (runs, mean)) = match loss_runs(lab, &options, stream) {
        Ok(found) => found,
        Err(reason) => {
            return [rate_case, mean_case, shape_case]
                .into_iter()
                .for_each(|case| each(case.not_done(reason.clone())));
        }
    };
    let sent = probe.sent.datagrams;
    let share = probe.lost as f64 / sent as f64;
    let check = rate_case.mean(RATE, share, burst_share_error(RATE, MEAN, sent), sent);
    each(check.counted(probe.lost, emulator));
    // The standard deviation of a geometric variable with this mean.
    let deviation = (MEAN * (MEAN - 1.0)).sqrt();
    each(mean_case.mean(MEAN, mean, deviation / (runs as f64).sqrt(), runs));
    each(match fit(&probe.loss_runs, MEAN) {
        Some(p) => shape_case.between((1.0, p), (FALSE_ALARM, 1.0), runs),
        None => shape_case.not_done("too few bursts"),
    });
}

/// Returns the standard error of the share of losses among `sent` segments of a two-state channel:
/// the states of successive segments are correlated by 1 - P(to bad) - P(to good).
fn burst_share_error(rate: f64, mean_burst: f64, sent: u64) -> f64 {
    let to_good = 1.0 / mean_burst;
    let correlation = 1.0 - to_good - to_good * rate / (1.0 - rate);
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    (rate * (1.0 - rate) * inflation / sent as f64).sqrt()
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
