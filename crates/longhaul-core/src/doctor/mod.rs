//! The rules that judge whether a host can reach a rate over a round-trip time.
//!
//! [`HostFacts`] are plain values; each may be [unknown](UnknownFact) with a reason. [`examine`] applies
//! the table of [rules](RULES) to them. A rule has a name, its cases, and a short function from
//! facts and [`Target`] to a case with values. If a fact that a rule needs is unseen, `?` makes the
//! finding "unseen". The program has the sentences of the cases.
//!
//! Wanted values follow the kernel's arithmetic and the guide of ESnet for data-transfer nodes
//! (<https://fasterdata.es.net/host-tuning/>); rules cite the guide if they depend on it.
//!
//! This module does not read a host. `longhaul_sys::doctor` does, and its answers can be stored as
//! a [`HostRecording`] and examined elsewhere.

mod bus;
mod facts;
mod recording;
mod rule;
mod rules;

use rule::unknown;

use crate::result::{Finding, HostSummary, Measurement};

pub use bus::{Capability, PCIE_OVERHEAD_BYTES, express_capability, theoretical_maximum};
pub use facts::{
    Cause, Chain, ClockFacts, Coalescing, DirectIoSupport, DiskFacts, FactResult, FirewallFacts,
    HostFacts, IdleState, InterfaceFacts, InterfaceKind, InterfaceOffloads, InterfaceTraffic,
    Interrupt, MountFacts, PathFacts, Pause, PciFacts, PcieLink, ProcessorFacts, Queueing,
    ResourceLimit, Rings, TcpMemoryFacts, UnknownFact,
};
pub use recording::{HostRecording, RecordedAnswer, RecordingError};
pub use rule::{Judge, Rule, RuleAnswer, RuleJudgement, Target, UNSEEN_CASES};
pub use rules::{RULES, SETTINGS};

/// Applies every rule to `facts` and to the measurements. The findings are in the order of the
/// rules. If several rules need the same unseen fact, it is reported once.
pub fn examine(facts: &HostFacts, measured: &[Measurement], target: &Target) -> Vec<Finding> {
    let mut findings = Findings::default();
    for rule in RULES {
        match rule.judge {
            Judge::Host(judge) => findings.add(rule, "", judge(facts, target)),
            Judge::Path(judge) => {
                if let Some(path) = &facts.path {
                    findings.add(rule, &path.host, judge(path, facts, target));
                }
            }
            Judge::Interface(judge) => {
                for interface in &facts.interfaces {
                    findings.add(rule, &interface.name, judge(interface, facts, target));
                }
            }
            Judge::Disk(judge) => {
                for disk in &facts.disks {
                    findings.add(rule, &disk.path, judge(disk, facts, target));
                }
            }
            Judge::Measured(judge) => {
                for one in measured.iter().filter(|one| one.name == rule.name) {
                    findings.add(rule, "", judge(one, facts, target));
                }
            }
            Judge::Bus(judge) => {
                for (subject, pci) in devices(facts) {
                    let answer = match pci {
                        Ok(None) => Ok(None),
                        Ok(Some(pci)) => judge(pci, target),
                        Err(unseen) => Err(unseen.clone()),
                    };
                    findings.add(rule, &subject, answer);
                }
            }
        }
    }
    findings.list
}

/// Returns the devices on the bus: interfaces by name, disks by device name.
fn devices(facts: &HostFacts) -> impl Iterator<Item = (String, &FactResult<Option<PciFacts>>)> {
    let interfaces =
        facts.interfaces.iter().map(|interface| (interface.name.clone(), &interface.pci));
    let disks = facts.disks.iter().map(|disk| {
        let device = disk.device.as_ref().ok().and_then(Option::as_ref);
        (device.unwrap_or(&disk.path).clone(), &disk.pci)
    });
    interfaces.chain(disks)
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    unseen: Vec<(String, UnknownFact)>,
}

impl Findings {
    fn add(&mut self, rule: &Rule, subject: &str, answer: RuleAnswer) {
        let judgement = match answer {
            Ok(None) => return,
            Ok(Some(judgement)) => judgement,
            Err(unseen) => {
                let key = (subject.to_owned(), unseen.clone());
                if self.unseen.contains(&key) {
                    return;
                }
                self.unseen.push(key);
                unknown(unseen_case(&unseen)).with("unseen", unseen.to_string())
            }
        };
        self.list.push(judgement.into_finding(rule, subject));
    }
}

/// Returns the case of a rule whose fact is unseen, by the privilege that makes the fact readable.
fn unseen_case(unseen: &UnknownFact) -> &'static str {
    match (&unseen.cause, unseen.what.as_str()) {
        (Cause::Absent, _) => "absent",
        (Cause::Failed(_), _) => "unreadable",
        (Cause::Denied, what) if what.starts_with("nftables") => "denied_net_admin",
        (Cause::Denied, what) if what.ends_with("/config") => "denied_sys_admin",
        (Cause::Denied, what) if what.starts_with("direct") => "denied_file",
        (Cause::Denied, _) => "denied",
    }
}

/// Returns a short description of the host.
pub fn summary(facts: &HostFacts) -> HostSummary {
    HostSummary {
        kernel: facts.kernel.clone().ok(),
        processor: facts.processors.model.clone().ok(),
        processors: facts.processors.online.clone().ok(),
        nodes: Some(facts.nodes.len() as u32),
        memory_bytes: facts.memory.clone().ok(),
        virtual_machine: facts.processors.virtual_machine.clone().ok(),
    }
}
