//! The result of a copy as text.

use std::fmt::Write as _;

use longhaul_core::plan::Verify;
use longhaul_core::result::{
    Action, ActionKind, AddressReport, CopyLimit, CopyPathReport, CopyResult, CopySummary,
    DigestOf, EndReport,
};
use longhaul_core::text::{Escaped, escape};
use longhaul_core::units::Bytes;

use super::style::{Style, styled};
use super::test::words::{millis, wrap};
use super::{output_is_colored, output_is_terminal, text_columns, with_escaped_text};

/// Returns the actions, the digests and a summary. The last line has the rate.
pub(crate) fn copy_text(result: &CopyResult) -> String {
    let mut text = String::new();
    for Action { what, path, .. } in &result.actions {
        let _ = writeln!(text, "{} {path}", what.as_str());
    }
    for DigestOf { blake3, path, .. } in &result.digests {
        let _ = writeln!(text, "{}  {path}", Escaped(blake3));
    }
    if result.summary.dry_run {
        return text + &dry_run_text(result);
    }
    if let Some(manifest) = &result.summary.manifest {
        let _ = writeln!(text, "manifest: {manifest}");
    }
    text + &fitting(&summary_text(result))
}

/// Returns `text` with lines that break between words on a terminal. Programs read whole lines.
fn fitting(text: &str) -> String {
    if !output_is_terminal() {
        return text.to_owned();
    }
    let lines: Vec<String> = text.lines().map(|line| wrap(line, text_columns())).collect();
    lines.join("\n")
}

fn dry_run_text(result: &CopyResult) -> String {
    let of = |kinds: &[ActionKind]| {
        let found = result.actions.iter().filter(|action| kinds.contains(&action.what));
        let (count, bytes) = found
            .fold((0_u64, 0), |(count, bytes), action| (count + 1, bytes + action.bytes.get()));
        (count, Bytes::new(bytes))
    };
    let (changed, bytes) = of(&[ActionKind::Create, ActionKind::Replace]);
    let (deleted, _) = of(&[ActionKind::Delete]);
    let unchanged = result.summary.unchanged_files;
    format!(
        "dry run, nothing was changed: {changed} to create or replace ({bytes}), {deleted} to \
         delete, {unchanged} unchanged"
    )
}

fn summary_text(result: &CopyResult) -> String {
    let (summary, path) = (&with_escaped_text(&result.summary), &with_escaped_text(&result.path));
    let more = further_counts(result);
    // A copy without files has no rate and no load.
    if summary.files == 0 && summary.bytes.get() == 0 && !more.is_empty() {
        return format!("no file was copied: {}", more.trim_start_matches(", "));
    }
    let steps: String = path.steps.iter().map(|step| format!("{step}\n")).collect();
    let verdict = match &escape(&result.verdict)[..] {
        "" => String::new(),
        verdict => styled(Style::Measured, verdict, output_is_colored()) + "\n",
    };
    let mut facts = guarantees(result, summary);
    facts.extend(transfer_facts(summary, path));
    facts.push(format!(
        "CPU {:.0} % at the source, {:.0} % at the sink",
        result.source.end.cpu_percent, result.sink.end.cpu_percent
    ));
    facts.extend(address_facts(path));
    format!(
        "{steps}{}\n{verdict}{} in {} {}{more} in {:.2} s: {}",
        facts.join(", "),
        summary.bytes,
        summary.files,
        plural(summary.files, "file"),
        summary.seconds,
        summary.throughput_bps,
    )
}

/// Returns the counts of files that were not copied, each after a comma.
fn further_counts(result: &CopyResult) -> String {
    let mut more = String::new();
    for (count, what) in [
        (result.summary.unchanged_files, "unchanged"),
        (result.summary.deleted, "deleted"),
        (result.failures.len() as u64, "failed"),
    ] {
        if count > 0 {
            let _ = write!(more, ", {count} {what}");
        }
    }
    more
}

