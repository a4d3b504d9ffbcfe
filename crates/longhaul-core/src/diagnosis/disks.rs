//! Limits of the disks, each measured separately.

use super::cause::{
    Cause, THROTTLED, are_small, cpu_of, is_bound, name_of, round, thread_words, throttled,
};
use crate::result::{Diagnosis, DiagnosisStep, End, Resource, StepRound};
use crate::units::Bytes;

/// The least ratio of the rates of overwriting and of writing new files that shows a limit by the
/// allocation of space.
const ALLOCATION: f64 = 1.6;

/// Returns the limit of reading at the source or writing at the sink; `None` if it was not
/// measured.
pub(super) fn cause(diagnosis: &Diagnosis, end: End) -> Option<Cause> {
    let (step, disk) = match end {
        End::Sender => (DiagnosisStep::Read, Resource::SourceDisk),
        End::Receiver => (DiagnosisStep::Write, Resource::SinkDisk),
    };
    // A rate of zero means that nothing was completed in time, so it gives no information.
    let allows = diagnosis.rate(step).filter(|rate| rate.bps() > 0)?;
    let measured = round(diagnosis, step)?;
    let by_quota = throttled(measured, end) >= THROTTLED;
    let (resource, sentence) = resource(diagnosis, measured, end, disk);
    Some(Cause { resource, end: Some(end), step, allows, by_quota, sentence })
}

fn resource(
    diagnosis: &Diagnosis,
    round: &StepRound,
    end: End,
    disk: Resource,
) -> (Resource, String) {
    let (name, verb) = match end {
        End::Sender => (name_of(end), "read"),
        End::Receiver => (name_of(end), "written"),
    };
    let rate = round.throughput_bps;
    let held = throttled(round, end);
    if held >= THROTTLED {
        let sentence = format!(
            "the {name}'s processors: its files are {verb} at {rate} by a process that the CPU quota \
             of its control group throttles for {:.0} % of the time",
            100.0 * held
        );
        return (cpu_of(end), sentence);
    }
    // Creating and opening files takes processor time, too.
    if are_small(diagnosis) {
        let mean = Bytes::new(diagnosis.sample.mean_bytes());
        let seconds = round.seconds.max(f64::MIN_POSITIVE);
        let sentence = format!(
            "small files: {:.0} files per second are {verb} at the {name} alone, which at {mean} \
             each is {rate}",
            round.files as f64 / seconds
        );
        return (Resource::SmallFiles, sentence);
    }
    let thread = round.alone.as_ref().and_then(|alone| alone.end.busiest);
    if let Some(thread) = thread.filter(is_bound) {
        let sentence = format!(
            "the {name}'s processors: its files are {verb} alone at {rate}, and {}",
            thread_words(&thread)
        );
        return (cpu_of(end), sentence);
    }
    let overwrite = round.alone.as_ref().and_then(|alone| alone.overwrite_bps);
    if let Some(overwrite) = overwrite.filter(|_| end == End::Receiver)
        && overwrite.bps() as f64 >= ALLOCATION * rate.bps() as f64
    {
        let kind = diagnosis.ends.sink.as_ref().and_then(|sink| sink.file_system.clone());
        let kind = kind.unwrap_or_else(|| "file system".to_owned());
        let sentence = format!(
            "block allocation in the sink's {kind}: new files are written at {rate}, allocated blocks \
             at {overwrite}"
        );
        return (Resource::FileAllocation, sentence);
    }
    let device = diagnosis.ends.of(end).and_then(|view| view.device.clone());
    let device = device.map_or(String::new(), |device| format!(" ({device})"));
    let sentence = format!(
        "the {name}'s disk{device}: its files are {verb} alone, without a network, at {rate}"
    );
    (disk, sentence)
}
