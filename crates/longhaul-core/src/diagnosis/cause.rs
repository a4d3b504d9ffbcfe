//! Possible limits of a copy, and the thresholds by which they are recognized.

use crate::result::{
    BusyThread, CopyEvidence, Diagnosis, DiagnosisStep, End, Evidence, Resource, StepRound,
};
use crate::units::Rate;

/// A resource that limits a part of the copy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cause {
    pub(super) resource: Resource,
    pub(super) end: Option<End>,
    /// The step that shows the limit.
    pub(super) step: DiagnosisStep,
    /// The rate that the resource allows.
    pub(super) allows: Rate,
    /// True if a CPU quota throttles the process of `end`.
    pub(super) by_quota: bool,
    pub(super) evidence: Evidence,
}

/// The percentage of time above which a thread is CPU-bound: the sum of running and waiting for its
/// core. Such a thread waits for almost nothing else.
pub(super) const CPU_BOUND_PERCENT: f64 = 80.0;
/// A thread that waits for a core for more than this percentage of the time lacks CPU, even if it
/// sleeps at other times: it sleeps only after it has caught up.
pub(super) const WAITING_PERCENT: f64 = 40.0;
/// The share of time above which throttling by a CPU quota is the limit.
pub(super) const THROTTLED: f64 = 0.2;
/// The busy share above which a host's processors are fully loaded.
pub(super) const HOST_FULL: f64 = 0.95;
/// The mean file size in bytes below which the cost per file exceeds the cost of its bytes: at 64
/// KiB a disk of 1 GB/s would have to create 15,000 files per second.
pub(super) const SMALL_FILE_BYTES: u64 = 256 << 10;

/// Returns whether a thread lacks processor time.
pub(super) fn is_bound(thread: &BusyThread) -> bool {
    thread.load_percent() >= CPU_BOUND_PERCENT || thread.waiting_percent >= WAITING_PERCENT
}

/// Returns whether the copied files are small.
pub(super) fn are_small(diagnosis: &Diagnosis) -> bool {
    diagnosis.subset.files > 1 && diagnosis.subset.mean_bytes() < SMALL_FILE_BYTES
}

/// Returns the median round of a step.
pub(super) fn round(diagnosis: &Diagnosis, step: DiagnosisStep) -> Option<&StepRound> {
    diagnosis.step(step)?.median()
}

/// Returns the round nearest to the step's median that has the copy's own report. A round that the
/// time limit ended has none.
pub(super) fn round_with_account(
    diagnosis: &Diagnosis,
    step: DiagnosisStep,
) -> Option<(&StepRound, &CopyEvidence)> {
    let report = diagnosis.step(step)?;
    let median = report.throughput_bps?.bps();
    let accounts = report.rounds.iter().filter_map(|round| Some((round, round.copy.as_deref()?)));
    accounts.min_by_key(|(round, _)| round.throughput_bps.bps().abs_diff(median))
}

/// Returns the share of a round in which a quota throttled the process of `end`.
pub(super) fn throttled(round: &StepRound, end: End) -> f64 {
    let host = match end {
        End::Sender => round.source_host,
        End::Receiver => round.sink_host,
    };
    host.map_or(0.0, |host| host.throttled)
}

/// Returns the CPU resource of `end`.
pub(super) fn cpu_of(end: End) -> Resource {
    match end {
        End::Sender => Resource::SenderCpu,
        End::Receiver => Resource::ReceiverCpu,
    }
}