/// Returns whether the copied files were verified, encrypted and synced.
fn guarantees(result: &CopyResult, summary: &CopySummary) -> Vec<String> {
    // Without a complete file nothing was verified or synced.
    if !result.failures.is_empty() && summary.files == 0 {
        return Vec::new();
    }
    let yes = |is: bool, word: &str| if is { word.to_owned() } else { format!("not {word}") };
    vec![
        match summary.verification {
            Some(Verify::Reread) => "verified by reading back from disk".to_owned(),
            _ => yes(summary.verified, "verified"),
        },
        yes(summary.encrypted, "encrypted"),
        yes(summary.durable, "synced to disk"),
    ]
}

/// Returns the streams, the retransmits and the interruptions of a copy.
fn transfer_facts(summary: &CopySummary, path: &CopyPathReport) -> Vec<String> {
    let counted = |count: u64, noun: &str| format!("{count} {}", plural(count, noun));
    let mut facts = vec![counted(summary.streams.into(), "stream")];
    facts.extend(summary.retransmits.map(|retransmits| counted(retransmits, "retransmit")));
    facts.extend(path.congestion.clone());
    if summary.reconnects > 0 {
        facts.push(counted(summary.reconnects.into(), "reconnect"));
    }
    if summary.resumed_bytes.get() > 0 {
        facts.push(format!("{} resumed", summary.resumed_bytes));
    }
    if summary.resent_blocks > 0 {
        facts.push(format!("{} corrupted blocks resent", summary.resent_blocks));
    }
    facts.extend(summary.rtt_ms.map(|rtt| format!("RTT {}", millis(rtt))));
    facts
}

/// Returns the bytes per address, if there are several.
fn address_facts(path: &CopyPathReport) -> Vec<String> {
    let [_, _, ..] = &path.addresses[..] else { return Vec::new() };
    let fact = |over: &AddressReport| {
        let streams = plural(over.streams.into(), "stream");
        format!("{} over {} ({} {streams})", over.bytes, over.address, over.streams)
    };
    path.addresses.iter().map(fact).collect()
}

/// Returns the sentence with the limit of a copy and the share of time that each stage waited. It
/// is empty if nothing was copied.
pub(crate) fn copy_verdict(result: &CopyResult) -> String {
    let summary = &result.summary;
    if summary.bytes <= summary.resumed_bytes {
        return String::new();
    }
    let limit = match result.limit {
        Some(CopyLimit::Outage) => outage_words(summary.outage_seconds, summary.seconds),
        Some(limit) => limit_words(limit, &result.path),
        None => "no limit found".to_owned(),
    };
    if matches!(result.limit, Some(CopyLimit::TooShort)) {
        return limit;
    }
    let (source, sink) = (&result.source.stages, &result.sink.stages);
    let busy = [
        ("reading", source.read),
        ("sealing", source.seal),
        ("sending", source.send),
        ("receiving", sink.receive),
        ("verifying", sink.verify),
        ("writing", sink.write),
        ("syncing", sink.sync),
    ];
    let waited: Vec<_> = busy
        .iter()
        .filter_map(|(stage, share)| Some(format!("{stage} {:.0} %", 100.0 * (1.0 - (*share)?))))
        .collect();
    format!("{limit}; waited: {}", waited.join(", "))
}

fn outage_words(outage: f64, seconds: f64) -> String {
    format!("limited by an outage: the path carried nothing for {outage:.0} of {seconds:.0} s")
}

