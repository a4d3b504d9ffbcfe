use std::time::Duration;

use longhaul_core::result::{Check, Unit};

use super::super::case::{Case, Judged};
use super::super::lab::{Lab, Stream};

/// One way, in milliseconds: half of what a round trip may be off.
const MEDIAN_MS: f64 = 0.05;
const P99_MS: f64 = 0.15;

/// Of 99 % beside a load: a round trip may be 1 ms off.
const LOADED_P99_MS: f64 = 1.0;

/// How early a departure may be: what the clocks of the time stamps differ by.
const EARLY_MS: f64 = 0.01;

/// One datagram now and then over an otherwise idle link.
pub(super) fn idle(lab: &mut Lab<'_>, ipv6: bool, quick: bool, each: &mut dyn FnMut(Check)) {
    let count = if quick { 200 } else { 600 };
    for delay_ms in [0.0, 10.0, 90.0] {
        let options = format!("--up-delay {delay_ms}ms");
        let name = |which| format!("delay {delay_ms} ms, idle, {which}");
        let case = |which| Case::new(name(which), &options, Unit::Ms).over(ipv6);
        let stream = Stream::single(count, Duration::from_micros(2300));
        match lab.send(&options, ipv6, stream) {
            Err(reason) => {
                each(case("median").not_done(reason.to_string()));
                each(case("99 %").not_done(reason.to_string()));
            }
            Ok((probe, outcome)) => {
                let delay = probe.delay.unwrap_or_default();
                for (which, quantile, late_ms) in
                    [("median", 0.5, MEDIAN_MS), ("99 %", 0.99, P99_MS)]
                {
                    let figures = (delay_ms, delay.quantile_ms(quantile));
                    let range = (delay_ms - EARLY_MS, delay_ms + late_ms);
                    let check = case(which).between(figures, range, delay.samples);
                    each(because(check, outcome.confession()));
                }
            }
        }
    }
}

/// The same beside a load that leaves the link room.
pub(super) fn loaded(lab: &mut Lab<'_>, quick: bool, each: &mut dyn FnMut(Check)) {
    /// Five and two Gb/s of jumbo datagrams.
    const LOADS: [(&str, f64); 2] = [("5 Gb/s", 5e9), ("2 Gb/s", 2e9)];
    const DELAY_MS: f64 = 10.0;
    let seconds = if quick { 1.0 } else { 2.0 };
    for (load, bps) in LOADS {
        let options = format!("--up-delay {DELAY_MS}ms");
        let case = Case::new(format!("delay 10 ms beside {load}, 99 %"), &options, Unit::Ms);
        let mut heavy =
            Stream { payload_bytes: 8972, together: 7, verify: false, ..Stream::many(0) };
        let bytes = heavy.ip_bytes(false) as f64;
        heavy.interval = Duration::from_secs_f64(bytes * 8.0 * 7.0 / bps);
        heavy.datagrams = (seconds * bps / bytes / 8.0) as u64;
        let light = Stream::single((seconds * 400.0) as u64, Duration::from_micros(2300));
        match lab.send_all(&options, false, &[heavy, light]) {
            Err(reason) => each(case.not_done(reason.to_string())),
            Ok(outcome) => {
                let [heavy, light] = &outcome.probes[..] else { continue };
                if heavy.rate_bps < bps * 0.9 {
                    let rate = Unit::Bps.format(heavy.rate_bps);
                    each(case.not_done(format!("the machine made only {rate} of load")));
                    continue;
                }
                let delay = light.delay.clone().unwrap_or_default();
                let figures = (DELAY_MS, delay.quantile_ms(0.99));
                let range = (DELAY_MS - EARLY_MS, DELAY_MS + LOADED_P99_MS);
                let check = case.between(figures, range, delay.samples);
                each(because(check, outcome.confession()));
                return;
            }
        }
    }
}

/// A failed check with what the emulator itself says of it; a passed one as it is.
fn because(check: Check, confession: Option<String>) -> Check {
    let failed = !check.reason.is_empty();
    check.unless(confession.filter(|_| failed))
}
