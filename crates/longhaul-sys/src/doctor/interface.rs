//! Reads facts about network interfaces.

use std::collections::VecDeque;

use longhaul_core::doctor::{
    Cause, Coalescing, FactResult, InterfaceFacts, InterfaceKind, InterfaceOffloads,
    InterfaceTraffic, Interrupt, Pause, PciFacts, Queueing, Rings, UnknownFact,
};
use longhaul_core::units::Rate;

use super::FactSource;
use super::pci::{self, Place};
use crate::{ethtool, route};

/// The drivers of virtual cards, which do not report the physical hardware.
const PARAVIRTUAL: [&str; 8] =
    ["virtio_net", "vmxnet3", "hv_netvsc", "netvsc", "vif", "xen_netfront", "ena", "gve"];

/// Returns the interfaces of the default routes. Without a default route, returns the interfaces
/// that are up and have a device.
pub(super) fn of_default_route(source: &FactSource) -> Vec<String> {
    // Interface, destination, gateway, flags ... mask, all in hexadecimal (route(8)).
    let table = source.text("proc/net/route").unwrap_or_default();
    let mut names: Vec<String> = table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            (words.next()? == "00000000").then(|| name.to_owned())
        })
        .collect();
    names.dedup();
    if !names.is_empty() {
        return names;
    }
    let up = |name: &String| {
        let at = |what: &str| format!("sys/class/net/{name}/{what}");
        source.text(&at("operstate")).is_ok_and(|state| state == "up")
            && source.real(&at("device")).is_ok()
    };
    source.names("sys/class/net").unwrap_or_default().into_iter().filter(up).collect()
}

/// Returns whether an interface with this name exists.
pub(super) fn exists(source: &FactSource, name: &str) -> bool {
    !name.contains('/') && source.names(&format!("sys/class/net/{name}")).is_ok()
}

/// Returns `names`, each followed by the interfaces below it: the ports of a bond, the parent of a
/// VLAN. Each comes with the number of interfaces that share its load.
pub(super) fn with_those_beneath(source: &FactSource, names: Vec<String>) -> Vec<(String, u32)> {
    let mut all: Vec<(String, u32)> = Vec::new();
    // The order of the request is preserved. The graph of interfaces has no cycles, but two
    // interfaces may share one below them.
    let mut waiting: VecDeque<(String, u32)> = names.into_iter().map(|name| (name, 1)).collect();
    while let Some((name, sharers)) = waiting.pop_front() {
        if all.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let files = source.names(&format!("sys/class/net/{name}")).unwrap_or_default();
        let lower: Vec<&str> = files.iter().filter_map(|one| one.strip_prefix("lower_")).collect();
        let each = sharers * lower.len() as u32;
        waiting.extend(lower.iter().map(|name| ((*name).to_owned(), each)));
        all.push((name, sharers));
    }
    all
}

/// Reads the facts of an interface.
pub(super) fn read(source: &FactSource, name: &str, sharers: u32) -> InterfaceFacts {
    let at = |what: &str| format!("sys/class/net/{name}/{what}");
    let device = source.real(&at("device"));
    let driver = source.target(&at("device/driver"));
    let kind = kind(source, name, &device, &driver);
    let place = device.as_deref().ok().and_then(Place::in_path);
    InterfaceFacts {
        name: name.to_owned(),
        sharers,
        kind,
        driver,
        state: source.text(&at("operstate")),
        mtu: source.number(&at("mtu")),
        speed: speed(source, name),
        queueing: queueing(source, name),
        offloads: offloads(source, name),
        rings: rings(source, name),
        coalescing: coalescing(source, name),
        pause: pause(source, name),
        queues: source
            .names(&at("queues"))
            .map(|names| names.iter().filter(|name| name.starts_with("rx-")).count() as u32),
        traffic: traffic(source, name),
        node: node(source, place.as_ref()),
        interrupts: interrupts(source, place.as_ref()),
        pci: bus(source, place.as_ref(), sharers),
    }
}

fn kind(
    source: &FactSource,
    name: &str,
    device: &FactResult<String>,
    driver: &FactResult<String>,
) -> InterfaceKind {
    if source.real(&format!("sys/class/net/{name}/phy80211")).is_ok() {
        InterfaceKind::Wireless
    } else if device.is_err() {
        InterfaceKind::Software
    } else if driver.as_ref().is_ok_and(|driver| PARAVIRTUAL.contains(&driver.as_str())) {
        InterfaceKind::Paravirtual
    } else {
        InterfaceKind::Hardware
    }
}

