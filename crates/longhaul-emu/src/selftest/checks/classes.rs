//! Checks of classes of traffic and their priorities.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged, Tallies, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;

/// Runs the checks. The class has the packets of the second stream.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    twice(|| delays(lab)).into_iter().for_each(&mut *each);
    losses(lab, each);
    twice(|| rates(lab)).into_iter().for_each(&mut *each);
    twice(|| priorities(lab)).into_iter().for_each(each);
}

/// Each stream has the delay of its class.
fn delays(lab: &mut dyn Lab) -> Vec<Check> {
    let options = "--up-delay 10ms --up-class 'udp dport 5212: delay 30ms'";
    let cases = [("other traffic", 10.0), ("the class", 30.0)].map(|(of, delay_ms)| {
        (
            Case::new(
                format!("class with a delay of 30 ms, delay of {of}"),
                options,
                CheckUnit::Ms,
            ),
            delay_ms,
        )
    });
    let stream = Stream::single(300, Duration::from_micros(2300));
    let outcome = match lab.send_all(options, false, &[stream, stream]) {
        Ok(outcome) => outcome,
        Err(reason) => return cases.map(|(case, _)| case.not_done(reason.to_string())).into(),
    };
    let checks = cases.iter().zip(&outcome.probes).map(|((case, delay_ms), probe)| {
        let delay = probe.delay.clone().unwrap_or_default();
        let range = (delay_ms - 0.01, delay_ms + 0.1);
        let latest = range.1 + Noise::of(&outcome.machine).at(0.5);
        case.between((*delay_ms, delay.quantile_ms(0.5)), range, delay.samples)
            .beside(outcome.machine, range.0..=latest)
    });
    checks.collect()
}

/// The class loses its share, and the other traffic nothing.
fn losses(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    const RATE: f64 = 0.1;
    let options = format!("--up-class 'udp dport 5212: loss {RATE}'");
    let own = Case::new("class with a loss of 0.1", &options, CheckUnit::Share);
    let other = Case::new("class with a loss of 0.1, other traffic", &options, CheckUnit::Count);
    let streams = [Stream::single(1000, Duration::from_micros(500)), Stream::many(250_000)];
    let outcome = match lab.send_all(&options, false, &streams) {
        Ok(outcome) => outcome,
        Err(reason) => {
            return [own, other]
                .into_iter()
                .for_each(|case| each(case.not_done(reason.to_string())));
        }
    };
    let [plain, class] = &outcome.probes[..] else {
        return each(own.not_done("a probe did not report"));
    };
    let emulator = outcome.counts.lost.segments;
    each(own.share(RATE, Tallies { counted: class.lost, of: class.sent.datagrams, emulator }));
    each(other.none("lost", plain.lost, plain.sent.datagrams));
}

/// A class with a rate has its own queue, and the other traffic keeps the rate of the link.
fn rates(lab: &mut dyn Lab) -> Vec<Check> {
    let options = "--up-rate 50M --mtu 1500 --up-class 'udp dport 5212: rate 20M'";
    two_rates(lab, options, [("other traffic", 5e7), ("the class", 2e7)], [200, 500])
}

/// The class with priority has all of its load, and the other traffic the rest.
fn priorities(lab: &mut dyn Lab) -> Vec<Check> {
    let options = "--up-rate 50M --mtu 1500 --up-class 'udp dport 5212: priority 7'";
    two_rates(lab, options, [("other traffic", 2e7), ("the class with priority", 3e7)], [200, 400])
}

/// Checks the rates, given by name, of two streams of datagrams of 1500 bytes with these intervals
/// in microseconds.
fn two_rates(
    lab: &mut dyn Lab,
    options: &str,
    rates: [(&str, f64); 2],
    micros: [u64; 2],
) -> Vec<Check> {
    const TOLERANCE: f64 = 0.01;
    /// The second whole second is compared: both streams send throughout it.
    const SECONDS: f64 = 2.4;
    let kind = if options.contains("priority") { "priority" } else { "rate" };
    let cases = rates.map(|(of, bps)| {
        (Case::new(format!("class with a {kind}, rate of {of}"), options, CheckUnit::Bps), bps)
    });
    let streams = micros.map(|micros| {
        let datagrams = (SECONDS * 1e6 / micros as f64) as u64;
        let stream = Stream::single(datagrams, Duration::from_micros(micros));
        Stream { payload_bytes: 1472, verify: false, ..stream }
    });
    let outcome = match lab.send_all(options, false, &streams) {
        Ok(outcome) => outcome,
        Err(reason) => return cases.map(|(case, _)| case.not_done(reason.to_string())).into(),
    };
    let checks = cases.iter().zip(&outcome.probes).map(|((case, bps), probe)| {
        // If almost nothing of a stream arrives, its rate has no second interval.
        let rate = probe.window_rates_bps.get(1).copied().unwrap_or(probe.rate_bps);
        case.near(*bps, rate, bps * TOLERANCE, probe.arrivals)
            .beside(outcome.machine, Noise::of(&outcome.machine).rates(*bps, TOLERANCE))
    });
    checks.collect()
}
