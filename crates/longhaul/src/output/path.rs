//! The measurements of a path as text: tables, then sentences.

use std::fmt::Write;

use longhaul_core::result::{
    Hop, Hops, MtuLimit, MtuProof, PathDirection, PathResult, ProbeFigures, RoundTrips,
};

use super::test::words::{beside, count, millis, table, wrap};
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
    [("forward", &result.forward), ("reverse", &result.reverse)]
}

fn head(result: &PathResult) -> String {
    let local = result.local.map_or(String::new(), |local| format!(" from {local}"));
    let address = if result.target.contains(&result.address.to_string()) {
        String::new()
    } else {
        format!(" ({})", result.address)
    };
    let helped = if result.served { "both directions" } else { "no server on that host" };
    let head =
        format!("path to {}{address}{local}: {helped}, in {:.1} s", result.target, result.seconds);
    format!("{}\n\n", wrap(&head, text_columns()))
}

fn round_trips(text: &mut String, result: &PathResult) {
    let Some(rtt) = &result.rtt else { return };
    let head = [
        &format!("round trip ({})", short(&rtt.by.to_string())),
        "min",
        "median",
        "p99",
        "spread",
        "answered",
    ];
    let mut rows = vec![cells(head)];
    for trips in [&rtt.small, &rtt.full].into_iter().flatten() {
        let RoundTrips { packet_bytes, asked, times, spread_ms } = trips;
        let name = match packet_bytes {
            0 => "  handshake".to_owned(),
            bytes => format!("  {bytes} bytes"),
        };
        rows.push(vec![
            name,
            millis(times.min_ms),
            millis(times.p50_ms),
            millis(times.p99_ms),
            millis(*spread_ms),
            format!("{} of {asked}", times.answered),
        ]);
    }
    text.push_str(&table(&rows, &[20, 10, 10, 10, 10, 20], text_columns()));
    text.push('\n');
}

/// Returns the cells of a row of a table.
fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Returns the first word of the name of a kind of packets, for a heading.
fn short(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// The widths of the addresses and of the figures of a hop, and those on a narrow terminal.
const HOPS: [usize; 2] = [50, 30];
const NARROW_HOPS: [usize; 2] = [36, 24];

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
        let [left, right] = if text_columns() < HOPS.iter().sum() { NARROW_HOPS } else { HOPS };
        let figures = format!("{time:>10}{answers:>0$}", right - 10);
        let lines = wrap(&who, left - 6);
        let (first, rest) = lines.split_once('\n').unwrap_or((&lines, ""));
        let first = format!("{distance:>4}  {first}");
        // The figures are below an address without room for them.
        let gap = match left.checked_sub(first.chars().count()) {
            Some(gap) => " ".repeat(gap),
            None => format!("\n{:left$}", ""),
        };
        let _ = writeln!(text, "{first}{gap}{figures}");
        for line in rest.lines() {
            let _ = writeln!(text, "      {line}");
        }
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
            let figures = format!("  {way:<9}{:<9}{bytes:>12}  ", short(&by.to_string()));
            let what = format!("{} ({})", limit(proof), count((*packets).into(), "packet"));
            text.push_str(&beside(&figures, &what, 4, text_columns()));
        }
        if let Some(tcp) = &at.tcp {
            let proven = if tcp.proven() { "acknowledged" } else { "negotiated, not confirmed" };
            let again = match tcp.retransmits {
                0 => String::new(),
                count => format!(", {count} retransmitted"),
            };
            let bytes = format!("{} bytes", tcp.path_mtu_bytes);
            let figures = format!("  {way:<9}{:<9}{bytes:>12}  ", "TCP");
            let what = format!("segments of {} bytes, {proven}{again}", tcp.segment_bytes);
            text.push_str(&beside(&figures, &what, 4, text_columns()));
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
    let head =
        ["probes", "sent", "lost", "duplicated", "reordered", "jitter", "delay p50", "delay p99"];
    let mut rows = vec![cells(head)];
    for (way, probes) in found {
        let ProbeFigures { sent, lost, duplicated, reordered, jitter_ms, delay, .. } = probes;
        let delay = |part: fn(&longhaul_core::result::DelayVariation) -> f64| {
            delay.as_ref().map_or("-".to_owned(), |delay| format!("+{}", millis(part(delay))))
        };
        rows.push(vec![
            format!("  {way}"),
            sent.to_string(),
            lost.count.to_string(),
            duplicated.count.to_string(),
            reordered.count.to_string(),
            millis(*jitter_ms),
            delay(|delay| delay.p50_ms),
            delay(|delay| delay.p99_ms),
        ]);
    }
    text.push_str(&table(&rows, &[10, 8, 8, 11, 11, 11, 10, 11], text_columns()));
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
    let mut rows = vec![cells(["capacity", "estimate", "95 % of the median", "trains", "packets"])];
    for (way, capacity) in found {
        let interval =
            capacity.interval_bps.map_or("-".to_owned(), |[low, high]| format!("{low} to {high}"));
        rows.push(vec![
            format!("  {way}"),
            capacity.estimate_bps.map_or("-".to_owned(), |rate| rate.to_string()),
            interval,
            format!("{} of {}", capacity.trains_used, capacity.trains),
            format!("{} of {} B", capacity.packets, capacity.packet_bytes),
        ]);
    }
    text.push_str(&table(&rows, &[10, 13, 26, 12, 19], text_columns()));
    text.push('\n');
}

/// Appends `what` with its first line indented by `first` columns and the others by `rest`.
fn indented(text: &mut String, what: &str, first: usize, rest: usize) {
    for (number, line) in wrap(what, text_columns() - rest).lines().enumerate() {
        let indent = if number == 0 { first } else { rest };
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::MtuLimit;

    use super::*;
    use crate::output::{complete_path, on_columns};

    const RECORDED: &str = include_str!("../../../longhaul-core/tests/fixtures/path-1.json");

    fn recorded() -> PathResult {
        let mut result: PathResult = serde_json::from_str(RECORDED).unwrap();
        let router = "2001:db8:1234:5678:9abc:def0:1234:5678".parse().unwrap();
        let hops = result.forward.hops.as_mut().unwrap();
        hops.list[0].addresses = vec![router, "198.18.0.2".parse().unwrap()];
        result.forward.mtu[0].limit = MtuLimit::Router { address: router };
        complete_path(&mut result);
        result
    }

    #[test]
    fn lines_fit_the_terminal_and_words_are_whole() {
        let result = recorded();
        let wide = on_columns(200, || path_text(&result));
        let words = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words.dedup();
            words
        };
        for columns in [60, 70, 80, 100] {
            let text = on_columns(columns, || path_text(&result));
            let long = text.lines().find(|line| line.chars().count() > columns);
            assert_eq!(long, None, "{columns}:\n{text}");
            assert_eq!(words(&text), words(&wide), "{columns}:\n{text}");
        }
    }

    #[test]
    fn without_a_terminal_a_table_has_80_columns() {
        let text = path_text(&recorded());
        let head =
            "round trip (UDP)           min    median       p99    spread            answered";
        assert!(text.contains(head), "{text}");
    }
}