fn limit_words(limit: CopyLimit, path: &CopyPathReport) -> String {
    let share = |share: f64| format!("{:.0} %", 100.0 * share);
    let resource = match limit {
        CopyLimit::Rate => return "limited by the requested rate (--bwlimit)".to_owned(),
        CopyLimit::TooShort => return "too short to determine the limit".to_owned(),
        CopyLimit::RampUp => "the ramp-up: the copy ended before it reached a steady rate; a \
                              longer copy is faster"
            .to_owned(),
        CopyLimit::Outage => "an outage".to_owned(),
        CopyLimit::SourceDisk => "the source's disk".to_owned(),
        CopyLimit::SourceCpu => "the CPU of the source's host".to_owned(),
        CopyLimit::Sealing => "encryption and hashing at the source".to_owned(),
        CopyLimit::SendWindow => format!(
            "the send window for {} of the time (net.ipv4.tcp_wmem at the source)",
            share(path.send_buffer_limited)
        ),
        CopyLimit::Path => "the path".to_owned(),
        CopyLimit::Loss => format!("loss: {:.4} % retransmitted", 100.0 * path.loss),
        CopyLimit::ShallowQueue => format!(
            "a policer or a switch with small buffers, which drops segments at {} and more without a \
             queueing delay ({:.4} % retransmitted)",
            path.drops_at_bps.unwrap_or_default(),
            100.0 * path.loss
        ),
        CopyLimit::ReceiveWindow => format!(
            "the receive window for {} of the time (net.ipv4.tcp_rmem at the sink)",
            share(path.receive_window_limited)
        ),
        CopyLimit::SinkCpu => "the CPU of the sink's host".to_owned(),
        CopyLimit::SinkDisk => "the sink's disk".to_owned(),
        CopyLimit::Cpu => "the CPU: source and sink are on this host".to_owned(),
    };
    format!("limited by {resource}")
}

fn plural(count: u64, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// Returns a line per count: files, bytes, times and load.
pub(crate) fn copy_stats(result: &CopyResult) -> String {
    let summary = &result.summary;
    let sent = summary.bytes.get().saturating_sub(summary.resumed_bytes.get());
    let mut rows = vec![
        ("files copied", summary.files.to_string()),
        ("files unchanged", summary.unchanged_files.to_string()),
        ("files failed", result.failures.len().to_string()),
        ("paths skipped", result.skipped.len().to_string()),
        ("paths deleted", summary.deleted.to_string()),
        ("bytes of copied files", summary.bytes.get().to_string()),
        ("bytes sent", sent.to_string()),
        ("bytes resumed", summary.resumed_bytes.get().to_string()),
        ("blocks resent", summary.resent_blocks.to_string()),
        ("connections", summary.streams.to_string()),
        ("reconnections", summary.reconnects.to_string()),
        ("time", format!("{:.3} s", summary.seconds)),
        ("time without a connection", format!("{:.3} s", summary.outage_seconds)),
    ];
    if let Some(retransmits) = summary.retransmits {
        rows.push(("segments retransmitted", retransmits.to_string()));
    }
    if let Some(rtt) = summary.rtt_ms {
        rows.push(("round-trip time", format!("{rtt:.3} ms")));
    }
    rows.extend(load(&result.source, "CPU time at the source", "memory at the source"));
    rows.extend(load(&result.sink, "CPU time at the sink", "memory at the sink"));
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<26} {value}");
    }
    text
}

fn load(
    report: &EndReport,
    time: &'static str,
    memory: &'static str,
) -> [(&'static str, String); 2] {
    let end = &report.end;
    let spent = format!("{:.3} s ({:.0} % of a core)", end.cpu_seconds, end.cpu_percent);
    [(time, spent), (memory, end.peak_memory_bytes.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_worded_with_their_figures() {
        let path =
            CopyPathReport { loss: 1e-4, receive_window_limited: 0.7, ..CopyPathReport::default() };
        for (limit, expected) in [
            (CopyLimit::Loss, "limited by loss: 0.0100 % retransmitted"),
            (
                CopyLimit::ReceiveWindow,
                "limited by the receive window for 70 % of the time (net.ipv4.tcp_rmem at the sink)",
            ),
            (CopyLimit::TooShort, "too short to determine the limit"),
            (CopyLimit::Rate, "limited by the requested rate (--bwlimit)"),
        ] {
            assert_eq!(limit_words(limit, &path), expected);
        }
    }
}
