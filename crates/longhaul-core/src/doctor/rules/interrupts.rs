//! Rules for the handling of network interrupts.

use std::collections::BTreeSet;

use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, judged, problem, unknown};
use crate::doctor::rules::percent;
use crate::doctor::{HostFacts, InterfaceFacts, InterfaceKind, Target};
use crate::result::FindingVerdict;

/// The approximate rate in Gb/s that one core can receive: one stream reaches 30 on a 3-GHz core
/// (ESnet's guide for 100G), and interrupts take more than half of the work.
const CORE_GIGABITS: u64 = 25;

/// Formats CPUs as the kernel does: `0-3,8`.
fn list(cpus: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let text =
        |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    runs.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// Returns the number of queues and the CPUs that handle the interrupts of `one`.
fn cpus(one: &InterfaceFacts) -> crate::doctor::FactResult<(usize, BTreeSet<u32>)> {
    let interrupts = one.interrupts.clone()?;
    let cpus = interrupts.iter().flat_map(|interrupt| interrupt.cpus.iter().copied()).collect();
    Ok((interrupts.len(), cpus))
}

pub(super) fn spread(one: &InterfaceFacts, host: &HostFacts, target: &Target) -> RuleAnswer {
    if one.kind == InterfaceKind::Software {
        return NOTHING;
    }
    let (interrupts, cpus) = cpus(one)?;
    if interrupts == 0 {
        return NOTHING;
    }
    let wanted = target.rate.bps().div_ceil(CORE_GIGABITS * 1_000_000_000);
    let online = u64::from(host.processors.online.clone().unwrap_or(1));
    let queues = one.queues.clone().unwrap_or(1);
    let possible = wanted.min(online);
    let few_queues = u64::from(queues) < wanted;
    let enough = cpus.len() as u64 >= possible && u64::from(queues) >= possible;
    let verdict = if cpus.len() == 1 { FindingVerdict::Problem } else { FindingVerdict::Advice };
    match (enough, few_queues) {
        (true, _) => fine("enough"),
        (false, true) => judged(verdict, "few_queues"),
        (false, false) => judged(verdict, "few_cpus"),
    }
    .with("queues", queues)
    .with("cpus", list(&cpus))
    .with("wanted_queues", wanted)
    .with("possible_queues", possible)
    .with_any("cores", (wanted > online).then_some(online))
    .with("core_gigabits", CORE_GIGABITS)
    .with("target_bps", target.rate)
    .answer()
}

pub(super) fn node(one: &InterfaceFacts, host: &HostFacts, _: &Target) -> RuleAnswer {
    if one.kind == InterfaceKind::Software || host.nodes.len() < 2 {
        return NOTHING;
    }
    let Some(node) = one.node.clone()? else { return unknown("no_node").answer() };
    let near: BTreeSet<u32> = host.nodes.get(&node).into_iter().flatten().copied().collect();
    let (interrupts, cpus) = cpus(one)?;
    if interrupts == 0 {
        return NOTHING;
    }
    let away: BTreeSet<u32> = cpus.difference(&near).copied().collect();
    if away.is_empty() { fine("near") } else { advice("away").with("away_cpus", list(&away)) }
        .with("node", node)
        .with("node_cpus", list(&near))
        .answer()
}

pub(super) fn irqbalance(host: &HostFacts, target: &Target) -> RuleAnswer {
    let runs = host.irqbalance.clone()?;
    let few = host.processors.online.clone().unwrap_or(1) <= 2;
    match (runs, target.is_at_least(40) && !few) {
        (true, true) => advice("harmful"),
        (true, false) => fine("runs"),
        (false, _) => fine("off"),
    }
    .answer()
}

pub(super) fn core_drops(host: &HostFacts, _: &Target) -> RuleAnswer {
    let (dropped, all) = host.core_drops.clone()?;
    match dropped {
        0 => fine("none"),
        _ if dropped * 1_000_000 > all => problem("dropped"),
        _ => advice("dropped"),
    }
    .with("dropped", dropped)
    .with("packets", all)
    .with("dropped_percent", percent(dropped, all))
    .answer()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_written_as_the_kernel_does() {
        assert_eq!(list(&[0, 1, 2, 8, 10, 11].into()), "0-2,8,10-11");
        assert_eq!(list(&BTreeSet::new()), "");
    }
}
