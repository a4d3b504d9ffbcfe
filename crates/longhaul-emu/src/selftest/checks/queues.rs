//! Checks of the queue managements and of queues per flow.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;
use super::super::probe::ProbeReport;

/// The rate of the bottleneck in these checks.
const BPS: f64 = 1e8;

/// Runs the checks.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    for name in ["codel", "fq-codel"] {
        twice(|| codel(lab, name)).into_iter().for_each(&mut *each);
    }
    twice(|| vec![red(lab)]).into_iter().for_each(&mut *each);
    for name in ["pie", "dualpi2"] {
        twice(|| vec![controlled(lab, name)]).into_iter().for_each(&mut *each);
    }
    twice(|| fair_queues(lab)).into_iter().for_each(each);
}

/// Returns datagrams of 1500 bytes at 120 Mb/s for `seconds`.
fn overload(seconds: f64) -> Stream {
    let interval = Duration::from_micros(100);
    let datagrams = (seconds / interval.as_secs_f64()) as u64;
    Stream { payload_bytes: 1472, ..Stream::single(datagrams, interval) }
}

/// Datagram n arrives after 0.1 n ms and begins to leave after 0.12 n ms, so it has waited for
/// 0.02 n ms. The first one that has waited for the target of 50 ms leaves after 300 ms, the first
/// drop follows after the interval of 100 ms, and the next ones after the interval divided by the
/// square root of their number (RFC 8289, section 5.2).
pub(in super::super) fn codel(lab: &mut dyn Lab, name: &str) -> Vec<Check> {
    const TARGET_MS: f64 = 50.0;
    const INTERVAL_MS: f64 = 100.0;
    const SERVICE_MS: f64 = 0.12;
    const ARRIVAL_MS: f64 = 0.1;
    const SECONDS: f64 = 2.0;
    let options = format!(
        "--up-rate 100M --up-queue 1s --mtu 1500 --up-aqm {name}:{TARGET_MS}ms:{INTERVAL_MS}ms"
    );
    let first_case = Case::new(format!("{name}, first drop"), &options, CheckUnit::Count);
    let count_case = Case::new(format!("{name}, drops"), &options, CheckUnit::Count);
    let not_done = |reason: String| -> Vec<Check> {
        [&first_case, &count_case].map(|case| case.not_done(reason.clone())).into()
    };
    let (probe, outcome) = match lab.send(&options, false, overload(SECONDS)) {
        Ok(measured) => measured,
        Err(reason) => return not_done(reason.to_string()),
    };
    let Some(first) = probe.first_lost.first() else {
        return not_done("nothing was dropped".to_owned());
    };
    let first_ms =
        TARGET_MS / (SERVICE_MS / ARRIVAL_MS - 1.0) * (SERVICE_MS / ARRIVAL_MS) + INTERVAL_MS;
    let expected = first_ms / SERVICE_MS;
    let noise_ms = Noise::of(&outcome.machine).at(1.0);
    let off = 20.0 + noise_ms / ARRIVAL_MS;
    let end_ms = SECONDS * 1e3 / ARRIVAL_MS * SERVICE_MS;
    let drops = drops_within(end_ms - first_ms, INTERVAL_MS);
    let tolerance = drops * 0.03;
    // A drop every INTERVAL / sqrt(drops).
    let off_drops = tolerance + noise_ms * drops.sqrt() / INTERVAL_MS;
    vec![
        first_case
            .near(expected, *first as f64, 20.0, probe.sent.datagrams)
            .beside(outcome.machine, expected - off..=expected + off),
        count_case
            .near(drops, probe.lost as f64, tolerance, probe.sent.datagrams)
            .beside(outcome.machine, drops - off_drops..=drops + off_drops)
            .counted(probe.lost, outcome.counts.aqm_dropped.segments),
    ]
}

/// Returns the drops from the first one until `span_ms` after it.
fn drops_within(span_ms: f64, interval_ms: f64) -> f64 {
    let (mut drops, mut at) = (1.0_f64, 0.0);
    loop {
        at += interval_ms / drops.sqrt();
        if at > span_ms {
            return drops;
        }
        drops += 1.0;
    }
}

