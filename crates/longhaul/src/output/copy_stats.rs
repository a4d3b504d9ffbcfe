//! The counts of a copy as a table (`cp --stats`).

use std::fmt::Write as _;

use longhaul_core::result::{CopyResult, EndReport};

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
        ("blocks sent again", summary.resent_blocks.to_string()),
        ("connections", summary.streams.to_string()),
        ("reconnections", summary.reconnects.to_string()),
        ("time", format!("{:.3} s", summary.seconds)),
        ("time without a connection", format!("{:.3} s", summary.outage_seconds)),
    ];
    if let Some(retransmits) = summary.retransmits {
        rows.push(("segments sent again", retransmits.to_string()));
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
