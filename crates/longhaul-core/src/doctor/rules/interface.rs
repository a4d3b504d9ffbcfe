//! Rules for the path to the named host, and for network interfaces.

use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, judged, problem, unknown};
use crate::doctor::rules::percent;
use crate::doctor::{HostFacts, InterfaceFacts, InterfaceKind, PathFacts, Target};
use crate::result::FindingVerdict;

pub(super) fn route(path: &PathFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    let address = match &path.address {
        Ok(address) => address.to_string(),
        Err(unseen) => return problem("no_address").with("unseen", unseen.to_string()).answer(),
    };
    match &path.interface {
        Ok(interface) => fine("routed").with("interface", interface.as_str()),
        Err(unseen) => problem("no_route").with("unseen", unseen.to_string()),
    }
    .with("address", address)
    .answer()
}

pub(super) fn answer(path: &PathFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    if path.address.is_err() {
        return NOTHING;
    }
    match &path.answer {
        Ok((rtt, true)) => fine("open").with_ms("rtt_ms", *rtt),
        Ok((rtt, false)) => advice("closed").with_ms("rtt_ms", *rtt),
        Err(unseen) => unknown("silent").with("unseen", unseen.to_string()),
    }
    .with("port", u32::from(target.port))
    .answer()
}

pub(super) fn route_mtu(path: &PathFacts, host: &HostFacts, _: &Target) -> RuleAnswer {
    let (Ok(Some(limit)), Ok(name)) = (&path.route_mtu, &path.interface) else { return NOTHING };
    let interface = host.interfaces.iter().find(|interface| interface.name == *name);
    let Some(Ok(mtu)) = interface.map(|interface| &interface.mtu) else { return NOTHING };
    let judgement = if limit >= mtu { fine("same") } else { advice("smaller") };
    judgement
        .with("mtu_bytes", *limit)
        .with("interface", name.as_str())
        .with("interface_mtu_bytes", *mtu)
        .answer()
}

/// The ring size in ESnet's guide for 100G, if the card supports it.
const RING: u32 = 8192;
/// The usual payload of jumbo frames.
const JUMBO: u32 = 9000;
/// The rate in Gb/s above which the cost per packet dominates.
const FAST: u64 = 10;

pub(super) fn exists(host: &HostFacts, _: &Target) -> RuleAnswer {
    if host.missing_interfaces.is_empty() {
        return NOTHING;
    }
    problem("missing").with("interfaces", host.missing_interfaces.join(", ")).answer()
}

pub(super) fn state(one: &InterfaceFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    let state = one.state.clone()?;
    match state.as_str() {
        "up" => fine("up"),
        "unknown" => fine("no_carrier_state"),
        _ => problem("down").with("state", state),
    }
    .with_any("driver", one.driver.as_deref().ok())
    .answer()
}

pub(super) fn speed(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    if one.kind == InterfaceKind::Software {
        return NOTHING;
    }
    let Some(speed) = one.speed.clone()? else {
        let wireless = one.kind == InterfaceKind::Wireless;
        return if wireless { advice("wireless") } else { unknown("unreported") }.answer();
    };
    let share = target.share(one.sharers);
    let judgement = if speed >= share { fine("rate") } else { problem("rate") };
    judgement.with("speed_bps", speed).with("wanted_bps", share).answer()
}

/// Returns the packets per second at the target rate.
fn packets_per_second(target: &Target, packet_bytes: u32) -> f64 {
    target.rate.bps() as f64 / (8.0 * f64::from(packet_bytes))
}

pub(super) fn mtu(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    let mtu = one.mtu.clone()?;
    let enough = mtu >= JUMBO || !target.is_at_least(FAST) || one.kind == InterfaceKind::Wireless;
    if enough { fine("enough") } else { advice("small") }
        .with("mtu_bytes", mtu)
        .with("jumbo_bytes", JUMBO)
        .with("packets_per_second", packets_per_second(target, mtu))
        .with("jumbo_packets_per_second", packets_per_second(target, JUMBO))
        .with("target_bps", target.rate)
        .answer()
}

pub(super) fn queueing(one: &InterfaceFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    let queueing = one.queueing.clone()?;
    let kinds =
        if queueing.leaves.is_empty() { vec![queueing.root.clone()] } else { queueing.leaves };
    let leaves = (kinds[0] != queueing.root).then(|| kinds.join(", "));
    let paced =
        kinds.iter().all(|kind| matches!(kind.as_str(), "fq" | "fq_codel" | "noqueue" | "cake"));
    // With mq at the root each hardware queue has a separate discipline. Replacing mq creates these
    // disciplines again with the default.
    match (paced, queueing.root.as_str()) {
        (true, _) => fine("paced"),
        (false, "mq") => advice("not_paced_per_queue"),
        (false, _) => advice("not_paced"),
    }
    .with("qdisc", queueing.root)
    .with_any("leaf_qdiscs", leaves)
    .answer()
}

pub(super) fn offloads(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
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
    let lro = on_or_off(has.lro);
    if off.is_empty() {
        return fine("on").with("lro", lro).answer();
    }
    let slow = !target.is_at_least(FAST);
    judged(if slow { FindingVerdict::Advice } else { FindingVerdict::Problem }, "off")
        .with("off", off.join(", "))
        .with("switches", off.join(" on "))
        .with("lro", lro)
        .with("packets_per_second", packets_per_second(target, 1500))
        .answer()
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

pub(super) fn rings(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    if one.kind != InterfaceKind::Hardware {
        return NOTHING;
    }
    let rings = one.rings.clone()?;
    let (receive, send) = (rings.receive_max.min(RING), rings.send_max.min(RING));
    let enough = !target.is_at_least(FAST) || (rings.receive >= receive && rings.send >= send);
    let packets = packets_per_second(target, *one.mtu.as_ref().unwrap_or(&1500));
    if enough { fine("enough") } else { advice("small") }
        .with("receive", rings.receive)
        .with("receive_max", rings.receive_max)
        .with("send", rings.send)
        .with("send_max", rings.send_max)
        .with("wanted_receive", receive)
        .with("wanted_send", send)
        .with("guide_size", RING)
        .with("fills_us", f64::from(rings.receive) / packets * 1e6)
        .with("target_bps", target.rate)
        .answer()
}

pub(super) fn missed(one: &InterfaceFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    let traffic = one.traffic.clone()?;
    let lost = traffic.missed + traffic.errors;
    if lost == 0 {
        return fine("none").with("received", traffic.received).answer();
    }
    let all = traffic.received + lost;
    // CUBIC tolerates a loss of one in a million at 1 Gb/s over 100 ms.
    let few = lost * 1_000_000 <= all;
    if few { fine("lost") } else { advice("lost") }
        .with("missed", traffic.missed)
        .with("damaged", traffic.errors)
        .with("packets", all)
        .with("lost_percent", percent(lost, all))
        .answer()
}

pub(super) fn coalescing(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    if one.kind != InterfaceKind::Hardware {
        return NOTHING;
    }
    let has = one.coalescing.clone()?;
    match has.receive_us {
        _ if has.adaptive_receive => fine("adaptive"),
        0 if target.is_at_least(FAST) => advice("off"),
        wait => fine("fixed").with("wait_us", wait),
    }
    .answer()
}

pub(super) fn pause(one: &InterfaceFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    if one.kind != InterfaceKind::Hardware || !target.is_at_least(40) {
        return NOTHING;
    }
    let pause = one.pause.clone()?;
    let on = pause.receive && pause.send;
    if on { fine("on") } else { advice("off") }
        .with("receiving", on_or_off(pause.receive))
        .with("sending", on_or_off(pause.send))
        .answer()
}
