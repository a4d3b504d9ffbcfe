use crate::result::{BusyThread, CopyEvidence, Diagnosis, End, Resource, Rung, RungRound};
use crate::units::Rate;

/// Something that limits a part of the copy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cause {
    pub(super) resource: Resource,
    pub(super) end: Option<End>,
    /// The rung that shows it.
    pub(super) rung: Rung,
    /// What it lets through.
    pub(super) allows: Rate,
    pub(super) sentence: String,
}

/// A thread that runs or waits for its core this much of the time hardly waits for anything else.
pub(super) const CPU_BOUND_PERCENT: f64 = 80.0;
/// A thread that waits for a core for this much of the time is short of one, whatever it does with
/// the rest: it sleeps only once it has caught up.
pub(super) const WAITING_PERCENT: f64 = 40.0;
/// The share of the time in which a quota holds a process back from which on it is the limit.
pub(super) const THROTTLED: f64 = 0.2;
/// A host whose processors are used for this share of the time has no more to give.
pub(super) const HOST_FULL: f64 = 0.95;
/// Files of less cost more for themselves than for their bytes: at 64 KiB a disk of 1 GB/s would
/// have to make 15,000 of them in a second.
pub(super) const SMALL_FILE_BYTES: u64 = 256 << 10;

/// Whether a thread is short of processor time.
pub(super) fn is_bound(thread: &BusyThread) -> bool {
    thread.load_percent() >= CPU_BOUND_PERCENT || thread.waiting_percent >= WAITING_PERCENT
}

/// Whether what is copied is small files.
pub(super) fn are_small(diagnosis: &Diagnosis) -> bool {
    diagnosis.sample.files > 1 && diagnosis.sample.mean_bytes() < SMALL_FILE_BYTES
}

/// The median round of a rung.
pub(super) fn round(diagnosis: &Diagnosis, rung: Rung) -> Option<&RungRound> {
    diagnosis.rung(rung)?.median()
}

/// The round of a copy nearest to the rung's median that has the copy's account: one that was cut
/// short has none.
pub(super) fn told(diagnosis: &Diagnosis, rung: Rung) -> Option<(&RungRound, &CopyEvidence)> {
    let report = diagnosis.rung(rung)?;
    let median = report.throughput_bps?.bps();
    let accounts = report.rounds.iter().filter_map(|round| Some((round, round.copy.as_deref()?)));
    accounts.min_by_key(|(round, _)| round.throughput_bps.bps().abs_diff(median))
}

/// The share of a round in which a quota held the process of `end` back.
pub(super) fn throttled(round: &RungRound, end: End) -> f64 {
    let host = match end {
        End::Sender => round.source_host,
        End::Receiver => round.sink_host,
    };
    host.map_or(0.0, |host| host.throttled)
}

/// The resource that the processors of `end` are.
pub(super) fn cpu_of(end: End) -> Resource {
    match end {
        End::Sender => Resource::SenderCpu,
        End::Receiver => Resource::ReceiverCpu,
    }
}

/// "the source" or "the sink".
pub(super) fn name_of(end: End) -> &'static str {
    match end {
        End::Sender => "source",
        End::Receiver => "sink",
    }
}

/// How a thread spent its time, for a sentence.
pub(super) fn thread_words(thread: &BusyThread) -> String {
    let role = thread.role.as_str();
    let (ran, waited) = (thread.running_percent, thread.waiting_percent);
    format!(
        "its busiest {role} thread ran for {ran:.0} % of the time and waited for a core for {waited:.0} %"
    )
}
