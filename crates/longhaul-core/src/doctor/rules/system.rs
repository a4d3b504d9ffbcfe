//! Rules for clock, limits and firewall.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem};
use crate::doctor::{Cause, Chain, HostFacts, ResourceLimit, Target};
use crate::units::{Bytes, format_span};

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

pub(super) fn clock(host: &HostFacts, _: &Target) -> Answer {
    let clock = host.clock.clone()?;
    if clock.synchronised {
        return fine(format!("synchronised, off by {} at most", format_span(clock.max_error)))
            .answer();
    }
    advice("not synchronised")
        .wanted("synchronised")
        .why(
            "one-way delays, and logs and records of two hosts, cannot be compared; rates and \
              round trips are not touched",
        )
        .run("sudo timedatectl set-ntp true    # or install chrony")
        .answer()
}

pub(super) fn clock_source(host: &HostFacts, _: &Target) -> Answer {
    let source = host.clock_source.clone()?;
    if QUICK.contains(&source.as_str()) {
        return fine(source).answer();
    }
    advice(source)
        .wanted("tsc, or the hypervisor's clock")
        .why(
            "TCP reads the time several times a segment, and this one leaves the processor each \
              time, for a microsecond or so",
        )
        .run("cat /sys/devices/system/clocksource/clocksource0/available_clocksource")
        .answer()
}

pub(super) fn open_files(host: &HostFacts, _: &Target) -> Answer {
    let limit = host.open_files.clone()?;
    let enough = limit.soft.is_none_or(|soft| soft >= OPEN_FILES);
    let judgement = if enough { fine } else { advice };
    judgement(both(limit, |count| count.to_string()))
        .wanted(format!("{OPEN_FILES} or more"))
        .why("a server takes 1024 connections, and copies of many files hold some hundreds open")
        .run(format!("ulimit -n {OPEN_FILES}    # LimitNOFILE= for a service"))
        .answer()
}

pub(super) fn locked_memory(host: &HostFacts, _: &Target) -> Answer {
    let limit = host.locked_memory.clone()?;
    let enough = limit.soft.is_none_or(|soft| soft >= LOCKED_BYTES);
    let judgement = if enough { fine } else { advice };
    judgement(both(limit, |bytes| Bytes::new(bytes).to_string()))
        .wanted(format!("{} or more", Bytes::new(LOCKED_BYTES)))
        .why(
            "tools with RDMA, or with io_uring before Linux 5.12, lock their buffers; longhaul \
              locks none",
        )
        .run("ulimit -l unlimited    # as root; LimitMEMLOCK= for a service")
        .answer()
}

fn both(limit: ResourceLimit, text: impl Fn(u64) -> String) -> String {
    let one = |limit: Option<u64>| limit.map_or("no limit".to_owned(), &text);
    if limit.soft == limit.hard {
        one(limit.soft)
    } else {
        format!("{}, can be raised to {}", one(limit.soft), one(limit.hard))
    }
}

pub(super) fn firewall(host: &HostFacts, target: &Target) -> Answer {
    let chains = host.firewall.chains.clone()?;
    let port = target.port;
    let active: Vec<&Chain> =
        chains.iter().filter(|chain| chain.drops || chain.rules > 0).collect();
    let Some(first) = active.first() else {
        return fine("nftables filters nothing").answer();
    };
    let named = |chain: &&Chain| {
        let policy = if chain.drops { ", drops by default" } else { "" };
        format!("{} {} {}: {} rules{policy}", chain.family, chain.table, chain.name, chain.rules)
    };
    let Chain { family, table, name, .. } = first;
    advice(active.iter().map(named).collect::<Vec<_>>().join("; "))
        .wanted(format!("TCP and UDP port {port} open"))
        .why(
            "rules look at what comes in; longhaul does not read what each of them means. Every \
              packet of a transfer passes them",
        )
        .run(format!("sudo nft list chain {family} {table} {name}"))
        .run(format!("sudo nft insert rule {family} {table} {name} tcp dport {port} accept"))
        .run(format!("sudo nft insert rule {family} {table} {name} udp dport {port} accept"))
        .answer()
}

pub(super) fn old_firewall(host: &HostFacts, target: &Target) -> Answer {
    let tables = match &host.firewall.old_tables {
        Ok(tables) => tables,
        // The kernel was built without the feature or has not loaded its module.
        Err(unseen) if unseen.cause == Cause::Absent => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    if tables.is_empty() {
        return fine("no table in use").answer();
    }
    let port = target.port;
    advice(format!("tables in use: {}", tables.join(", ")))
        .wanted(format!("TCP and UDP port {port} open"))
        .why("its rules look at every packet; longhaul does not read them")
        .run("sudo iptables-legacy -S INPUT")
        .run(format!("sudo iptables-legacy -I INPUT -p tcp --dport {port} -j ACCEPT"))
        .run(format!("sudo iptables-legacy -I INPUT -p udp --dport {port} -j ACCEPT"))
        .answer()
}

pub(super) fn tracked(host: &HostFacts, _: &Target) -> Answer {
    let (count, most) = match &host.tracked_connections {
        Ok(counts) => *counts,
        Err(unseen) if unseen.cause == Cause::Absent => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let seen = format!("{count} of {most}");
    if count * 10 < most * 9 {
        return fine(seen).answer();
    }
    problem(seen)
        .wanted("under 90 %")
        .why("when the table is full, new connections are dropped")
        .set("net.netfilter.nf_conntrack_max", most * 2)
        .answer()
}
