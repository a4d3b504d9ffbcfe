//! Checks of the link's rate.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit, CheckVerdict};

use super::super::case::{Case, Judged, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;

/// The tolerated relative error of the rate over any whole second.
const TOLERANCE: f64 = 0.01;

/// The offered load relative to a high rate: just enough to keep the queue full, so that the
/// emulator has processor time left.
const PRESSURE: f64 = 1.15;
const HIGH_PRESSURE: f64 = 1.04;

/// The rate of a link without limit, relative to the rate of a check, above which the machine is
/// fast enough for the check.
const RESERVE: f64 = 1.2;

/// The rate above which a second thread sends; one thread reaches 9 Gb/s.
const HIGH_BPS: f64 = 5e9;

/// Checks rates from 1 Mb/s upwards until the machine cannot send or forward more.
pub(in super::super) fn check(lab: &mut dyn Lab, quick: bool, each: &mut dyn FnMut(Check)) {
    let rates: &[(&str, f64)] = &[
        ("1M", 1e6),
        ("10M", 1e7),
        ("100M", 1e8),
        ("1G", 1e9),
        ("2G", 2e9),
        ("5G", 5e9),
        ("10G", 1e10),
        ("20G", 2e10),
        ("50G", 5e10),
    ];
    for (text, bps) in rates {
        for check in twice(|| vec![one(lab, (text, *bps), if quick { 1.3 } else { 2.3 })]) {
            // A check that the host disturbed does not show that higher rates are impossible.
            let beyond = check.verdict == CheckVerdict::NotDone && !check.spoiled_by_host;
            each(check);
            if beyond {
                return;
            }
        }
    }
}

/// Checks one rate, given as text and in bit/s, over `seconds`.
pub(in super::super) fn one(lab: &mut dyn Lab, (text, bps): (&str, f64), seconds: f64) -> Check {
    let options = format!("--up-rate {text} --up-queue 50ms");
    let case = Case::new(format!("rate {text}b/s, over 1 s"), &options, CheckUnit::Bps);
    let stream = stream(bps, seconds);
    let (probe, outcome) = match lab.send(&options, false, stream) {
        Ok(measured) => measured,
        Err(reason) => return case.not_done(format!("beyond this machine: {reason}")),
    };
    let sent = (probe.sent.datagrams * stream.ip_bytes(false)) as f64 * 8.0 / probe.sent.seconds;
    if sent < bps * (1.0 + TOLERANCE) {
        let sent = CheckUnit::Bps.format(sent);
        return case.not_done(format!("beyond this machine: it sends {sent}"));
    }
    let windows = &probe.window_rates_bps;
    let off = |rate: &f64| (rate - bps).abs();
    let Some(worst) = windows.iter().copied().max_by(|a, b| off(a).total_cmp(&off(b))) else {
        return case.not_done("less than a second of it arrived");
    };
    let explained = Noise::of(&outcome.machine).rates(bps, TOLERANCE);
    let check = case
        .near(bps, worst, bps * TOLERANCE, windows.len() as u64)
        .beside(outcome.machine, explained)
        .with_warning(outcome.emulator_warning.as_ref());
    if check.verdict == CheckVerdict::Fail
        && worst < bps
        && let Some(reason) = too_slow(lab, bps)
    {
        return case.not_done(reason);
    }
    check
}

/// Returns the reason why this machine cannot carry `bps`: a link without a rate carries less than
/// [`RESERVE`] times as much. The answer is independent of the check that failed.
fn too_slow(lab: &mut dyn Lab, bps: f64) -> Option<String> {
    let offered = bps * RESERVE * PRESSURE;
    let carried = match lab.send("", false, stream(offered, 1.3)) {
        Ok((probe, _)) => probe.rate_bps,
        Err(reason) => return Some(format!("beyond this machine: {reason}")),
    };
    let text = || {
        format!(
            "beyond this machine: a link without a rate carries {}",
            CheckUnit::Bps.format(carried)
        )
    };
    (carried < bps * RESERVE).then(text)
}

/// Returns small datagrams for low rates, so that a second has hundreds of them, and jumbo
/// super-packets for high rates.
fn stream(bps: f64, seconds: f64) -> Stream {
    let (payload_bytes, together) = match bps {
        ..1e7 => (222, 1),
        ..1e8 => (1472, 1),
        ..1e9 => (1472, 10),
        _ => (8972, 7),
    };
    let mut stream = Stream { payload_bytes, together, verify: false, ..Stream::many(0) };
    let (pressure, threads) = if bps >= HIGH_BPS { (HIGH_PRESSURE, 2) } else { (PRESSURE, 1) };
    stream.threads = threads;
    let bits = stream.ip_bytes(false) as f64 * 8.0;
    stream.datagrams = (seconds * bps * pressure / bits) as u64;
    stream.interval = Duration::from_secs_f64(f64::from(together) * bits / (bps * pressure));
    stream
}
