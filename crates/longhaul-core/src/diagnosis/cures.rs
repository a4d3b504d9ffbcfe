//! Remedies for a limit: the doctor's findings, and other known changes, each with the privilege
//! that it needs.

use super::cause::Cause;
use crate::result::{
    Cure, CureKind, Diagnosis, DiagnosisStep, End, Evidence, FindingVerdict, Remedy, Resource,
};

/// Returns the remedies for `cause` in a copy of `diagnosis`, best first.
pub(super) fn of(diagnosis: &Diagnosis, cause: &Cause) -> Vec<Cure> {
    let end = cause.end.unwrap_or(End::Sender);
    let (at, rules) = rules(cause.resource, end);
    let mut cures = findings(diagnosis, at, rules);
    cures.extend(general_remedies(diagnosis, cause, end));
    cures
}

/// Returns the rules of the doctor that concern a resource, and the end that they examine.
fn rules(resource: Resource, end: End) -> (End, &'static [&'static str]) {
    match resource {
        Resource::ReceiverWindow => {
            (End::Receiver, &["tcp_rmem", "tcp_moderate_rcvbuf", "tcp_window_scaling"])
        }
        Resource::SenderWindow => (End::Sender, &["tcp_wmem", "tcp_window_scaling"]),
        Resource::TcpMemory => (end, &["tcp_mem", "tcp_memory_now"]),
        Resource::HostDrops => (end, &["core_drops", "missed", "rings", "coalescing"]),
        Resource::InterruptCpu => {
            (end, &["interrupt_spread", "interrupt_node", "irqbalance", "offloads"])
        }
        Resource::SenderCpu | Resource::ReceiverCpu => {
            (end, &["governor", "turbo", "idle_states", "offloads"])
        }
        Resource::SourceDisk | Resource::SinkDisk => {
            (end, &["scheduler", "read_ahead", "direct_io"])
        }
        Resource::FileAllocation => (end, &["file_system"]),
        Resource::Loss
        | Resource::CongestionWindow
        | Resource::LinkRate
        | Resource::ShallowQueue
        | Resource::Encryption
        | Resource::MemoryBandwidth
        | Resource::SmallFiles
        | Resource::Contention => (end, &[]),
    }
}

/// Returns the doctor's findings of these rules at `end` that are not in order.
fn findings(diagnosis: &Diagnosis, end: End, rules: &[&str]) -> Vec<Cure> {
    let Some(view) = diagnosis.ends.of(end) else { return Vec::new() };
    let found = rules.iter().filter_map(|rule| view.finding(rule));
    found
        .filter(|finding| {
            matches!(finding.verdict, FindingVerdict::Problem | FindingVerdict::Advice)
        })
        .map(|finding| root(end, Remedy::Finding { rule: finding.rule.clone() }))
        .collect()
}

/// Returns the remedies that need no finding.
fn general_remedies(diagnosis: &Diagnosis, cause: &Cause, end: End) -> Vec<Cure> {
    let streams = || safe(End::Sender, Remedy::MoreStreams);
    match cause.resource {
        Resource::ReceiverWindow
        | Resource::SenderWindow
        | Resource::HostDrops
        | Resource::InterruptCpu => vec![streams()],
        Resource::Loss => {
            let mut cures = congestion_control(diagnosis);
            cures.extend([streams(), hardware(End::Receiver, Remedy::PathRepair)]);
            cures
        }
        Resource::CongestionWindow => vec![safe(End::Sender, Remedy::LongerCopy), streams()],
        Resource::LinkRate => vec![hardware(End::Receiver, Remedy::FasterLink)],
        Resource::ShallowQueue => vec![
            safe(End::Sender, Remedy::LowerRate),
            safe(End::Sender, Remedy::FewerStreams),
            hardware(End::Receiver, Remedy::DeeperQueue),
        ],
        Resource::TcpMemory => vec![safe(end, Remedy::FreeTcpMemory)],
        Resource::SenderCpu | Resource::ReceiverCpu => {
            let mut cures = vec![safe(end, Remedy::FreeCores), streams()];
            if cause.by_quota {
                cures.insert(0, root(end, Remedy::HigherQuota));
            }
            cures.push(hardware(end, Remedy::FasterCores));
            cures
        }
        Resource::Encryption => {
            vec![safe(End::Sender, Remedy::ClearText), streams(), hardware(end, Remedy::AesCores)]
        }
        Resource::MemoryBandwidth => vec![streams(), hardware(end, Remedy::MemoryChannels)],
        Resource::SourceDisk | Resource::SinkDisk
            if matches!(cause.evidence, Evidence::SharedDisk { .. }) =>
        {
            vec![safe(end, Remedy::OtherDiskUsers), hardware(end, Remedy::SeparateDisks)]
        }
        Resource::SourceDisk | Resource::SinkDisk => {
            vec![safe(end, Remedy::OtherDiskUsers), hardware(end, Remedy::FasterDisk)]
        }
        Resource::FileAllocation => vec![root(end, Remedy::LargeExtents)],
        Resource::SmallFiles => vec![
            safe(End::Sender, Remedy::OneArchive),
            safe(End::Sender, Remedy::NoSync),
            hardware(end, Remedy::DiskOperations),
        ],
        Resource::Contention => {
            vec![safe(End::Sender, Remedy::FewerStreams), hardware(end, Remedy::SeparateDisks)]
        }
    }
}

/// Returns the remedies with a congestion control that tolerates loss, unless the sender uses one.
fn congestion_control(diagnosis: &Diagnosis) -> Vec<Cure> {
    let steps = [DiagnosisStep::Memory, DiagnosisStep::MemoryOne];
    let rounds = steps.into_iter().filter_map(|step| diagnosis.step(step)).flat_map(|s| &s.rounds);
    let mut reasons = rounds.filter_map(|round| round.reason.as_deref());
    if reasons.any(|reason| reason.facts.congestion.starts_with("bbr")) {
        return Vec::new();
    }
    let mut cures = findings(diagnosis, End::Sender, &["bbr_available"]);
    cures.push(root(End::Sender, Remedy::Bbr));
    cures
}

fn safe(end: End, remedy: Remedy) -> Cure {
    cure(CureKind::Safe, end, remedy)
}

fn root(end: End, remedy: Remedy) -> Cure {
    cure(CureKind::NeedsRoot, end, remedy)
}

fn hardware(end: End, remedy: Remedy) -> Cure {
    cure(CureKind::NeedsHardware, end, remedy)
}

fn cure(kind: CureKind, end: End, remedy: Remedy) -> Cure {
    Cure {
        kind,
        end: Some(end),
        remedy: Some(remedy),
        host: String::new(),
        what: String::new(),
        present: String::new(),
        proposed: String::new(),
        command: String::new(),
    }
}
