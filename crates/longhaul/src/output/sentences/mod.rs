//! The sentences of result documents. The libraries return variants with numbers and leave the
//! sentences of a document empty; the program fills them in before it prints the document.

mod diagnosis;
mod doctor;
mod path;
mod remedy;
mod test;

use longhaul_core::plan::Direction;
use longhaul_core::result::{
    Diagnosis, DoctorReport, End, PathResult, Reason, TestResult, Warning, WarningKind,
};
use test::Hosts;

/// Fills in the sentences of a test.
pub(crate) fn complete_test(result: &mut TestResult) {
    fn host(address: &str) -> &str {
        address.rsplit_once(':').map_or(address, |(host, _)| host)
    }
    let server = host(&result.target);
    let client = result.third_party.as_deref().map_or("this host", host);
    let to_server = Hosts { sender: client, receiver: server };
    let from_server = Hosts { sender: server, receiver: client };
    let hosts = if result.plan.direction == Direction::Reverse { from_server } else { to_server };
    result.summary.reason.iter_mut().for_each(|reason| test::complete(reason, hosts));
    let reverse = result.reverse.iter_mut().filter_map(|half| half.summary.reason.as_mut());
    reverse.for_each(|reason| test::complete(reason, from_server));
    complete(&mut result.warnings);
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
    complete(&mut result.warnings);
}

/// Fills in the sentences of an examination.
pub(crate) fn complete_doctor(report: &mut DoctorReport) {
    report.findings.iter_mut().for_each(doctor::complete);
}

/// Fills in the sentences of a diagnosis.
pub(crate) fn complete_diagnosis(diagnosis: &mut Diagnosis) {
    diagnosis::complete(diagnosis);
}

/// Fills in the sentences of `warnings`.
fn complete(warnings: &mut [Warning]) {
    for warning in warnings {
        warning.message = message(&warning.kind);
        advice(&warning.kind).clone_into(&mut warning.advice);
    }
}

/// Returns the problem as a sentence without a final period.
fn message(kind: &WarningKind) -> String {
    match kind {
        WarningKind::WindowClipped { end, requested_bytes, granted_bytes } => format!(
            "the {end}'s kernel clipped the window from {requested_bytes} to {granted_bytes}"
        ),
        WarningKind::CpuBound { end, cpu_percent } => {
            format!("a thread of the {end} used {cpu_percent:.0} % of its core")
        }
        WarningKind::TotalsDisagree { sent_bytes, received_bytes } => format!(
            "the sender counted {} bytes and the receiver {}",
            sent_bytes.get(),
            received_bytes.get()
        ),
        WarningKind::PacingMissed { requested_bps, sending: Some(time), .. } => format!(
            "{requested_bps} were requested and {} were sent from {:.1} to {:.1} s: the sending thread \
             ran for {:.0} % of this time and waited for a core for {:.0} %",
            time.sent_bps,
            time.from_seconds,
            time.to_seconds,
            time.running_percent,
            time.waiting_percent
        ),
        WarningKind::PacingMissed { requested_bps, throughput_bps, .. } => {
            format!("{requested_bps} were requested and {throughput_bps} arrived")
        }
        WarningKind::AllOmitted => "the test ended within the omitted time".to_owned(),
        WarningKind::ReceiveNotCopied => {
            "the receiver discarded the bytes without reading them".to_owned()
        }
        WarningKind::HostDropped { end: End::Sender, datagrams } => {
            format!("the sender's own interface queue dropped {datagrams} datagrams")
        }
        WarningKind::HostDropped { end: End::Receiver, datagrams } => {
            format!("the receiver's full socket buffer dropped {datagrams} datagrams")
        }
        WarningKind::ClockStepped { step_ms } => {
            format!("the clock of this host was set by {step_ms:.0} ms during the measurement")
        }
        WarningKind::NotMultipath => "a connection fell back from MPTCP to plain TCP".to_owned(),
    }
}

/// Returns the advice.
fn advice(kind: &WarningKind) -> &'static str {
    match kind {
        WarningKind::WindowClipped { .. } => {
            "raise net.core.rmem_max and net.core.wmem_max there, or omit -w: the \
             kernel's autotuning has its own limits, net.ipv4.tcp_rmem and tcp_wmem"
        }
        WarningKind::CpuBound { .. } => "use more streams (-P), so that more cores share the work",
        WarningKind::TotalsDisagree { .. } => {
            "do not use this result: something between the ends changes the data; please \
             report it"
        }
        WarningKind::PacingMissed { sending: Some(time), .. } => {
            if time.running_percent >= 2.0 * time.waiting_percent {
                "the CPU of the sender limits the rate: send larger datagrams (-l) or more streams (-P)"
            } else {
                "measure again when the sender's host has idle cores"
            }
        }
        WarningKind::PacingMissed { .. } => {
            "the path or a host is slower than -b; measure again without -b"
        }
        WarningKind::AllOmitted => "make the test longer, or omit less (-O)",
        WarningKind::ReceiveNotCopied => {
            "no application could receive at this rate; measure without --skip-rx-copy"
        }
        WarningKind::HostDropped { end: End::Sender, .. } => {
            "send slower (-b), or raise the interface's txqueuelen"
        }
        WarningKind::HostDropped { end: End::Receiver, .. } => {
            "send slower (-b), or raise net.core.rmem_max there and the buffer (-w)"
        }
        WarningKind::ClockStepped { .. } => {
            "measure again: times before and after the change cannot be compared"
        }
        WarningKind::NotMultipath => {
            "the server or a middlebox does not support MPTCP; set net.mptcp.enabled=1 \
             there and restart it"
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;

    use super::*;

    #[test]
    fn a_warning_has_its_figures_and_advice() {
        let mut warnings = [Warning::from(WarningKind::WindowClipped {
            end: End::Receiver,
            requested_bytes: Bytes::mib(64),
            granted_bytes: Bytes::new(212_992),
        })];
        complete(&mut warnings);
        let expected = "the receiver's kernel clipped the window from 64.0 MiB to 208 KiB";
        assert_eq!(warnings[0].message, expected);
        assert!(warnings[0].advice.contains("net.core.rmem_max"), "{}", warnings[0].advice);
    }
}
