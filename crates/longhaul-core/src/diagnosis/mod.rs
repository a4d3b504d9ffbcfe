//! Determines from the steps of a diagnosis which resource limits a copy, which would limit it
//! next, and what to do about it.
//!
//! This module is pure: [`judge`] takes a [`Diagnosis`] with filled steps
//! and returns it with its limits, so a recorded diagnosis can be judged again. A copy consists of
//! three parts: reading, the path, writing. A step measures each part separately ([`disks`],
//! [`path`]). The slowest part is the limit, and the evidence of its step names the resource. If
//! the whole copy is much slower than its slowest part, its own report is examined ([`whole_copy`]).
//! `docs/design/diagnosis.md` explains the thresholds and states how often the answer was correct.

mod cause;
mod cures;
mod disks;
mod path;
mod shallow;
mod whole_copy;

use cause::Cause;
pub use shallow::{BoundedPlan, bounded_plan};

use crate::result::{Bottleneck, Diagnosis, DiagnosisStep, End, GainRounds, StepReport};
use crate::units::Rate;

/// Fills in the limits of the copy. Their sentences are empty.
pub fn judge(mut diagnosis: Diagnosis) -> Diagnosis {
    let causes = causes(&diagnosis);
    let limits = causes.iter().enumerate().map(|(at, cause)| {
        // The next limit is a different resource: a remedy removes the same resource in both
        // places.
        let next = causes[at + 1..].iter().find(|next| next.resource != cause.resource);
        let without_bps = next.map(|next| next.allows);
        let gain =
            without_bps.map(|without| without.bps() as f64 / cause.allows.bps().max(1) as f64);
        Bottleneck {
            resource: cause.resource,
            end: cause.end,
            step: cause.step,
            allows_bps: cause.allows,
            without_bps,
            gain,
            gain_rounds: next.and_then(|next| gain_rounds(&diagnosis, cause, next)),
            evidence: Some(cause.evidence.clone()),
            sentence: String::new(),
            cures: cures::of(&diagnosis, cause),
        }
    });
    diagnosis.limits = limits.collect();
    diagnosis.sentence = String::new();
    diagnosis
}

/// Returns the ratio of the rates of `next` and `cause` within each round; `None` if a round measured
/// only one of them: the gain is then a ratio of medians of different rounds.
fn gain_rounds(diagnosis: &Diagnosis, cause: &Cause, next: &Cause) -> Option<GainRounds> {
    let present = measured_by(diagnosis, cause)?;
    let later = measured_by(diagnosis, next)?;
    if present.rounds.len() != later.rounds.len() {
        return None;
    }
    let ratios = present.rounds.iter().map(|round| {
        let other = later.rounds.iter().find(|other| other.number == round.number)?;
        let bps = round.throughput_bps.bps();
        (bps > 0).then(|| other.throughput_bps.bps() as f64 / bps as f64)
    });
    GainRounds::of(&ratios.collect::<Option<Vec<f64>>>()?)
}

/// Returns the step whose median is the rate of `cause`.
fn measured_by<'a>(diagnosis: &'a Diagnosis, cause: &Cause) -> Option<&'a StepReport> {
    let same = |report: &&StepReport| report.throughput_bps == Some(cause.allows);
    diagnosis.step(cause.step).filter(same).or_else(|| diagnosis.steps.iter().find(same))
}

/// Returns the limits, the tightest first. A resource of an end is listed once.
fn causes(diagnosis: &Diagnosis) -> Vec<Cause> {
    let path = path::causes(diagnosis);
    if path.is_empty() {
        // Without a measurement of the path, a slow disk cannot be called the limit.
        return path;
    }
    let mut parts: Vec<Cause> = disks::cause(diagnosis, End::Sender)
        .into_iter()
        .chain(path)
        .chain(disks::cause(diagnosis, End::Receiver))
        .collect();
    parts.sort_by_key(|cause| cause.allows);
    let together = whole_copy::cause(diagnosis, &parts);
    let mut causes: Vec<Cause> = Vec::with_capacity(parts.len() + 1);
    for cause in together.into_iter().chain(parts) {
        let known = |one: &Cause| one.resource == cause.resource && same_end(one.end, cause.end);
        if !causes.iter().any(known) {
            causes.push(cause);
        }
    }
    causes
}

/// Returns whether both limits are at the same end. Small files limit both ends alike.
fn same_end(one: Option<End>, other: Option<End>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// The upper bound of the target rate.
const MOST: Rate = Rate::from_bps(100_000_000_000);
/// The lower bound of the target rate.
const LEAST: Rate = Rate::from_bps(10_000_000_000);

/// Returns the rate that the path's settings should allow: the rate of the slower disk, limited to
/// 10 to 100 Gb/s.
pub fn rate_for_settings(steps: &[StepReport]) -> Rate {
    let disks =
        steps.iter().filter(|one| matches!(one.step, DiagnosisStep::Read | DiagnosisStep::Write));
    let slower = disks.filter_map(|one| one.throughput_bps).min();
    slower.unwrap_or(LEAST).clamp(LEAST, MOST)
}
