//! Limits of the whole copy if it is much slower than its slowest part.

use super::cause::{Cause, HOST_FULL, are_small, cpu_of, is_bound, round_with_account};
use super::disks;
use crate::result::{
    CopyEvidence, CopyLimit, Diagnosis, DiagnosisStep, End, EndReport, Evidence, Resource,
};
use crate::units::{Bytes, Rate};

/// The minimum share of the rate of its slowest part at which a whole copy counts as equally fast;
/// short steps vary.
const NEAR: f64 = 0.6;

/// The resources that limit each connection separately.
const PER_CONNECTION: [Resource; 6] = [
    Resource::ReceiverWindow,
    Resource::SenderWindow,
    Resource::Loss,
    Resource::ShallowQueue,
    Resource::CongestionWindow,
    Resource::TcpMemory,
];

/// Returns the limit that the whole copy's report names if it is much slower than `parts`.
pub(super) fn cause(diagnosis: &Diagnosis, parts: &[Cause]) -> Option<Cause> {
    let slowest = parts.first()?;
    let (step, allows) = slowest_copy(diagnosis)?;
    if allows.bps() as f64 >= NEAR * slowest.allows.bps() as f64 {
        return None;
    }
    let of = |resource, end, evidence| {
        Some(Cause { resource, end, step, allows, by_quota: false, evidence })
    };
    if are_small(diagnosis) {
        let files_per_second = diagnosis.step(step)?.files_per_second.unwrap_or(0.0);
        let mean_bytes = Bytes::new(diagnosis.subset.mean_bytes());
        let evidence = Evidence::SmallFiles {
            files_per_second,
            mean_bytes,
            rate_bps: allows,
            slowest_bps: slowest.allows,
        };
        return of(Resource::SmallFiles, None, evidence);
    }
    // Rounds that the time limit ended report no limit.
    let (_, copy) = round_with_account(diagnosis, step)?;
    let known =
        |resources: &[Resource]| parts.iter().find(|part| resources.contains(&part.resource));
    // The copy names the same part, which was faster when measured separately.
    if let Some(part) = known(resources_of(copy.limit)) {
        let is_disk = matches!(part.resource, Resource::SourceDisk | Resource::SinkDisk);
        let shared = if is_disk { disks::shared(diagnosis, allows) } else { None };
        let evidence = shared.unwrap_or_else(|| part.evidence.clone());
        return Some(Cause { allows, step, evidence, ..part.clone() });
    }
    // A limit per connection affects a copy more than a test: the copy starts with fewer
    // connections.
    if PER_CONNECTION.contains(&slowest.resource) {
        return Some(Cause { allows, ..slowest.clone() });
    }
    if let Some((end, evidence)) = full_end(copy) {
        return of(cpu_of(end), Some(end), evidence);
    }
    let evidence = Evidence::Contention { whole_bps: allows, slowest_bps: slowest.allows };
    of(Resource::Contention, None, evidence)
}

/// Returns the resources that the limit of a copy's report stands for.
fn resources_of(limit: Option<CopyLimit>) -> &'static [Resource] {
    match limit {
        Some(CopyLimit::SourceDisk) => &[Resource::SourceDisk],
        Some(CopyLimit::SinkDisk) => &[Resource::SinkDisk, Resource::FileAllocation],
        Some(CopyLimit::Sealing) => &[Resource::Encryption],
        Some(CopyLimit::SendWindow) => &[Resource::SenderWindow],
        Some(CopyLimit::ReceiveWindow) => &[Resource::ReceiverWindow],
        Some(CopyLimit::Loss) => &[Resource::Loss, Resource::ShallowQueue],
        Some(CopyLimit::ShallowQueue) => &[Resource::ShallowQueue, Resource::Loss],
        Some(CopyLimit::Path | CopyLimit::RampUp) => &[
            Resource::LinkRate,
            Resource::ShallowQueue,
            Resource::Loss,
            Resource::ReceiverWindow,
            Resource::SenderWindow,
            Resource::CongestionWindow,
            Resource::TcpMemory,
        ],
        _ => &[],
    }
}

/// Returns the end whose CPU is fully loaded during the whole copy, the sender first.
fn full_end(copy: &CopyEvidence) -> Option<(End, Evidence)> {
    let full = |report: &EndReport| report.end.host_busy.is_some_and(|busy| busy >= HOST_FULL);
    [(End::Sender, &copy.source), (End::Receiver, &copy.sink)].into_iter().find_map(
        |(end, report)| match report.end.busiest.filter(is_bound) {
            Some(thread) => Some((end, Evidence::BusyTogether { thread })),
            None => full(report).then_some((end, Evidence::FullTogether)),
        },
    )
}

/// Returns the whole copy with its rate, or else the slowest partial copy.
fn slowest_copy(diagnosis: &Diagnosis) -> Option<(DiagnosisStep, Rate)> {
    let rate = |step| Some((step, diagnosis.rate(step)?));
    let halves = [DiagnosisStep::ReadSend, DiagnosisStep::SendWrite].into_iter().filter_map(rate);
    rate(DiagnosisStep::Whole).or_else(|| halves.min_by_key(|(_, rate)| *rate))
}
