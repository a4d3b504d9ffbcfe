//! Checks of the layer of the rate, of cross traffic and of slots.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged, VERDICT_DEVIATIONS, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;

/// Runs the checks.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    twice(|| vec![rate_layer(lab)]).into_iter().for_each(&mut *each);
    twice(|| vec![cross_traffic(lab)]).into_iter().for_each(&mut *each);
    slots(lab, each);
}

/// Datagrams of 250 bytes use 350 bytes of the rate.
fn rate_layer(lab: &mut dyn Lab) -> Check {
    const BPS: f64 = 1e7 * 250.0 / 350.0;
    const TOLERANCE: f64 = 0.01;
    let options = "--up-rate 10M --up-rate-layer wire:100 --up-queue 50ms";
    let case = Case::new("rate with 100 bytes per datagram, over 1 s", options, CheckUnit::Bps);
    let stream = Stream {
        payload_bytes: 222,
        verify: false,
        ..Stream::single(9_600, Duration::from_micros(240))
    };
    let (probe, outcome) = match lab.send(options, false, stream) {
        Ok(measured) => measured,
        Err(reason) => return case.not_done(reason.to_string()),
    };
    let Some(last) = probe.window_rates_bps.last() else {
        return case.not_done("less than a second of it arrived");
    };
    case.near(BPS, *last, BPS * TOLERANCE, probe.window_rates_bps.len() as u64)
        .beside(outcome.machine, Noise::of(&outcome.machine).rates(BPS, TOLERANCE))
}

/// The stream and the cross traffic exceed the rate by a tenth, and the queue is large enough for
/// both. The delay at the end is that of the excess, from which the rate of the cross traffic
/// follows.
fn cross_traffic(lab: &mut dyn Lab) -> Check {
    const BPS: f64 = 3e8;
    const CROSS_BPS: f64 = 1.5e8;
    const PACKET_BITS: f64 = 1500.0 * 8.0;
    const DATAGRAMS: u64 = 45_000;
    const INTERVAL: Duration = Duration::from_nanos(66_667);
    let options = "--up-rate 300M --up-cross 150M --up-queue 2s --mtu 1500";
    let case = Case::new("cross traffic of 150 Mb/s", options, CheckUnit::Bps);
    let stream = Stream { payload_bytes: 1472, ..Stream::single(DATAGRAMS, INTERVAL) };
    let (probe, outcome) = match lab.send(options, false, stream) {
        Ok(measured) => measured,
        Err(reason) => return case.not_done(reason.to_string()),
    };
    let delay = probe.delay.clone().unwrap_or_default();
    let seconds = probe.sent.seconds;
    let own = DATAGRAMS as f64 * PACKET_BITS / seconds;
    let measured = BPS * (1.0 + delay.quantile_ms(1.0) / 1e3 / seconds) - own;
    // Packets arrive as a Poisson process.
    let packets = CROSS_BPS * seconds / PACKET_BITS;
    let tolerance = CROSS_BPS * VERDICT_DEVIATIONS / packets.sqrt();
    let off = tolerance + BPS * Noise::of(&outcome.machine).at(1.0) / 1e3 / seconds;
    case.near(CROSS_BPS, measured, tolerance, probe.arrivals)
        .beside(outcome.machine, CROSS_BPS - off..=CROSS_BPS + off)
}

/// Slots of a constant size carry 4 datagrams, and slots of a constant interval 100 datagrams. The
/// load exceeds both.
pub(in super::super) fn slots(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    const IP_BYTES: f64 = 128.0;
    // The relative standard deviation of the mean interval of 3900 slots is 0.19 %.
    for (name, options, per_second, tolerance) in [
        ("slots of 4 datagrams", "--up-slot 400us-600us:4", 8000.0, 0.0072),
        ("slots of 12,800 bytes", "--up-slot 10ms-10ms:1000:12800", 10_000.0, 0.012),
    ] {
        let case = Case::new(format!("{name}, rate"), options, CheckUnit::Bps);
        let bps = per_second * IP_BYTES * 8.0;
        let check = || match lab.send(options, false, slot_stream()) {
            Err(reason) => vec![case.not_done(reason.to_string())],
            Ok((probe, outcome)) => {
                let checked = case.near(bps, probe.rate_bps, bps * tolerance, probe.arrivals);
                let explained = Noise::of(&outcome.machine).rates(bps, tolerance);
                vec![checked.beside(outcome.machine, explained)]
            }
        };
        twice(check).into_iter().for_each(&mut *each);
    }
}

fn slot_stream() -> Stream {
    Stream { verify: false, ..Stream::single(15_600, Duration::from_micros(66)) }
}