/// RED drops a sixth of the load. Distances between drops are uniform from 1 to 1/p - 1, so 1/(2p)
/// is 6 and p is 1/12. The mean queue has this p.
pub(in super::super) fn red(lab: &mut dyn Lab) -> Check {
    const MIN_MS: f64 = 40.0;
    const MAX_MS: f64 = 80.0;
    const PROBABILITY: f64 = 0.18;
    const TOLERANCE_MS: f64 = 0.5;
    let options = format!(
        "--up-rate 100M --up-queue 500ms --mtu 1500 --up-aqm red:{MIN_MS}ms:{MAX_MS}ms:{PROBABILITY}"
    );
    let case = Case::new("RED, median delay", &options, CheckUnit::Ms);
    let expected = MIN_MS + (MAX_MS - MIN_MS) / (12.0 * PROBABILITY);
    settled(lab, &case, expected, TOLERANCE_MS)
}

/// Both controllers raise the probability of drops until the delay is the target.
pub(in super::super) fn controlled(lab: &mut dyn Lab, name: &str) -> Check {
    const TARGET_MS: f64 = 40.0;
    const TOLERANCE_MS: f64 = 1.0;
    let options =
        format!("--up-rate 100M --up-queue 500ms --mtu 1500 --up-aqm {name}:{TARGET_MS}ms");
    let case = Case::new(format!("{name}, median delay"), &options, CheckUnit::Ms);
    settled(lab, &case, TARGET_MS, TOLERANCE_MS)
}

/// Checks the median delay of a queue that is overloaded for longer than its management needs to
/// become steady.
fn settled(lab: &mut dyn Lab, case: &Case, expected_ms: f64, tolerance_ms: f64) -> Check {
    const SECONDS: f64 = 8.0;
    match lab.send(&case.options, false, overload(SECONDS)) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let delay = probe.delay.unwrap_or_default();
            let off = tolerance_ms + Noise::of(&outcome.machine).at(0.5);
            case.near(expected_ms, delay.quantile_ms(0.5), tolerance_ms, delay.samples)
                .beside(outcome.machine, expected_ms - off..=expected_ms + off)
        }
    }
}

/// Two flows with different loads and sizes of datagrams get the same rate, and the flow below its
/// share loses nothing.
pub(in super::super) fn fair_queues(lab: &mut dyn Lab) -> Vec<Check> {
    const TOLERANCE: f64 = 0.015;
    /// The second whole second is compared: both streams send throughout it.
    const SECONDS: f64 = 2.4;
    let options = "--up-rate 50M --up-queue 100ms --mtu 1500 --up-aqm fq-codel";
    let cases = ["1500", "600"].map(|bytes| {
        Case::new(format!("fq-codel, share of datagrams of {bytes} bytes"), options, CheckUnit::Bps)
    });
    let streams = [(1472, 200), (572, 100)].map(|(payload_bytes, micros)| {
        let datagrams = (SECONDS * 1e6 / micros as f64) as u64;
        let stream = Stream::single(datagrams, Duration::from_micros(micros));
        Stream { payload_bytes, verify: false, ..stream }
    });
    let outcome = match lab.send_all(options, false, &streams) {
        Ok(outcome) => outcome,
        Err(reason) => return cases.map(|case| case.not_done(reason.to_string())).into(),
    };
    let share = BPS / 4.0;
    let check = |(case, probe): (&Case, &ProbeReport)| {
        // If almost nothing of a stream arrives, its rate has no second interval.
        let rate = probe.window_rates_bps.get(1).copied().unwrap_or(probe.rate_bps);
        case.near(share, rate, share * TOLERANCE, probe.arrivals)
            .beside(outcome.machine, Noise::of(&outcome.machine).rates(share, TOLERANCE))
    };
    cases.iter().zip(&outcome.probes).map(check).collect()
}
