//! Checks of the one-way delay, idle and under load.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit, CheckVerdict};

use super::super::case::{Case, Judged, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;

/// The highest one-way lateness in ms, of the median and of the 99th percentile.
const MEDIAN_MS: f64 = 0.1;
const P99_MS: f64 = 0.3;

/// The 99th percentile under load: these datagrams also wait for the super-packets of the load.
const LOADED_P99_MS: f64 = 1.0;

/// The largest earliness in ms, from the difference of the clocks of the time stamps.
const EARLY_MS: f64 = 0.01;

/// Checks the delay of occasional datagrams over an otherwise idle link.
pub(in super::super) fn idle(
    lab: &mut dyn Lab,
    ipv6: bool,
    quick: bool,
    each: &mut dyn FnMut(Check),
) {
    let stream = Stream::single(if quick { 200 } else { 600 }, Duration::from_micros(2300));
    for delay_ms in [0.0, 10.0, 90.0] {
        twice(|| idle_once(lab, ipv6, delay_ms, stream)).into_iter().for_each(&mut *each);
    }
}

fn idle_once(lab: &mut dyn Lab, ipv6: bool, delay_ms: f64, stream: Stream) -> Vec<Check> {
    let options = format!("--up-delay {delay_ms}ms");
    let measured = lab.send(&options, ipv6, stream);
    let check = |(which, quantile, late_ms): (&str, f64, f64)| {
        let name = format!("delay {delay_ms} ms, idle, {which}");
        let case = Case::new(name, &options, CheckUnit::Ms).over(ipv6);
        match &measured {
            Err(reason) => case.not_done(reason.to_string()),
            Ok((probe, outcome)) => {
                let delay = probe.delay.clone().unwrap_or_default();
                let figures = (delay_ms, delay.quantile_ms(quantile));
                let range = (delay_ms - EARLY_MS, delay_ms + late_ms);
                let latest = range.1 + Noise::of(&outcome.machine).at(quantile);
                case.between(figures, range, delay.samples)
                    .beside(outcome.machine, range.0..=latest)
                    .with_warning(outcome.emulator_warning.as_ref())
            }
        }
    };
    [("median", 0.5, MEDIAN_MS), ("99 %", 0.99, P99_MS)].map(check).into()
}

/// Checks the delay beside a load of 5 Gb/s, or of 2 Gb/s if the machine cannot generate 5.
pub(in super::super) fn loaded(lab: &mut dyn Lab, quick: bool, each: &mut dyn FnMut(Check)) {
    let seconds = if quick { 1.0 } else { 2.0 };
    let mut check = |load, bps| twice(|| vec![loaded_once(lab, load, bps, seconds)]);
    let mut made = check("5 Gb/s", 5e9);
    if made.iter().any(|check| check.verdict == CheckVerdict::NotDone) {
        made.extend(check("2 Gb/s", 2e9));
    }
    made.into_iter().for_each(each);
}

fn loaded_once(lab: &mut dyn Lab, load: &str, bps: f64, seconds: f64) -> Check {
    const DELAY_MS: f64 = 10.0;
    let options = format!("--up-delay {DELAY_MS}ms");
    let case = Case::new(format!("delay 10 ms beside {load}, 99 %"), &options, CheckUnit::Ms);
    let mut heavy = Stream { payload_bytes: 8972, together: 7, verify: false, ..Stream::many(0) };
    let bits = heavy.ip_bytes(false) as f64 * 8.0;
    heavy.interval = Duration::from_secs_f64(bits * f64::from(heavy.together) / bps);
    heavy.datagrams = (seconds * bps / bits) as u64;
    let light = Stream::single((seconds * 400.0) as u64, Duration::from_micros(2300));
    let outcome = match lab.send_all(&options, false, &[heavy, light]) {
        Ok(outcome) => outcome,
        Err(reason) => return case.not_done(reason.to_string()),
    };
    let [heavy, light] = &outcome.probes[..] else {
        return case.not_done("a probe did not report");
    };
    if heavy.rate_bps < bps * 0.9 {
        let rate = CheckUnit::Bps.format(heavy.rate_bps);
        return case.not_done(format!("the machine generated a load of only {rate}"));
    }
    let delay = light.delay.clone().unwrap_or_default();
    let figures = (DELAY_MS, delay.quantile_ms(0.99));
    let range = (DELAY_MS - EARLY_MS, DELAY_MS + LOADED_P99_MS);
    let latest = range.1 + Noise::of(&outcome.machine).at(0.99);
    case.between(figures, range, delay.samples)
        .beside(outcome.machine, range.0..=latest)
        .with_warning(outcome.emulator_warning.as_ref())
}
