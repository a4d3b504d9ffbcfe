//! Rules for clock, limits and firewall.

use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, problem};
use crate::doctor::{Cause, Chain, HostFacts, ResourceLimit, Target};

/// The clock sources that a processor reads without a device access.
const QUICK: [&str; 6] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
    "riscv_clocksource",
    "timebase",
];
/// The wanted limit of open files: 1024 connections of a server, and as many files on both sides of
/// a copy.
const OPEN_FILES: u64 = 4096;
/// The memory that RDMA tools, and io_uring on older kernels, lock for their buffers.
const LOCKED_BYTES: u64 = 64 << 20;

pub(super) fn clock(host: &HostFacts, _: &Target) -> RuleAnswer {
    let clock = host.clock.clone()?;
    if clock.synchronised {
        return fine("synchronised").with_ms("error_ms", clock.max_error).answer();
    }
    advice("free_running").answer()
}

pub(super) fn clock_source(host: &HostFacts, _: &Target) -> RuleAnswer {
    let source = host.clock_source.clone()?;
    let quick = QUICK.contains(&source.as_str());
    if quick { fine("quick") } else { advice("slow") }.with("source", source).answer()
}

pub(super) fn open_files(host: &HostFacts, _: &Target) -> RuleAnswer {
    let limit = host.open_files.clone()?;
    limited(limit, OPEN_FILES, ["limit", "raisable_limit"])
}

pub(super) fn locked_memory(host: &HostFacts, _: &Target) -> RuleAnswer {
    limited(host.locked_memory.clone()?, LOCKED_BYTES, ["limit_bytes", "raisable_limit_bytes"])
}

/// Judges a limit with the wanted value. `names` are those of the soft and of the hard limit.
fn limited(limit: ResourceLimit, wanted: u64, [soft, hard]: [&str; 2]) -> RuleAnswer {
    let enough = limit.soft.is_none_or(|soft| soft >= wanted);
    let case = match limit {
        ResourceLimit { soft: None, .. } => "unlimited",
        ResourceLimit { hard: None, .. } => "raisable_freely",
        ResourceLimit { soft, hard } if soft == hard => "limited",
        ResourceLimit { .. } => "raisable",
    };
    if enough { fine(case) } else { advice(case) }
        .with_any(soft, limit.soft)
        .with_any(hard, limit.hard)
        .answer()
}

pub(super) fn firewall(host: &HostFacts, target: &Target) -> RuleAnswer {
    let chains = host.firewall.chains.clone()?;
    let active: Vec<&Chain> =
        chains.iter().filter(|chain| chain.drops || chain.rules > 0).collect();
    let Some(first) = active.first() else { return fine("empty").answer() };
    let name = |chain: &&Chain| format!("{} {} {}", chain.family, chain.table, chain.name);
    let names = |chains: Vec<&Chain>| chains.iter().map(name).collect::<Vec<_>>().join(", ");
    let rules: u64 = active.iter().map(|chain| u64::from(chain.rules)).sum();
    let dropping: Vec<&Chain> = active.iter().copied().filter(|chain| chain.drops).collect();
    advice("filtering")
        .with("rules", rules)
        .with("first_chain", name(first))
        .with_any("dropping_chains", (!dropping.is_empty()).then(|| names(dropping)))
        .with("chains", names(active))
        .with("port", u32::from(target.port))
        .answer()
}

pub(super) fn old_firewall(host: &HostFacts, target: &Target) -> RuleAnswer {
    let tables = match &host.firewall.old_tables {
        Ok(tables) => tables,
        // The kernel was built without the feature or has not loaded its module.
        Err(unseen) if unseen.cause == Cause::Absent => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    if tables.is_empty() {
        return fine("empty").answer();
    }
    let judgement = advice("filtering").with("tables", tables.join(", "));
    judgement.with("port", u32::from(target.port)).answer()
}

pub(super) fn tracked(host: &HostFacts, _: &Target) -> RuleAnswer {
    let (count, most) = match &host.tracked_connections {
        Ok(counts) => *counts,
        Err(unseen) if unseen.cause == Cause::Absent => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let judgement = if count * 10 < most * 9 { fine("enough") } else { problem("full") };
    judgement.with("connections", count).with("most", most).with("wanted", most * 2).answer()
}
