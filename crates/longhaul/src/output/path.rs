//! The measurements of a path as text for terminals of 80 columns: tables, then sentences.

use std::fmt::Write;

use longhaul_core::result::{
    Hop, Hops, MtuLimit, MtuProof, PathDirection, PathResult, ProbeFigures, RoundTrips,
};

use super::test::words::{count, millis, wrap};
use super::{text_columns, with_escaped_text};

/// Returns the text of a result.
pub(crate) fn path_text(result: &PathResult) -> String {
    let result = &with_escaped_text(result);
    let mut text = head(result);
    round_trips(&mut text, result);
    for (way, at) in ways(result) {
        if let Some(hops) = &at.hops {
            hop_table(&mut text, way, hops);
        }
    }
    mtu_table(&mut text, result);
    probe_table(&mut text, result);
    capacity_table(&mut text, result);
    if !result.unmeasured.is_empty() {
        text.push_str("not measured\n");
        for missing in &result.unmeasured {
            indented(&mut text, &format!("{}: {}", missing.what, missing.why), 2, 4);
        }
        text.push('\n');
    }
    for sentence in &result.summary {
        let _ = writeln!(text, "{}", wrap(sentence, text_columns()));
    }
    text
}

fn ways(result: &PathResult) -> [(&'static str, &PathDirection); 2] {
    [("there", &result.forward), ("back", &result.reverse)]
}

fn head(result: &PathResult) -> String {
    let local = result.local.map_or(String::new(), |local| format!(" from {local}"));
    let address = if result.target.contains(&result.address.to_string()) {
        String::new()
    } else {
        format!(" ({})", result.address)
    };
    let helped = if result.served { "both directions" } else { "no server there" };
    let head =
        format!("path to {}{address}{local}: {helped}, in {:.1} s", result.target, result.seconds);
    format!("{}\n\n", wrap(&head, text_columns()))
}

fn round_trips(text: &mut String, result: &PathResult) {
    let Some(rtt) = &result.rtt else { return };
    let _ = writeln!(
        text,
        "{:<20}{:>10}{:>10}{:>10}{:>10}{:>20}",
        format!("round trip ({})", short(&rtt.by.to_string())),
        "min",
        "median",
        "p99",
        "spread",
        "answered"
    );
    for trips in [&rtt.small, &rtt.full].into_iter().flatten() {
        let RoundTrips { packet_bytes, asked, times, spread_ms } = trips;
        let name = match packet_bytes {
            0 => "handshake".to_owned(),
            bytes => format!("{bytes} bytes"),
        };
        let _ = writeln!(
            text,
            "  {name:<18}{:>10}{:>10}{:>10}{:>10}{:>20}",
            millis(times.min_ms),
            millis(times.p50_ms),
            millis(times.p99_ms),
            millis(*spread_ms),
            format!("{} of {asked}", times.answered)
        );
    }
    text.push('\n');
}

/// Returns the first word of the name of a kind of packets, for a heading.
fn short(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

fn hop_table(text: &mut String, way: &str, hops: &Hops) {
    let end = if hops.reached { "" } else { ", the host was not reached" };
    let _ = writeln!(text, "hops {way} ({}){end}", short(&hops.by.to_string()));
    for hop in &hops.list {
        let Hop { distance, addresses, answered, asked, min_ms, .. } = hop;
        let who = match addresses.as_slice() {
            [] => "no answer".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let time = min_ms.map_or("-".to_owned(), millis);
        let answers = format!("{answered} of {asked}");
        let _ = writeln!(text, "{distance:>4}  {who:<44}{time:>10}{answers:>20}");
    }
    text.push('\n');
}

fn mtu_table(text: &mut String, result: &PathResult) {
    let shown = |way: &PathDirection| !way.mtu.is_empty() || way.tcp.is_some();
    if !ways(result).into_iter().any(|(_, way)| shown(way)) {
        return;
    }
    text.push_str("path MTU, by packets that are never fragmented\n");
    for (way, at) in ways(result) {
        for proof in &at.mtu {
            let MtuProof { by, bytes, packets, .. } = proof;
            let bytes = bytes.map_or("-".to_owned(), |bytes| format!("{bytes} bytes"));
            let _ = writeln!(
                text,
                "  {way:<7}{:<11}{bytes:>12}  {} ({})",
                short(&by.to_string()),
                limit(proof),
                count((*packets).into(), "packet")
            );
        }
        if let Some(tcp) = &at.tcp {
            let proven = if tcp.proven() { "acknowledged" } else { "negotiated, not confirmed" };
            let again = match tcp.retransmits {
                0 => String::new(),
                count => format!(", {count} retransmitted"),
            };
            let _ = writeln!(
                text,
                "  {way:<7}{:<11}{:>12}  segments of {} bytes, {proven}{again}",
                "TCP",
                format!("{} bytes", tcp.path_mtu_bytes),
                tcp.segment_bytes
            );
        }
    }
    text.push('\n');
}

fn limit(proof: &MtuProof) -> String {
    match (proof.limit, proof.stopped_bytes) {
        (MtuLimit::Interface, _) => "limit of the sender's interface".to_owned(),
        (MtuLimit::Router { address }, _) => format!("limit of the router {address}"),
        (MtuLimit::Silent, Some(bytes)) => format!("{bytes} bytes are lost silently"),
        (MtuLimit::Silent | MtuLimit::Nothing, _) => "limit of IP".to_owned(),
    }
}

fn probe_table(text: &mut String, result: &PathResult) {
    let found: Vec<_> =
        ways(result).into_iter().filter_map(|(way, at)| Some((way, at.probes.as_ref()?))).collect();
    if found.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{:<9}{:>9}{:>8}{:>11}{:>11}{:>11}{:>10}{:>11}",
        "probes", "sent", "lost", "duplicated", "reordered", "jitter", "delay p50", "delay p99"
    );
    for (way, probes) in found {
        let ProbeFigures { sent, lost, duplicated, reordered, jitter_ms, delay, .. } = probes;
        let delay = |part: fn(&longhaul_core::result::DelayVariation) -> f64| {
            delay.as_ref().map_or("-".to_owned(), |delay| format!("+{}", millis(part(delay))))
        };
        let _ = writeln!(
            text,
            "  {way:<7}{sent:>9}{:>8}{:>11}{:>11}{:>11}{:>10}{:>11}",
            lost.count,
            duplicated.count,
            reordered.count,
            millis(*jitter_ms),
            delay(|delay| delay.p50_ms),
            delay(|delay| delay.p99_ms)
        );
    }
    text.push('\n');
}

fn capacity_table(text: &mut String, result: &PathResult) {
    let found: Vec<_> = ways(result)
        .into_iter()
        .filter_map(|(way, at)| Some((way, at.capacity.as_ref()?)))
        .collect();
    if found.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{:<9}{:>14}{:>26}{:>12}{:>19}",
        "capacity", "estimate", "95 % of the median", "trains", "packets"
    );
    for (way, capacity) in found {
        let estimate = capacity.estimate_bps.map_or("-".to_owned(), |rate| rate.to_string());
        let interval =
            capacity.interval_bps.map_or("-".to_owned(), |[low, high]| format!("{low} to {high}"));
        let trains = format!("{} of {}", capacity.trains_used, capacity.trains);
        let packets = format!("{} of {} B", capacity.packets, capacity.packet_bytes);
        let _ = writeln!(text, "  {way:<7}{estimate:>14}{interval:>26}{trains:>12}{packets:>19}");
    }
    text.push('\n');
}

/// Appends `what` with its first line indented by `first` columns and the others by `rest`.
fn indented(text: &mut String, what: &str, first: usize, rest: usize) {
    for (number, line) in wrap(what, text_columns() - rest).lines().enumerate() {
        let indent = if number == 0 { first } else { rest };
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
}
