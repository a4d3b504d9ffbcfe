//! Rules for network interfaces.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem, unknown};
use crate::doctor::rules::percent;
use crate::doctor::{HostFacts, InterfaceFacts, InterfaceKind, Target};
use crate::result::Verdict;

/// The ring size in ESnet's guide for 100G, if the card supports it.
const RING: u32 = 8192;
/// The usual payload of jumbo frames.
const JUMBO: u32 = 9000;
/// The rate in Gb/s above which the cost per packet dominates.
const FAST: u64 = 10;

pub(super) fn there(host: &HostFacts, _: &Target) -> Answer {
    if host.missing_interfaces.is_empty() {
        return NOTHING;
    }
    problem(format!("no interface {}", host.missing_interfaces.join(", no interface ")))
        .wanted("the name of an interface of this host")
        .why("it could not be examined")
        .run("ip -brief link")
        .answer()
}

pub(super) fn state(one: &InterfaceFacts, _: &HostFacts, _: &Target) -> Answer {
    let state = one.state.clone()?;
    let name = &one.name;
    if matches!(state.as_str(), "up" | "unknown") {
        let driver = one.driver.as_deref().map_or(String::new(), |driver| format!(", {driver}"));
        return fine(format!("{}{driver}", if state == "up" { "up" } else { "no carrier state" }))
            .answer();
    }
    problem(state)
        .wanted("up")
        .why("no packet passes")
        .run(format!("sudo ip link set {name} up"))
        .answer()
}

