//! Determines the limits of a copy from the steps.

use super::cause::Cause;
use super::{cures, disks, path, whole};
use crate::result::{Bottleneck, Diagnosis, DiagnosisStep, End, Resource, StepReport};
use crate::units::Rate;

/// Fills in the limits of the copy and the sentence with the answer.
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
            sentence: format!("limited by {}", cause.sentence),
            cures: cures::of(&diagnosis, cause),
        }
    });
    diagnosis.limits = limits.collect();
    diagnosis.sentence = sentence(&diagnosis);
    diagnosis
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
    let together = whole::cause(diagnosis, &parts);
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

fn sentence(diagnosis: &Diagnosis) -> String {
    let Some(first) = diagnosis.limits.first() else {
        return match diagnosis.gaps.first() {
            Some(gap) => {
                format!("The limit of the copy is unknown: {}: {}", gap.what, gap.why)
            }
            None => "The limit of the copy is unknown: too little was measured".to_owned(),
        };
    };
    let whole = diagnosis.rate(DiagnosisStep::Whole);
    let reached = match (whole, diagnosis.interrupted) {
        (Some(rate), _) => format!("The copy reaches {rate}, {}", first.sentence),
        (None, true) => {
            format!("According to the measurements so far, a copy is {}", first.sentence)
        }
        (None, false) => format!("A copy would be {}", first.sentence),
    };
    let next = diagnosis.limits.iter().skip(1).find(|next| next.resource != first.resource);
    match (next, first.gain) {
        (Some(next), Some(gain)) if gain >= WORTH_TELLING => format!(
            "{reached}. Without that, {} would be next at {}: {gain:.1} times as fast",
            article(next.resource),
            next.allows_bps
        ),
        _ => reached,
    }
}

/// The smallest reported gain; shorter steps vary by more.
const WORTH_TELLING: f64 = 1.15;

fn article(resource: Resource) -> String {
    match resource {
        Resource::SmallFiles
        | Resource::FileAllocation
        | Resource::Loss
        | Resource::Encryption
        | Resource::Contention => resource.to_string(),
        _ => format!("the {resource}"),
    }
}

/// The upper bound of the target rate.
const MOST: Rate = Rate::from_bps(100_000_000_000);
/// The lower bound of the target rate.
const LEAST: Rate = Rate::from_bps(10_000_000_000);

/// Returns the rate that the path's settings should allow: the rate of the slower disk, limited to
/// 10 to 100 Gb/s.
pub fn goal(steps: &[StepReport]) -> Rate {
    let alone =
        steps.iter().filter(|one| matches!(one.step, DiagnosisStep::Read | DiagnosisStep::Write));
    let slower = alone.filter_map(|one| one.throughput_bps).min();
    slower.unwrap_or(LEAST).clamp(LEAST, MOST)
}
