//! Rules for the handling of network interrupts.

use std::collections::BTreeSet;

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem, unknown};
use crate::doctor::rules::percent;
use crate::doctor::{HostFacts, InterfaceFacts, InterfaceKind, Target};
use crate::result::Verdict;

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
fn cpus(one: &InterfaceFacts) -> crate::doctor::Seen<(usize, BTreeSet<u32>)> {
    let interrupts = one.interrupts.clone()?;
    let cpus = interrupts.iter().flat_map(|interrupt| interrupt.cpus.iter().copied()).collect();
    Ok((interrupts.len(), cpus))
}

pub(super) fn spread(one: &InterfaceFacts, host: &HostFacts, target: &Target) -> Answer {
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
    let plural = if queues == 1 { "" } else { "s" };
    let seen = format!("{queues} queue{plural}, interrupts on CPUs {}", list(&cpus));
    let enough = cpus.len() as u64 >= wanted.min(online) && u64::from(queues) >= wanted.min(online);
    if enough {
        return fine(seen).answer();
    }
    let name = &one.name;
    let verdict = if cpus.len() == 1 { Verdict::Problem } else { Verdict::Advice };
    let judgement = fine(seen)
        .judged(verdict)
        .wanted(format!("{wanted} queues on as many cores"))
        .why(format!(
            "a core receives about {CORE_GIGABITS} Gb/s; {} take {wanted}{}",
            target.rate,
            if wanted > online { format!(", and this host has {online}") } else { String::new() }
        ));
    if u64::from(queues) < wanted {
        judgement.run(format!("sudo ethtool -L {name} combined {}", wanted.min(online))).answer()
    } else {
        judgement
            .run(format!("grep {name} /proc/interrupts    # then, for each interrupt N:"))
            .run("echo CPU | sudo tee /proc/irq/N/smp_affinity_list")
            .answer()
    }
}

pub(super) fn node(one: &InterfaceFacts, host: &HostFacts, _: &Target) -> Answer {
    if one.kind == InterfaceKind::Software || host.nodes.len() < 2 {
        return NOTHING;
    }
    let Some(node) = one.node.clone()? else {
        return unknown("the device has no node, and the host has several")
            .why("its position on the bus is unknown; the firmware's tables lack it")
            .run("lspci -tv")
            .answer();
    };
    let near: BTreeSet<u32> = host.nodes.get(&node).into_iter().flatten().copied().collect();
    let (interrupts, cpus) = cpus(one)?;
    if interrupts == 0 {
        return NOTHING;
    }
    let away: BTreeSet<u32> = cpus.difference(&near).copied().collect();
    if away.is_empty() {
        let how = format!("node {node}, whose CPUs are {}; interrupts there too", list(&near));
        return fine(how).why("longhaul test places its threads there automatically").answer();
    }
    advice(format!("node {node}; interrupts also on CPUs {}", list(&away)))
        .wanted(format!("interrupts on node {node}: CPUs {}", list(&near)))
        .why(
            "each packet crosses from one node's memory to the other's caches (\"make sure you \
              are using the correct cores\", ESnet's guide for 100G)",
        )
        .run("sudo systemctl stop irqbalance")
        .run(format!(
            "for i in /sys/class/net/{}/device/msi_irqs/*; do echo {} | sudo tee \
             /proc/irq/${{i##*/}}/smp_affinity_list; done",
            one.name,
            list(&near)
        ))
        .answer()
}

pub(super) fn irqbalance(host: &HostFacts, target: &Target) -> Answer {
    let runs = host.irqbalance.clone()?;
    let few = host.processors.online.clone().unwrap_or(1) <= 2;
    match (runs, target.is_at_least(40) && !few) {
        (true, true) => advice("irqbalance runs")
            .wanted("fixed interrupt affinity")
            .why("it moves interrupts between cores and nodes during a transfer")
            .run("sudo systemctl disable --now irqbalance")
            .answer(),
        (true, false) => fine("irqbalance").answer(),
        (false, _) => fine("irqbalance is not running").answer(),
    }
}

pub(super) fn core_drops(host: &HostFacts, _: &Target) -> Answer {
    let (dropped, all) = host.core_drops.clone()?;
    if dropped == 0 {
        return fine(format!("dropped none of {all}")).answer();
    }
    let seen = format!("dropped {dropped} of {all} ({})", percent(dropped, all));
    let judgement = if dropped * 1_000_000 > all { problem(seen) } else { advice(seen) };
    judgement
        .wanted("none")
        .why("a core's queue of received packets was full")
        .set("net.core.netdev_max_backlog", 250_000)
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
