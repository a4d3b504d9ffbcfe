//! Checks of the queue, the policer and outages.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;

/// Checks the delay of a full queue, the rate and burst of a policer, and the share of the time for
/// which a link is down.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    twice(|| vec![full_queue(lab)]).into_iter().for_each(&mut *each);
    twice(|| policer(lab)).into_iter().for_each(&mut *each);
    twice(|| vec![outage(lab)]).into_iter().for_each(each);
}

/// The rate is 100 Mb/s and the load 120 Mb/s, so the queue is full after 0.3 s of 1.5 s, and the
/// 90th percentile of the delay is that of a full queue, less up to two datagrams.
fn full_queue(lab: &mut dyn Lab) -> Check {
    const QUEUE_MS: f64 = 50.0;
    const TOLERANCE_MS: f64 = 0.5;
    let options = format!("--up-rate 100M --up-queue {QUEUE_MS}ms");
    let case = Case::new("full queue of 50 ms, delay of 90 %", &options, CheckUnit::Ms);
    let stream =
        Stream { payload_bytes: 1472, ..Stream::single(15_000, Duration::from_micros(100)) };
    match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let delay = probe.delay.unwrap_or_default();
            let measured = delay.quantile_ms(0.9);
            let off = TOLERANCE_MS + Noise::of(&outcome.machine).at(0.9);
            case.near(QUEUE_MS, measured, TOLERANCE_MS, delay.samples)
                .beside(outcome.machine, QUEUE_MS - off..=QUEUE_MS + off)
        }
    }
}

/// The load of 120 Mb/s exceeds the rate of 100 Mb/s by 2.5 MB/s, so a burst of 1 MB lasts for 0.4 s
/// of 2.4 s. In all, the burst and the bytes of the rate pass.
fn policer(lab: &mut dyn Lab) -> Vec<Check> {
    const BPS: f64 = 1e8;
    const TOLERANCE: f64 = 0.01;
    const BURST_BYTES: f64 = 1e6;
    let options = format!("--up-police 100M:{BURST_BYTES} --mtu 1500");
    let rate = Case::new("policer of 100 Mb/s, last second", &options, CheckUnit::Bps);
    let burst = Case::new("burst of the policer, bytes", &options, CheckUnit::Count);
    let stream = Stream {
        payload_bytes: 1472,
        verify: false,
        ..Stream::single(24_000, Duration::from_micros(100))
    };
    let (probe, outcome) = match lab.send(&options, false, stream) {
        Ok(measured) => measured,
        Err(reason) => return [rate, burst].map(|case| case.not_done(reason.to_string())).into(),
    };
    let Some(last) = probe.window_rates_bps.last() else {
        return [rate, burst].map(|case| case.not_done("less than a second of it arrived")).into();
    };
    let noise = Noise::of(&outcome.machine);
    // The bytes that the rate allows in the time in which the stream arrived.
    let seconds = probe.bytes as f64 * 8.0 / probe.rate_bps;
    let measured = probe.bytes as f64 - BPS / 8.0 * seconds;
    let allowed = BURST_BYTES * 0.02;
    let off = allowed + BPS / 8.0 * noise.at(1.0) / 1e3;
    vec![
        rate.near(BPS, *last, BPS * TOLERANCE, probe.window_rates_bps.len() as u64)
            .beside(outcome.machine, noise.rates(BPS, TOLERANCE)),
        burst
            .near(BURST_BYTES, measured, allowed, probe.arrivals)
            .beside(outcome.machine, BURST_BYTES - off..=BURST_BYTES + off),
    ]
}

/// Ten periods of 200 ms, of which the link is down for 50 ms each.
fn outage(lab: &mut dyn Lab) -> Check {
    const SHARE: f64 = 0.25;
    const TOLERANCE: f64 = SHARE * 0.02;
    let options = "--up-outage 100ms+50ms/200ms";
    let case = Case::new("outage for a quarter of the time", options, CheckUnit::Share);
    match lab.send(options, false, Stream::single(20_000, Duration::from_micros(100))) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let measured = probe.lost as f64 / probe.sent.datagrams as f64;
            // Two edges per 200 ms, at which a late datagram has the wrong fate.
            let off = TOLERANCE + Noise::of(&outcome.machine).distance(2.0 / 200.0);
            case.near(SHARE, measured, TOLERANCE, probe.sent.datagrams)
                .beside(outcome.machine, SHARE - off..=SHARE + off)
        }
    }
}
