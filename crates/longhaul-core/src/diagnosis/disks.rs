//! Limits of the disks, each measured separately.

use super::cause::{Cause, THROTTLED, are_small, cpu_of, is_bound, round, throttled};
use crate::result::{Diagnosis, DiagnosisStep, End, Evidence, Resource, StepRound};
use crate::units::{Bytes, Rate};

/// The minimum ratio of the rates of overwriting and of writing new files that shows a limit by the
/// allocation of space.
const ALLOCATION: f64 = 1.6;

/// The factor up to which a copy over one disk can exceed the rate of reading and writing in turn.
const OVERLAP: f64 = 1.3;

/// Returns the evidence that the disk of both ends limits a copy at the rate `whole`; `None` if the
/// ends differ, or if the disk is faster.
pub(super) fn shared(diagnosis: &Diagnosis, whole: Rate) -> Option<Evidence> {
    let (source, sink) = (diagnosis.ends.of(End::Sender)?, diagnosis.ends.of(End::Receiver)?);
    let is_same = source.boot.is_some()
        && source.boot == sink.boot
        && source.device == sink.device
        && source.file_system == sink.file_system;
    let device = source.device.clone().filter(|_| is_same)?;
    let read_bps = diagnosis.rate(DiagnosisStep::Read).filter(|rate| rate.bps() > 0)?;
    let write_bps = diagnosis.rate(DiagnosisStep::Write).filter(|rate| rate.bps() > 0)?;
    let in_turn = 1.0 / (1.0 / read_bps.bps() as f64 + 1.0 / write_bps.bps() as f64);
    let in_turn_bps = Rate::from_bps(in_turn as u64);
    (whole.bps() as f64 <= OVERLAP * in_turn).then_some(Evidence::SharedDisk {
        device,
        read_bps,
        write_bps,
        in_turn_bps,
    })
}

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
    let (resource, evidence) = resource(diagnosis, (measured, allows), end, disk);
    Some(Cause { resource, end: Some(end), step, allows, by_quota, evidence })
}

fn resource(
    diagnosis: &Diagnosis,
    (round, rate_bps): (&StepRound, Rate),
    end: End,
    disk: Resource,
) -> (Resource, Evidence) {
    let quota = throttled(round, end);
    if quota >= THROTTLED {
        let throttled_percent = 100.0 * quota;
        return (cpu_of(end), Evidence::ThrottledFiles { rate_bps, throttled_percent });
    }
    // Creating and opening files takes processor time, too.
    if are_small(diagnosis) {
        let mean_bytes = Bytes::new(diagnosis.subset.mean_bytes());
        let files_per_second = round.files as f64 / round.seconds.max(f64::MIN_POSITIVE);
        let evidence = Evidence::SmallFilesAlone { files_per_second, mean_bytes, rate_bps };
        return (Resource::SmallFiles, evidence);
    }
    let thread = round.disk.as_ref().and_then(|report| report.end.busiest);
    if let Some(thread) = thread.filter(is_bound) {
        return (cpu_of(end), Evidence::BusyFilesThread { rate_bps, thread });
    }
    let overwrite = round.disk.as_ref().and_then(|report| report.overwrite_bps);
    if let Some(overwrite_bps) = overwrite.filter(|_| end == End::Receiver)
        && overwrite_bps.bps() as f64 >= ALLOCATION * round.throughput_bps.bps() as f64
    {
        let file_system = diagnosis.ends.sink.as_ref().and_then(|sink| sink.file_system.clone());
        let new_bps = round.throughput_bps;
        let evidence = Evidence::Allocation { file_system, new_bps, overwrite_bps };
        return (Resource::FileAllocation, evidence);
    }
    let device = diagnosis.ends.of(end).and_then(|view| view.device.clone());
    (disk, Evidence::Disk { device, rate_bps })
}