pub(super) fn speed(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> Answer {
    if one.kind == InterfaceKind::Software {
        return NOTHING;
    }
    let wireless = one.kind == InterfaceKind::Wireless;
    let Some(speed) = one.speed.clone()? else {
        return if wireless {
            advice("a wireless interface without a fixed rate")
                .wanted("a cable")
                .why("its rate and delay vary, and it is shared")
                .answer()
        } else {
            unknown("the driver reports no rate")
                .why("the host of a virtual machine determines its rate; measure it")
                .run("longhaul test HOST -P 4")
                .answer()
        };
    };
    let share = target.share(one.sharers);
    let judgement = if speed >= share { fine } else { problem };
    judgement(speed.to_string())
        .wanted(format!("{share} or more"))
        .why("a transfer is no faster than the card and its switch port")
        .run(format!("ethtool {}", one.name))
        .answer()
}

pub(super) fn mtu(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> Answer {
    let mtu = one.mtu.clone()?;
    let packets = |mtu: u32| target.rate.bps() as f64 / (8.0 * f64::from(mtu));
    let why = format!(
        "{} is {} packets a second of {mtu} bytes, and {} of {JUMBO}",
        target.rate,
        thousands(packets(mtu)),
        thousands(packets(JUMBO))
    );
    if mtu >= JUMBO || !target.is_at_least(FAST) || one.kind == InterfaceKind::Wireless {
        return fine(format!("{mtu} bytes")).why(why).answer();
    }
    advice(format!("{mtu} bytes"))
        .wanted(format!("{JUMBO} bytes, if every switch and router of the path supports them"))
        .why(why)
        .run(format!("sudo ip link set {} mtu {JUMBO}", one.name))
        .answer()
}

fn thousands(packets: f64) -> String {
    match packets {
        p if p >= 1e6 => format!("{:.2} million", p / 1e6),
        p => format!("{:.0} thousand", p / 1e3),
    }
}

pub(super) fn queueing(one: &InterfaceFacts, _: &HostFacts, _: &Target) -> Answer {
    let queueing = one.queueing.clone()?;
    let kinds =
        if queueing.leaves.is_empty() { vec![queueing.root.clone()] } else { queueing.leaves };
    let seen = if kinds[0] == queueing.root {
        queueing.root.clone()
    } else {
        format!("{} of {}", queueing.root, kinds.join(", "))
    };
    if kinds.iter().all(|kind| matches!(kind.as_str(), "fq" | "fq_codel" | "noqueue" | "cake")) {
        return fine(seen).answer();
    }
    let name = &one.name;
    // With mq at the root each hardware queue has a separate discipline. Replacing mq creates these
    // disciplines again with the default.
    let command = match queueing.root.as_str() {
        "mq" => format!(
            "sudo sysctl -w net.core.default_qdisc=fq && sudo tc qdisc replace dev {name} root mq"
        ),
        _ => format!("sudo tc qdisc replace dev {name} root fq"),
    };
    advice(seen)
        .wanted("fq (or fq_codel)")
        .why(
            "with fq the kernel paces each connection, which keeps bursts out of shallow queues \
              on the path; without it TCP paces itself by timers, at more cost (ESnet's guide)",
        )
        .run(command)
        .answer()
}

pub(super) fn offloads(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> Answer {
    if one.kind == InterfaceKind::Software {
        return NOTHING;
    }
    let has = one.offloads.clone()?;
    let wanted = [
        ("tso", has.tso),
        ("gso", has.gso),
        ("gro", has.gro || has.lro),
        ("rx", has.receive_checksum),
        ("tx", has.send_checksum),
        ("sg", has.scatter_gather),
    ];
    let off: Vec<&str> = wanted.iter().filter(|(_, on)| !on).map(|(name, _)| *name).collect();
    let lro = if has.lro { "LRO on" } else { "LRO off" };
    if off.is_empty() {
        return fine(format!("TSO, GSO, GRO, checksums, scatter-gather on; {lro}")).answer();
    }
    let packets = target.rate.bps() as f64 / (8.0 * 1500.0);
    let slow = !target.is_at_least(FAST);
    let verdict = if slow { Verdict::Advice } else { Verdict::Problem };
    fine(format!("off: {}; {lro}", off.join(", ")))
        .judged(verdict)
        .wanted("on")
        .why(format!(
            "the kernel handles up to 64 KB at once with them, and {} packets a second one by one \
             without",
            thousands(packets)
        ))
        .run(format!("sudo ethtool -K {} {} on", one.name, off.join(" on ")))
        .answer()
}

pub(super) fn rings(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> Answer {
    if one.kind != InterfaceKind::Hardware {
        return NOTHING;
    }
    let rings = one.rings.clone()?;
    let (receive, send) = (rings.receive_max.min(RING), rings.send_max.min(RING));
    let seen = format!(
        "{} to receive (at most {}), {} to send (at most {})",
        rings.receive, rings.receive_max, rings.send, rings.send_max
    );
    if !target.is_at_least(FAST) || (rings.receive >= receive && rings.send >= send) {
        return fine(seen).answer();
    }
    let packets = target.rate.bps() as f64 / (8.0 * f64::from(*one.mtu.as_ref().unwrap_or(&1500)));
    let micros = f64::from(rings.receive) / packets * 1e6;
    advice(seen)
        .wanted(format!("{receive} and {send}"))
        .why(format!(
            "at {} a ring of {} fills in {micros:.0} us in which the core does something else; the \
             next packet is lost (ESnet's guide for 100G: {RING}, or the most)",
            target.rate, rings.receive
        ))
        .run(format!("sudo ethtool -G {} rx {receive} tx {send}", one.name))
        .answer()
}

pub(super) fn missed(one: &InterfaceFacts, _: &HostFacts, _: &Target) -> Answer {
    let traffic = one.traffic.clone()?;
    if traffic.missed == 0 && traffic.errors == 0 {
        return fine(format!("none of {} received", traffic.received)).answer();
    }
    let (sum, all) = (
        format!("{} lost for lack of space, {} damaged", traffic.missed, traffic.errors),
        traffic.received + traffic.missed + traffic.errors,
    );
    let seen = format!("{sum}, of {all} ({})", percent(traffic.missed + traffic.errors, all));
    // CUBIC tolerates a loss of one in a million at 1 Gb/s over 100 ms.
    let few = (traffic.missed + traffic.errors) * 1_000_000 <= all;
    if few { fine(seen) } else { advice(seen) }
        .wanted("none")
        .why(
            "each loss halves or pauses a connection; lost for lack of space: larger rings, more \
              queues or better placed interrupts; damaged: a cable, plug or optic",
        )
        .run(format!("ethtool -S {} | grep -iE 'drop|miss|err|discard'", one.name))
        .answer()
}

pub(super) fn coalescing(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> Answer {
    if one.kind != InterfaceKind::Hardware {
        return NOTHING;
    }
    let has = one.coalescing.clone()?;
    if has.adaptive_receive || has.receive_us > 0 || !target.is_at_least(FAST) {
        let how =
            if has.adaptive_receive { "adaptive".into() } else { format!("{} us", has.receive_us) };
        return fine(how).answer();
    }
    advice("off: one interrupt per packet")
        .wanted("adaptive")
        .why(
            "at such rates one interrupt per packet leaves no time for the packets (ESnet's \
              guide for 100G)",
        )
        .run(format!("sudo ethtool -C {} adaptive-rx on adaptive-tx on", one.name))
        .answer()
}

pub(super) fn pause(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> Answer {
    if one.kind != InterfaceKind::Hardware || !target.is_at_least(40) {
        return NOTHING;
    }
    let pause = one.pause.clone()?;
    if pause.receive && pause.send {
        return fine("on").answer();
    }
    let word = |on| if on { "on" } else { "off" };
    advice(format!("receiving {}, sending {}", word(pause.receive), word(pause.send)))
        .wanted("on")
        .why(
            "a switch that may pause the host, and the other way round, loses nothing in a burst \
              (ESnet's guide for 100G); leave it where a lossless class is set up instead",
        )
        .run(format!("sudo ethtool -A {} rx on tx on", one.name))
        .answer()
}
