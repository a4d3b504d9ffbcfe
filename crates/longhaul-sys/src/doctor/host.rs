//! Reads all facts of a host.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::doctor::{
    Chain, ClockFacts, FactResult, FirewallFacts, HostFacts, ResourceLimit, SETTINGS,
    TcpMemoryFacts, UnknownFact,
};
use longhaul_core::units::Bytes;

use super::{FactSource, disk, interface, path, processor};
use crate::host::parse_tcp_memory;
use crate::netfilter;

/// The objects to inspect.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The host at the other end, without a port.
    pub to: Option<String>,
    /// The port for the connection to that host.
    pub port: u16,
    /// The time limit for the resolver and for the connection.
    pub patience: Duration,
    /// The interfaces to inspect; if empty, the interface on the route to `to`, or of the default
    /// route.
    pub interfaces: Vec<String>,
    /// The directories to copy from or to.
    pub disks: Vec<String>,
}

/// Reads all facts that the rules need. Waits at most `query.patience` for the resolver, and again
/// at most as long for the host at the other end.
pub fn read_facts(source: &FactSource, query: &Query) -> HostFacts {
    let path = query.to.as_ref().map(|host| path::read(source, host, query.port, query.patience));
    let names = match (&query.interfaces[..], &path) {
        ([], Some(path)) => path.interface.iter().cloned().collect(),
        ([], None) => interface::of_default_route(source),
        (named, _) => named.to_vec(),
    };
    let names = interface::with_those_beneath(source, names);
    let (there, missing): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|(name, _)| interface::exists(source, name));
    HostFacts {
        kernel: source.text("proc/sys/kernel/osrelease"),
        memory: memory(source),
        page_bytes: page_bytes(source),
        nodes: nodes(source),
        settings: SETTINGS.iter().map(|name| (*name, setting(source, name))).collect(),
        tcp_memory: tcp_memory(source),
        processors: processor::read(source),
        core_drops: core_drops(source),
        irqbalance: runs(source, "irqbalance"),
        path,
        interfaces: there
            .iter()
            .map(|(name, sharers)| interface::read(source, name, *sharers))
            .collect(),
        missing_interfaces: missing.into_iter().map(|(name, _)| name).collect(),
        disks: query.disks.iter().map(|path| disk::read(source, path)).collect(),
        clock: clock(source),
        clock_source: source
            .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        open_files: limit(source, "Max open files"),
        locked_memory: limit(source, "Max locked memory"),
        firewall: read_firewall(source),
        tracked_connections: tracked(source),
    }
}

fn setting(source: &FactSource, name: &str) -> FactResult<String> {
    source.text(&format!("proc/sys/{}", name.replace('.', "/")))
}

fn memory(source: &FactSource) -> FactResult<Bytes> {
    let text = source.text("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(Bytes::kib).ok_or_else(|| UnknownFact::not_understood("/proc/meminfo", &text))
}

fn page_bytes(source: &FactSource) -> u64 {
    let live = || Ok([rustix::param::page_size() as u64]);
    source.numbers("page size", ["bytes"], live).map_or(4096, |[bytes]| bytes)
}

fn nodes(source: &FactSource) -> BTreeMap<u32, Vec<u32>> {
    let online = source.list("sys/devices/system/node/online").unwrap_or_else(|_| vec![0]);
    let cpus = |node| source.list(&format!("sys/devices/system/node/node{node}/cpulist"));
    online.into_iter().map(|node| (node, cpus(node).unwrap_or_default())).collect()
}

fn tcp_memory(source: &FactSource) -> FactResult<TcpMemoryFacts> {
    let text = source.text("proc/net/protocols")?;
    let memory = parse_tcp_memory(&text, "", page_bytes(source) as usize);
    Ok(TcpMemoryFacts { used: Bytes::new(memory.used_bytes), pressure: memory.pressure })
}

/// Sums columns 1 and 2 of `/proc/net/softnet_stat`, in hexadecimal (net/core/net-procfs.c):
/// packets processed and packets dropped.
fn core_drops(source: &FactSource) -> FactResult<(u64, u64)> {
    let text = source.text("proc/net/softnet_stat")?;
    let column = |line: &str, at| {
        line.split_ascii_whitespace().nth(at).and_then(|word| u64::from_str_radix(word, 16).ok())
    };
    let sum = |at| text.lines().filter_map(|line| column(line, at)).sum::<u64>();
    Ok((sum(1), sum(0) + sum(1)))
}

/// Returns whether a program with this name is running.
fn runs(source: &FactSource, name: &str) -> FactResult<bool> {
    let live = || {
        let found = std::fs::read_dir("/proc")?.filter_map(Result::ok).any(|entry| {
            let comm = std::fs::read_to_string(entry.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim() == name)
        });
        Ok([u64::from(found)])
    };
    let [found] = source.numbers(&format!("process {name}"), ["runs"], live)?;
    Ok(found == 1)
}

fn clock(source: &FactSource) -> FactResult<ClockFacts> {
    let [synchronised, micros] =
        source.numbers("clock", ["synchronised", "max_error_us"], || {
            let clock = crate::host::clock_state()?;
            Ok([u64::from(clock.synchronised), clock.max_error.as_micros() as u64])
        })?;
    let max_error = Duration::from_micros(micros);
    Ok(ClockFacts { synchronised: synchronised == 1, max_error })
}

/// Parses a line of `/proc/self/limits`: name, soft limit, hard limit, unit.
fn limit(source: &FactSource, name: &str) -> FactResult<ResourceLimit> {
    let text = source.text("proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let mut words = line.into_iter().flat_map(str::split_whitespace);
    let mut next = || match words.next()? {
        "unlimited" => Some(None),
        word => word.parse().ok().map(Some),
    };
    let both = next().zip(next());
    let (soft, hard) =
        both.ok_or_else(|| UnknownFact::not_understood("/proc/self/limits", &text))?;
    Ok(ResourceLimit { soft, hard })
}

fn tracked(source: &FactSource) -> FactResult<(u64, u64)> {
    let number = |name| source.number(&format!("proc/sys/net/netfilter/nf_conntrack_{name}"));
    Ok((number("count")?, number("max")?))
}

/// Reads the rule chains that filter incoming packets of this host.
pub(super) fn read_firewall(source: &FactSource) -> FirewallFacts {
    let old_tables = source.text("proc/net/ip_tables_names");
    FirewallFacts {
        chains: chains(source),
        old_tables: old_tables.map(|text| text.lines().map(str::to_owned).collect()),
    }
}

fn chains(source: &FactSource) -> FactResult<Vec<Chain>> {
    let text = source.call("nftables input chains", || {
        let chains = match netfilter::input_chains() {
            Ok(chains) => chains,
            // Without the module the kernel has no rules.
            Err(error) if netfilter::is_missing(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let line = |chain: netfilter::InputChain| {
            let netfilter::InputChain { family, table, name, drops, rules } = chain;
            format!("{family} {table} {name} {} {rules}", if drops { "drop" } else { "accept" })
        };
        Ok(chains.into_iter().map(line).collect::<Vec<_>>().join("\n"))
    })?;
    let chain = |line: &str| {
        let [family, table, name, policy, rules] =
            line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        Some(Chain {
            family: str::to_owned(family),
            table: str::to_owned(table),
            name: str::to_owned(name),
            drops: policy == "drop",
            rules: rules.parse().ok()?,
        })
    };
    Ok(text.lines().filter_map(chain).collect())
}
