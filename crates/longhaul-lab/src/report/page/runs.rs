//! The section of all runs.

use std::collections::BTreeMap;

use longhaul_core::result::{Caches, Outcome, RunRecord};
use maud::{Markup, html as markup};
use serde_json::Value;

use crate::archive::Contents;
use crate::report::text::gbps;
use crate::table::Table;

/// Returns every run by cell, in the order of the table, with the data needed to repeat and judge it.
/// Output and link reports are in the archive's documents.
pub(super) fn section(contents: &Contents, table: &Table) -> Markup {
    let mut cells: BTreeMap<(usize, usize), Vec<&RunRecord>> = BTreeMap::new();
    for run in &contents.runs {
        let row = table.rows.iter().position(|row| row.label == run.label);
        let path = table.conditions.iter().position(|condition| *condition == run.condition);
        // All runs belong to rows and paths of the plan; a run without them comes last.
        let place = (row.unwrap_or(usize::MAX), path.unwrap_or(usize::MAX));
        cells.entry(place).or_default().push(run);
    }
    markup! {
        p.soft {
            "The runs by row and path. CPU: the CPU time of the commands, without the emulator. Emulator: "
            "the CPU time of the emulator, with the kernel's receiving TCP work. Steal: the share of the CPU "
            "time that the hypervisor took. Late: the lateness that 1 in 1000 packets exceeded in the "
            "emulator, in the worse direction."
        }
        div.scroll.cells { @for runs in cells.values() { (cell(runs)) } }
    }
}

fn cell(runs: &[&RunRecord]) -> Markup {
    let Some(first) = runs.first() else { return markup! {} };
    let good = runs.iter().filter(|run| run.outcome == Outcome::Ok).count();
    let bad = runs.len() - good;
    let valid = runs.iter().filter(|run| run.outcome == Outcome::Ok);
    let best = valid.filter_map(|run| run.throughput_bps).max();
    markup! {
        details data-tool=(first.tool) data-rtt=(first.condition.rtt.as_millis())
            data-rate=(best.map_or(0, |rate| rate.bps())) data-bad=(bad)
        {
            summary {
                span { (first.label) }
                span { (first.condition.label()) }
                span { (good) " run" @if good != 1 { "s" } }
                span.bad { @if bad > 0 { (bad) " excluded" } }
            }
            div.run {
                @if !first.near_command.is_empty() { pre { "near$ " (first.near_command) } }
                @if let Some(command) = &first.far_command { pre { "far$ " (command) } }
                p.soft {
                    (first.tool_version)
                    @if let Some(caches) = first.caches { " \u{b7} " (treated(caches)) }
                    @if first.far_caches_kept { " at the near end, kept at the far end" }
                }
                (lines(runs))
            }
        }
    }
}

fn lines(runs: &[&RunRecord]) -> Markup {
    markup! {
        div.scroll {
            table.small {
                thead { tr {
                    th.figure { "No." }
                    th.figure { "Pass" }
                    th.figure { "Gb/s" }
                    th.figure { "Seconds" }
                    th.figure { "Durable, s" }
                    th.figure { "CPU, s" }
                    th.figure { "Emulator, s" }
                    th.figure { "Steal" }
                    th.figure { "Late, ms" }
                    th { "Began" }
                    th { "Verdict" }
                } }
                tbody { @for run in runs { (line(run)) } }
            }
        }
    }
}

fn line(run: &RunRecord) -> Markup {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or(String::new(), |value| format!("{value:.digits$}"))
    };
    let steal = run.host.map(|host| format!("{:.1} %", host.steal_share * 100.0));
    let (verdict, reason) = match &run.outcome {
        Outcome::Ok => ("valid", ""),
        Outcome::Failed { reason } => ("failed", reason.as_str()),
        Outcome::Invalid { reason } => ("invalid", reason.as_str()),
    };
    markup! {
        tr {
            td.figure { (run.sequence) @if run.attempt > 1 { "." (run.attempt) } }
            td.figure { (run.repeat) }
            td.figure { (run.throughput_bps.map(gbps).unwrap_or_default()) }
            td.figure { (number(run.seconds, 2)) }
            td.figure { (number(run.durable_seconds, 2)) }
            td.figure { (number(run.cpu.map(|cpu| cpu.total_seconds()), 2)) }
            td.figure { (number(run.cpu.and_then(|cpu| cpu.emulator_seconds), 2)) }
            td.figure { (steal.unwrap_or_default()) }
            td.figure { (number(late_ms(run), 2)) }
            td { (run.started_at) }
            td.wrap.bad[verdict != "valid"] {
                (verdict)
                @if !reason.is_empty() { ": " (reason) }
                @for note in &run.notes { span.range { (note) } }
            }
        }
    }
}

/// Returns the 99.9th percentile of lateness in ms in the worst direction, from the report of the
/// link or the reports of parallel links.
fn late_ms(run: &RunRecord) -> Option<f64> {
    let links = run.path.as_array().map_or(std::slice::from_ref(&run.path), Vec::as_slice);
    let way = |link: &Value, way: &str| link.pointer(&format!("/{way}/lateness/p999_ms"))?.as_f64();
    let each = links.iter().flat_map(|link| [way(link, "up"), way(link, "down")]);
    each.flatten().reduce(f64::max)
}

fn treated(caches: Caches) -> &'static str {
    match caches {
        Caches::Dropped => "caches dropped",
        Caches::Advised => "source's pages dropped on advice (caches could not be dropped)",
    }
}
