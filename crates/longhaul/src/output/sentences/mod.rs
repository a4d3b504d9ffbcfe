//! The sentences of result documents. The libraries return variants with numbers and leave the
//! sentences of a document empty; the program fills them in before it prints the document.

mod diagnosis;
mod doctor;
mod path;
mod remedy;
mod test;
mod warning;

use longhaul_core::plan::Direction;
use longhaul_core::result::{Diagnosis, DoctorReport, PathResult, Reason, TestResult};

use test::Hosts;

/// Fills in the sentences of a test.
pub(crate) fn complete_test(result: &mut TestResult) {
    let server = result.target.rsplit_once(':').map_or(&*result.target, |(host, _)| host);
    let to_server = Hosts { sender: "this host", receiver: server };
    let from_server = Hosts { sender: server, receiver: "this host" };
    let hosts = if result.plan.direction == Direction::Reverse { from_server } else { to_server };
    result.summary.reason.iter_mut().for_each(|reason| test::complete(reason, hosts));
    let reverse = result.reverse.iter_mut().filter_map(|half| half.summary.reason.as_mut());
    reverse.for_each(|reason| test::complete(reason, from_server));
    warning::complete(&mut result.warnings);
}

/// Returns the sentence of a reason, without the names of the hosts.
pub(crate) fn reason_sentence(reason: &Reason) -> String {
    let mut reason = reason.clone();
    test::complete(&mut reason, Hosts { sender: "the sender", receiver: "the receiver" });
    reason.sentence
}

/// Fills in the sentences of a path measurement.
pub(crate) fn complete_path(result: &mut PathResult) {
    result.summary = path::summary(result);
    warning::complete(&mut result.warnings);
}

/// Fills in the sentences of an examination.
pub(crate) fn complete_doctor(report: &mut DoctorReport) {
    report.findings.iter_mut().for_each(doctor::complete);
}

/// Fills in the sentences of a diagnosis.
pub(crate) fn complete_diagnosis(diagnosis: &mut Diagnosis) {
    diagnosis::complete(diagnosis);
}