/// Reads the speed; the file has -1 or returns an error if the driver reports none
/// (Documentation/ABI/testing/sysfs-class-net).
fn speed(source: &FactSource, name: &str) -> FactResult<Option<Rate>> {
    match source.number::<i64>(&format!("sys/class/net/{name}/speed")) {
        Ok(megabits) => {
            let megabits = u64::try_from(megabits).ok().filter(|rate| *rate > 0);
            Ok(megabits.map(|rate| Rate::from_bps(rate * 1_000_000)))
        }
        Err(UnknownFact { cause: Cause::Absent, .. }) => Ok(None),
        Err(unseen) => Err(unseen),
    }
}

fn queueing(source: &FactSource, name: &str) -> FactResult<Queueing> {
    let call = format!("queueing {name}");
    let text = source.call(&call, || {
        let found = route::queueing(name)?;
        Ok([&[found.root][..], &found.leaves].concat().join("\n"))
    })?;
    let mut lines = text.lines().map(str::to_owned);
    let root = lines.next().ok_or_else(|| UnknownFact::not_understood(call, &text))?;
    Ok(Queueing { root, leaves: lines.collect() })
}

fn offloads(source: &FactSource, name: &str) -> FactResult<InterfaceOffloads> {
    let keys = ["tso", "gso", "gro", "lro", "rx", "tx", "sg"];
    let found = source.numbers(&format!("offloads {name}"), keys, || ethtool::offloads(name))?;
    let [tso, gso, gro, lro, receive_checksum, send_checksum, scatter_gather] =
        found.map(|flag| flag != 0);
    Ok(InterfaceOffloads { tso, gso, gro, lro, receive_checksum, send_checksum, scatter_gather })
}

fn rings(source: &FactSource, name: &str) -> FactResult<Rings> {
    let keys = ["rx", "rx_max", "tx", "tx_max"];
    let found = source.numbers(&format!("rings {name}"), keys, || ethtool::rings(name))?;
    let [receive, receive_max, send, send_max] = found.map(|packets| packets as u32);
    Ok(Rings { receive, receive_max, send, send_max })
}

fn coalescing(source: &FactSource, name: &str) -> FactResult<Coalescing> {
    let keys = ["adaptive_rx", "rx_us"];
    let call = format!("coalescing {name}");
    let [adaptive, micros] = source.numbers(&call, keys, || ethtool::coalescing(name))?;
    Ok(Coalescing { adaptive_receive: adaptive != 0, receive_us: micros as u32 })
}

fn pause(source: &FactSource, name: &str) -> FactResult<Pause> {
    let [receive, send] =
        source.numbers(&format!("pause {name}"), ["rx", "tx"], || ethtool::pause(name))?;
    Ok(Pause { receive: receive != 0, send: send != 0 })
}

fn traffic(source: &FactSource, name: &str) -> FactResult<InterfaceTraffic> {
    let count = |what| source.number(&format!("sys/class/net/{name}/statistics/{what}"));
    Ok(InterfaceTraffic {
        received: count("rx_packets")?,
        missed: count("rx_missed_errors")? + count("rx_fifo_errors")?,
        errors: count("rx_crc_errors")? + count("rx_frame_errors")?,
    })
}

/// Returns the NUMA node of a device; -1 means none (drivers/base/node.c).
pub(super) fn node(source: &FactSource, place: Option<&Place>) -> FactResult<Option<u32>> {
    let Some(place) = place else { return Ok(None) };
    let node: i64 = source.number(&format!("{}/numa_node", place.path))?;
    Ok(u32::try_from(node).ok())
}

fn interrupts(source: &FactSource, place: Option<&Place>) -> FactResult<Vec<Interrupt>> {
    let Some(place) = place else { return Ok(Vec::new()) };
    let numbers = source.names(&format!("{}/msi_irqs", place.path))?;
    let interrupt = |number: u32| {
        let file = format!("proc/irq/{number}/effective_affinity_list");
        Ok(Interrupt { number, cpus: source.list(&file)? })
    };
    let mut numbers: Vec<u32> = numbers.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(interrupt).collect()
}

/// Returns the PCI facts of the device at `place`, if it is on PCI.
pub(super) fn bus(
    source: &FactSource,
    place: Option<&Place>,
    sharers: u32,
) -> FactResult<Option<PciFacts>> {
    Ok(place.map(|place| pci::read(source, place, sharers)))
}
