use longhaul_core::plan::{Condition, Workload};
use longhaul_core::result::{Guarantees, Outcome, RunRecord};
use longhaul_core::units::Rate;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use super::text::{gbps, headline};
use super::{facts, plot, runs};
use crate::archive::Contents;
use crate::table::{CellFigure, CellState, Row, Table};

const STYLE: &str = include_str!("report.css");

/// The report: one HTML document that needs no network and no script.
pub fn html(contents: &Contents, table: &Table) -> String {
    let plan = &contents.header.plan;
    let document = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "longhaul matrix: " (plan.name) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "Wide-area transfer matrix" }
                    p.soft { (headline(contents)) " \u{b7} " (contents.header.started_at) }
                    @for sentence in summary(table) { p.lead { (sentence) } }
                    h2 { "Throughput, Gb/s" }
                    (figures(table))
                    (notes(table))
                    @for workload in Workload::ALL {
                        (ratios(table, workload))
                    }
                    h2 { "Throughput against round-trip time" }
                    @for workload in Workload::ALL {
                        @if let Some(plot) = plot::throughput(table, workload) {
                            (PreEscaped(plot))
                        }
                    }
                    h2 { "Host, path and tools" }
                    (facts::facts(contents))
                    h2 { "Every run" }
                    (runs::runs(contents))
                    footer {
                        "Written by longhaul " (contents.header.program_version) ". The archive "
                        "beside this file holds every run with its output."
                    }
                }
            }
        }
    };
    document.into_string()
}

/// For each workload, the fastest and the slowest row on the longest path that has figures.
fn summary(table: &Table) -> Vec<String> {
    Workload::ALL.into_iter().filter_map(|work| sentence(table, work)).collect()
}

fn sentence(table: &Table, workload: Workload) -> Option<String> {
    let (column, condition) =
        table.conditions.iter().enumerate().max_by_key(|(_, condition)| condition.rtt)?;
    let mut figures: Vec<(&str, Rate)> = table
        .rows_of(workload)
        .filter_map(|row| Some((row.label.as_str(), row.cells[column].median_bps?)))
        .collect();
    figures.sort_by_key(|(_, rate)| rate.bps());
    let (&(slowest, low), &(fastest, high)) = (figures.first()?, figures.last()?);
    let what = match workload {
        Workload::Memory => "Memory to memory",
        Workload::Disk => "Disk to disk",
        other => other.label(),
    };
    let path = condition.label();
    let first = format!("{what} over {path}, {fastest} was fastest with {high}");
    if figures.len() == 1 {
        return Some(format!("{first}."));
    }
    let factor = high.bps() as f64 / low.bps().max(1) as f64;
    Some(format!("{first}, {factor:.1} times {slowest} with {low}."))
}

fn figures(table: &Table) -> Markup {
    let columns = table.conditions.len() + 4;
    markup! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "Tool" }
                        th { "Type" }
                        @for condition in &table.conditions {
                            th.figure { (Condition::label(condition)) }
                        }
                        th { "Guarantees" }
                        th.figure { "Sync after" }
                    }
                }
                @for workload in Workload::ALL {
                    @if table.rows_of(workload).next().is_some() {
                        tbody {
                            tr.group { th colspan=(columns) { (group(workload)) } }
                            @for row in table.rows_of(workload) { (figure_row(table, row)) }
                        }
                    }
                }
            }
        }
        p.soft {
            "The best figure of each column is marked. Guarantees: encrypted on the way; verified "
            "end to end by the tool's own checksum; synced to stable storage when it ends. "
            "Sync after: the time until it was, after the tool had ended. Every copy was compared "
            "with its source, byte by byte."
        }
    }
}

fn group(workload: Workload) -> &'static str {
    match workload {
        Workload::Memory => "Memory \u{2194} memory: goodput counted at the receiver",
        Workload::Disk => "Disk \u{2194} disk: bytes over the wall-clock time of the command",
        other => other.label(),
    }
}

fn figure_row(table: &Table, row: &Row) -> Markup {
    let kind = match row.workload {
        Workload::Memory => "Mem \u{2194} Mem",
        Workload::Disk => "Disk \u{2194} Disk",
        other => other.label(),
    };
    markup! {
        tr {
            th scope="row" { (row.label) (references(&row.notes)) }
            td { (kind) }
            @for (column, cell) in row.cells.iter().enumerate() {
                (figure_cell(cell, is_best(table, row, column)))
            }
            td { (promises(row)) }
            td.figure { @if let Some(s) = row.sync_seconds { (format!("+{:.1} s", s.max(0.0))) } }
        }
    }
}

