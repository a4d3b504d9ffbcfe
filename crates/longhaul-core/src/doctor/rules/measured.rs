//! Rules for active measurements: the number of cores that the target needs, and the rate of the
//! disks.

use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, problem};
use crate::doctor::{HostFacts, Target};
use crate::result::Measurement;
use crate::units::Rate;

/// Returns the target rate divided by `rate`.
fn times(rate: Rate, target: &Target) -> f64 {
    target.rate.bps() as f64 / rate.bps().max(1) as f64
}

/// Judges memory, hashes and cipher, which are measured per core; a copy uses several cores.
pub(super) fn core(one: &Measurement, host: &HostFacts, target: &Target) -> RuleAnswer {
    let Some(rate) = one.throughput_bps else { return NOTHING };
    let cores = times(rate, target);
    let online = host.processors.online.clone().unwrap_or(1);
    match cores {
        cores if cores <= f64::from(online) / 2.0 => fine("rate"),
        cores if cores <= f64::from(online) => advice("rate"),
        _ => problem("rate"),
    }
    .with("measurement", one.title.as_str())
    .with("measured_bps", rate)
    .with("busy_cores", cores)
    .with("cores", online)
    .with("target_bps", target.rate)
    .answer()
}

/// Judges a disk, measured with one operation at a time.
pub(super) fn disk(one: &Measurement, _: &HostFacts, target: &Target) -> RuleAnswer {
    let Some(rate) = one.throughput_bps else { return NOTHING };
    let judgement = if rate >= target.rate { fine("rate") } else { problem("rate") };
    judgement
        .with("measurement", one.title.as_str())
        .with("measured_bps", rate)
        .with("note", one.note.as_str())
        .with("disks", times(rate, target).ceil() as u64)
        .with("target_bps", target.rate)
        .answer()
}

/// Judges one connection within the host, whose two ends share the cores.
pub(super) fn loopback(one: &Measurement, _: &HostFacts, target: &Target) -> RuleAnswer {
    let Some(rate) = one.throughput_bps else { return NOTHING };
    let judgement = if rate >= target.rate { fine("enough") } else { advice("slow") };
    judgement
        .with("measured_bps", rate)
        .with("note", one.note.as_str())
        .with("connections", times(rate, target).ceil() as u64)
        .with("target_bps", target.rate)
        .answer()
}
