//! Rules for active measurements: the number of cores that the target needs, and the rate of the
//! disks.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem};
use crate::doctor::{HostFacts, Target};
use crate::result::Measurement;
use crate::units::Rate;

/// Returns the target rate divided by `rate`.
fn times(rate: Rate, target: &Target) -> f64 {
    target.rate.bps() as f64 / rate.bps().max(1) as f64
}

/// Judges memory, hashes and cipher, which are measured per core; a copy uses several cores.
pub(super) fn core(one: &Measurement, host: &HostFacts, target: &Target) -> Answer {
    let Some(rate) = one.throughput_bps else { return NOTHING };
    let cores = times(rate, target);
    let online = f64::from(host.processors.online.clone().unwrap_or(1));
    let seen = format!("{}: {rate}", one.title);
    let judgement = match cores {
        cores if cores <= online / 2.0 => fine(seen),
        cores if cores <= online => advice(seen),
        _ => problem(seen),
    };
    judgement
        .wanted(format!("no more than half of {online} cores"))
        .why(format!("{} / {rate} = {cores:.1} cores busy with that alone", target.rate))
        .run("longhaul cp --cleartext ...    # verified, but not encrypted")
        .answer()
}

/// Judges a disk, measured with one operation at a time.
pub(super) fn disk(one: &Measurement, _: &HostFacts, target: &Target) -> Answer {
    let Some(rate) = one.throughput_bps else { return NOTHING };
    let seen = format!("{}: {rate}, {}", one.title, one.note);
    let judgement = if rate >= target.rate { fine(seen) } else { problem(seen) };
    judgement
        .wanted(format!("{} or more", target.rate))
        .why(format!(
            "no copy is faster than its disk: {:.0} of these would do, as a RAID without parity",
            times(rate, target).ceil()
        ))
        .run("longhaul cp /dev/zero --size 64G far:/dev/null    # the path without disks")
        .answer()
}

/// Judges one connection within the host, whose two ends share the cores.
pub(super) fn loopback(one: &Measurement, _: &HostFacts, target: &Target) -> Answer {
    let Some(rate) = one.throughput_bps else { return NOTHING };
    let seen = format!("{rate}, {}", one.note);
    if rate >= target.rate {
        return fine(seen).answer();
    }
    let streams = times(rate, target).ceil();
    advice(seen)
        .wanted(format!("{} or more", target.rate))
        .why(format!(
            "both ends of one connection took that on this host; {} / {rate} = {streams} \
             connections, if there are cores for them",
            target.rate
        ))
        .run(format!("longhaul test HOST -P {streams}"))
        .answer()
}