fn figure_cell(cell: &CellFigure, best: bool) -> Markup {
    let class = match (cell.state, best) {
        (CellState::Measured, true) => "figure best",
        (CellState::Measured, false) => "figure",
        (CellState::NotInstalled | CellState::NotRun, _) => "figure none",
        (CellState::Failed | CellState::Invalid, _) => "figure bad",
    };
    let span = |low, high| format!("{} - {}", gbps(low), gbps(high));
    let range = match (cell.interval_bps, cell.min_bps, cell.max_bps) {
        (Some((low, high)), ..) => Some(format!("95 %: {}", span(low, high))),
        (None, Some(min), Some(max)) if cell.runs > 1 => Some(span(min, max)),
        _ => None,
    };
    markup! {
        td class=(class) {
            @match cell.median_bps {
                Some(rate) => (gbps(rate)),
                None => (cell.state.label()),
            }
            (references(&cell.notes))
            @if let Some(range) = range { span.range { (range) } }
        }
    }
}

/// Each row over the first of its workload, pass by pass; nothing for a matrix of one pass.
fn ratios(table: &Table, workload: Workload) -> Markup {
    let rows: Vec<&Row> = table.rows_of(workload).collect();
    let repeated =
        rows.iter().flat_map(|row| &row.cells).any(|cell| cell.ratio.is_some_and(|r| r.passes > 1));
    let (Some((first, others)), true) = (rows.split_first(), repeated) else { return markup! {} };
    markup! {
        h2 { "Times " (first.label) }
        div.scroll {
            table {
                thead { tr {
                    th { "Tool" }
                    @for condition in &table.conditions {
                        th.figure { (Condition::label(condition)) }
                    }
                } }
                tbody {
                    @for row in others {
                        tr {
                            th scope="row" { (row.label) }
                            @for cell in &row.cells { td.figure { (ratio(cell)) } }
                        }
                    }
                }
            }
        }
        p.soft { "Median of the ratios within passes; below it the 95 % interval, from six passes." }
    }
}

fn ratio(cell: &CellFigure) -> Markup {
    markup! {
        @if let Some(ratio) = cell.ratio {
            (format!("{:.2}", ratio.median))
            @if let Some((low, high)) = ratio.interval {
                span.range { (format!("{low:.2} - {high:.2}")) }
            }
        }
    }
}

fn references(notes: &[usize]) -> Markup {
    markup! {
        @for number in notes { sup { a href=(format!("#note-{number}")) { (number) } } }
    }
}

fn is_best(table: &Table, row: &Row, column: usize) -> bool {
    let mine = row.cells[column].median_bps;
    let best = table.rows_of(row.workload).filter_map(|row| row.cells[column].median_bps).max();
    mine.is_some() && mine == best
}

fn promises(row: &Row) -> String {
    let Some(Guarantees { encrypted, verified, synced }) =
        row.guarantees.filter(|_| row.workload == Workload::Disk)
    else {
        return String::new();
    };
    let all = [(encrypted, "encrypted"), (verified, "verified"), (synced, "synced")];
    let kept: Vec<&str> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    if kept.is_empty() { "none".to_owned() } else { kept.join(", ") }
}

fn notes(table: &Table) -> Markup {
    markup! {
        @if !table.notes.is_empty() {
            ol.notes {
                @for (number, note) in (1..).zip(&table.notes) {
                    li id=(format!("note-{number}")) { (note) }
                }
            }
        }
    }
}

/// The word for how a run ended.
pub(super) fn verdict(run: &RunRecord) -> (&'static str, Option<&str>) {
    match &run.outcome {
        Outcome::Ok => ("valid", None),
        Outcome::Failed { reason } => ("failed", Some(reason)),
        Outcome::Invalid { reason } => ("invalid", Some(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_report_stands_alone_and_says_what_matters() {
        let contents = sample::contents();
        let page = html(&contents, &Table::fold(&contents));
        for outside in ["<script", "<link", "src=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside} in the report");
        }
        for said in [
            "Disk to disk over 180 ms, longhaul cp --cleartext was fastest with 9.40 Gb/s, 98.9 \
             times rsync",
            "not installed",
            "dropped 7 packets",
            "encrypted",
            "near$ scp far",
            "rsync &lt;odd&gt;",
        ] {
            assert!(page.contains(said), "'{said}' is not in the report");
        }
    }
}
