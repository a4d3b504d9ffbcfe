//! Checks of the link's rate.

use std::time::Duration;

use longhaul_core::result::{Check, CheckVerdict, Unit};

use super::super::case::{Case, Judged, twice};
use super::super::lab::{Lab, Stream};

/// The tolerated relative error of the rate over any whole second.
const TOLERANCE: f64 = 0.01;

/// The offered load relative to a high rate: just enough to keep the queue full, so that the
/// emulator has processor time left.
const PRESSURE: f64 = 1.15;
const HIGH_PRESSURE: f64 = 1.04;

/// The rate above which a second thread sends; one thread reaches 9 Gb/s.
const HIGH_BPS: f64 = 5e9;

/// Checks rates from 1 Mb/s upwards until the machine cannot send or forward more.
pub(super) fn check(lab: &mut Lab<'_>, quick: bool, each: &mut dyn FnMut(Check)) {
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
        for check in twice(|| vec![one(lab, text, *bps, if quick { 1.3 } else { 2.3 })]) {
            // A check that the host disturbed does not show that higher rates are impossible.
            let beyond = check.verdict == CheckVerdict::NotDone && !check.spoiled_by_host;
            each(check);
            if beyond {
                return;
            }
        }
    }
}

fn one(lab: &mut Lab<'_>, text: &str, bps: f64, seconds: f64) -> Check {
    let options = format!("--up-rate {text} --up-queue 50ms");
    let case = Case::new(format!("rate {text}b/s, over 1 s"), &options, Unit::Bps);
    let stream = stream(bps, seconds);
    let (probe, outcome) = match lab.send(&options, false, stream) {
        Ok(measured) => measured,
        Err(reason) => return case.not_done(format!("beyond this machine: {reason}")),
    };
    let sent = (probe.sent.datagrams * stream.ip_bytes(false)) as f64 * 8.0 / probe.sent.seconds;
    if sent < bps * (1.0 + TOLERANCE) {
        let sent = Unit::Bps.format(sent);
        return case.not_done(format!("beyond this machine: it sends {sent}"));
    }
    let windows = &probe.window_rates_bps;
    let off = |rate: &f64| (rate - bps).abs();
    let Some(worst) = windows.iter().copied().max_by(|a, b| off(a).total_cmp(&off(b))) else {
        return case.not_done("less than a second of it arrived");
    };
    let check = case.near(bps, worst, bps * TOLERANCE, windows.len() as u64);
    let check = check.given(outcome.machine);
    if check.verdict == CheckVerdict::Fail {
        return match outcome.emulator_warning() {
            // The emulator reports that the machine cannot carry this rate, so the check is
            // inconclusive.
            Some(emulator_warning) => {
                case.not_done(format!("beyond this machine: {emulator_warning}"))
            }
            None => check.judged(),
        };
    }
    check
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
