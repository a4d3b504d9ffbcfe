//! The progress bar and the result of a copy as text.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::plan::Verify;
use longhaul_core::result::{Action, ActionKind, CopyLimit, CopyPathReport, CopyResult, DigestOf};
use longhaul_core::text::{Escaped, escape};
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::copy::CopyProgress;

use super::test::words::wrap;
use super::{error_is_terminal, output_is_terminal, text_columns, with_escaped_text};

/// The time between two updates of the bar.
const REDRAW: Duration = Duration::from_millis(200);
/// The number of updates that the shown rate covers: 3 s, steadier than the rate of one update.
const RATE_WINDOW: usize = 15;

/// A progress bar on standard error, if that is a terminal.
pub(crate) struct CopyBar {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CopyBar {
    /// Starts to draw `progress`, unless `quiet` is set or standard error is no terminal.
    pub(crate) fn start(progress: Arc<CopyProgress>, quiet: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let shown = !quiet && error_is_terminal();
        let thread = shown.then(|| {
            let over = over.clone();
            thread::spawn(move || draw(&progress, &over))
        });
        CopyBar { over, thread }
    }

    /// Removes the bar.
    pub(crate) fn finish(mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn draw(progress: &CopyProgress, over: &AtomicBool) {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    let start = Instant::now();
    let mut recent = vec![(start, Bytes::new(0))];
    while !over.load(Ordering::Relaxed) {
        let (moved, total, now) = (progress.moved(), progress.total(), Instant::now());
        recent.push((now, moved));
        if recent.len() > RATE_WINDOW {
            recent.remove(0);
        }
        let (since, before) = recent[0];
        let gained = Bytes::new(moved.get().saturating_sub(before.get()));
        let rate = Rate::mean(gained, now - since);
        bar.set_length(total.get());
        bar.set_position(moved.get());
        bar.set_message(message(progress, moved, total, rate));
        thread::park_timeout(REDRAW);
    }
    bar.finish_and_clear();
}

fn message(progress: &CopyProgress, moved: Bytes, total: Bytes, rate: Rate) -> String {
    let left = match (progress.listed(), rate.bytes_per_second()) {
        (true, speed @ 1..) => {
            let seconds = total.get().saturating_sub(moved.get()) / speed;
            format!("  {}:{:02} left", seconds / 60, seconds % 60)
        }
        // The total is not known yet, or the rate is zero.
        _ => String::new(),
    };
    let files = match progress.total_files() {
        0 | 1 => String::new(),
        total => format!("  {}/{total} files", progress.files()),
    };
    let more = if progress.listed() { "" } else { "+" };
    let limit = match (progress.limit(), progress.busiest()) {
        (Some(limit), _) => format!("  (limit {limit})"),
        (None, Some(stage)) => format!("  (limit: {})", stage.as_str()),
        (None, None) => String::new(),
    };
    // Standard input has no total before its end.
    let of = if total < moved { String::new() } else { format!(" of {total}{more}") };
    format!("{moved}{of}{files}  {rate}{left}{limit}")
}

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
    let verdict = escape(&result.verdict);
    let yes = |is: bool, word: &str| if is { word.to_owned() } else { format!("not {word}") };
    let mut facts = Vec::new();
    // Without a complete file nothing was verified or synced.
    if result.failures.is_empty() || summary.files > 0 {
        facts.extend([
            match summary.verification {
                Some(Verify::Reread) => "verified by reading back from disk".to_owned(),
                _ => yes(summary.verified, "verified"),
            },
            yes(summary.encrypted, "encrypted"),
            yes(summary.durable, "synced to disk"),
        ]);
    }
    facts.extend([format!("{} {}", summary.streams, plural(summary.streams.into(), "stream"))]);
    if let Some(retransmits) = summary.retransmits {
        facts.push(format!("{retransmits} {}", plural(retransmits, "retransmit")));
    }
    facts.extend(path.congestion.clone());
    if summary.reconnects > 0 {
        facts.push(format!(
            "{} {}",
            summary.reconnects,
            plural(summary.reconnects.into(), "reconnect")
        ));
    }
    if summary.resumed_bytes.get() > 0 {
        facts.push(format!("{} resumed", summary.resumed_bytes));
    }
    if summary.resent_blocks > 0 {
        facts.push(format!("{} corrupted blocks resent", summary.resent_blocks));
    }
    if let Some(rtt) = summary.rtt_ms {
        facts.push(format!("RTT {rtt:.1} ms"));
    }
    facts.push(format!(
        "CPU {:.0} % at the source, {:.0} % at the sink",
        result.source.end.cpu_percent, result.sink.end.cpu_percent
    ));
    let mut more = String::new();
    for (count, what) in [
        (summary.unchanged_files, "unchanged"),
        (summary.deleted, "deleted"),
        (result.failures.len() as u64, "failed"),
    ] {
        if count > 0 {
            let _ = write!(more, ", {count} {what}");
        }
    }
    if let [_, _, ..] = &path.addresses[..] {
        facts.extend(path.addresses.iter().map(|over| {
            let streams = plural(over.streams.into(), "stream");
            format!("{} over {} ({} {streams})", over.bytes, over.address, over.streams)
        }));
    }
    let steps: String = path.steps.iter().map(|step| format!("{step}\n")).collect();
    let verdict = if verdict.is_empty() { String::new() } else { format!("{verdict}\n") };
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
        None => "nothing stands out".to_owned(),
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
        CopyLimit::TooShort => return "too short to name a limit".to_owned(),
        CopyLimit::RampUp => "the ramp-up: the copy ended before it reached a steady rate, and a \
                              longer one is faster"
            .to_owned(),
        CopyLimit::Outage => "an outage".to_owned(),
        CopyLimit::SourceDisk => "the source's disk".to_owned(),
        CopyLimit::SourceCpu => "the CPU of the source's host".to_owned(),
        CopyLimit::Sealing => "sealing at the source".to_owned(),
        CopyLimit::SendWindow => format!(
            "the send window for {} of the time (net.ipv4.tcp_wmem at the source)",
            share(path.send_buffer_limited)
        ),
        CopyLimit::Path => "the path".to_owned(),
        CopyLimit::Loss => format!("loss: {:.4} % retransmitted", 100.0 * path.loss),
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
            (CopyLimit::TooShort, "too short to name a limit"),
            (CopyLimit::Rate, "limited by the requested rate (--bwlimit)"),
        ] {
            assert_eq!(limit_words(limit, &path), expected);
        }
    }
}
