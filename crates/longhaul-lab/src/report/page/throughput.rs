//! The throughput tables.

use longhaul_core::plan::{Condition, Workload};
use longhaul_core::units::Rate;
use maud::{Markup, html as markup};

use super::{SHOWN, folded, label};
use crate::archive::Contents;
use crate::report::text::{gbps, guarantees_in_words, precision_remark, repeat_warnings, repeats};
use crate::table::{CellFigure, CellOutcome, Table, TableRow};

/// The columns of one table: paths that differ only in their RTT or length.
struct Columns<'a> {
    /// The common properties of the paths.
    common: &'a str,
    /// The indices of conditions with their column heads.
    all: Vec<(usize, &'a str)>,
}

/// Returns tables in the form of published matrices: tool, type, one column per round-trip time;
/// one table per combination of the paths' other properties.
pub(super) fn tables(contents: &Contents, table: &Table) -> Markup {
    let labels: Vec<String> = table.conditions.iter().map(Condition::label).collect();
    let groups = grouped(&labels);
    markup! {
        @for group in &groups {
            @if !group.common.is_empty() { h3 { (group.common) } }
            @else if groups.len() > 1 { h3 { "Plain" } }
            (one(table, group))
        }
        p.soft {
            "Medians; below, the 95 % confidence interval of the median (from six runs) or the range "
            "of fewer runs. The best figure of each column and workload is marked. Guarantees: "
            "encrypted in transit; verified end to end by the tool's checksum; synced to stable "
            "storage when the tool ends. Sync after: the time from the end of the tool until then. Every "
            "copy was compared with its source byte by byte. Figures of other projects are in " a href="#published" { "published figures" } "."
        }
        @if let Some(remark) = precision_remark(contents) { p.soft { (remark) } }
        (notes(table))
        @for sentence in repeats(table) { p.soft { (sentence) } }
        @for warning in repeat_warnings(table) { p.bad { (warning) } }
        @if contents.runs.is_empty() { p.bad { "The archive has no runs." } }
    }
}

fn grouped(labels: &[String]) -> Vec<Columns<'_>> {
    let mut groups: Vec<Columns<'_>> = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        let (length, common) = label.split_once(", ").unwrap_or((label, ""));
        match groups.iter_mut().find(|group| group.common == common) {
            Some(group) => group.all.push((index, length)),
            None => groups.push(Columns { common, all: vec![(index, length)] }),
        }
    }
    // If every group has only one path, a table per group would have a single column.
    if groups.len() > 1 && groups.iter().all(|group| group.all.len() == 1) {
        let all = labels.iter().enumerate().map(|(index, label)| (index, label.as_str()));
        return vec![Columns { common: "", all: all.collect() }];
    }
    groups
}

fn one(table: &Table, columns: &Columns<'_>) -> Markup {
    let copies = table.rows.iter().any(|row| row.workload.copies());
    let width = columns.all.len() + if copies { 4 } else { 2 };
    markup! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "Tool" }
                        th.type { "Type" }
                        @for (_, head) in &columns.all { th.figure.path { (path(head)) } }
                        @if copies { th { "Guarantees" } th.figure { "Sync after" } }
                    }
                }
                @for workload in Workload::ALL {
                    @if table.rows_of(workload).next().is_some() {
                        tbody {
                            tr.group { th colspan=(width) { (group(workload)) } }
                            @for row in table.rows_of(workload) { (line(table, row, columns, copies)) }
                        }
                    }
                }
            }
        }
    }
}

fn group(workload: Workload) -> String {
    let how = if workload.copies() {
        "bytes over the wall-clock time of the command"
    } else {
        "goodput counted at the receiver"
    };
    format!("{}: {how}", workload.label())
}

/// Returns the name of a path, which has lines only between its properties.
fn path(label: &str) -> Markup {
    let parts: Vec<&str> = label.split_inclusive(", ").map(str::trim_end).collect();
    markup! {
        @for (place, part) in parts.iter().enumerate() {
            @if place > 0 { " " }
            span.word { (part) }
        }
    }
}

fn line(table: &Table, row: &TableRow, columns: &Columns<'_>, copies: bool) -> Markup {
    markup! {
        tr {
            th scope="row" { (label(&row.label)) (references(&row.notes)) }
            td.type { (row.workload.label()) }
            @for (column, _) in &columns.all {
                (cell(table, row, *column))
            }
            @if copies {
                td.guarantees { (guarantees(row)) }
                td.figure {
                    @if let Some(s) = row.sync_seconds { (format!("+{:.1} s", s.max(0.0))) }
                }
            }
        }
    }
}

fn cell(table: &Table, row: &TableRow, column: usize) -> Markup {
    let cell = &row.cells[column];
    let class = match (cell.state, is_best(table, row, column)) {
        (CellOutcome::Measured, true) => "figure best",
        (CellOutcome::Measured, false) => "figure",
        (CellOutcome::Invalid | CellOutcome::Failed, _) => "figure bad",
        _ => "figure none",
    };
    markup! {
        td class=(class) {
            @match cell.median_bps {
                Some(rate) => (gbps(rate)),
                None => (cell.state.label()),
            }
            (references(&cell.notes))
            @if let Some(range) = range(cell) { span.range { (range) } }
        }
    }
}

fn range(cell: &CellFigure) -> Option<String> {
    let span = |low: Rate, high: Rate| format!("{} - {}", gbps(low), gbps(high));
    match (cell.interval_bps, cell.min_bps, cell.max_bps) {
        (Some((low, high)), ..) => Some(format!("95 %: {}", span(low, high))),
        (None, Some(min), Some(max)) if cell.runs > 1 => Some(span(min, max)),
        _ => None,
    }
}

fn is_best(table: &Table, row: &TableRow, column: usize) -> bool {
    let median = row.cells[column].median_bps;
    let same = table.rows_of(row.workload).filter(|other| other.work == row.work);
    let best = same.filter_map(|row| row.cells[column].median_bps).max();
    median.is_some() && median == best
}

fn guarantees(row: &TableRow) -> String {
    let given = row.guarantees.filter(|_| row.workload.copies());
    given.map_or(String::new(), guarantees_in_words)
}

pub(super) fn references(notes: &[usize]) -> Markup {
    markup! {
        @for number in notes { sup { a href=(format!("#note-{number}")) { (number) } } }
    }
}

fn notes(table: &Table) -> Markup {
    let list = markup! {
        ol.notes {
            @for (number, note) in (1..).zip(&table.notes) {
                li id=(format!("note-{number}")) { (note) }
            }
        }
    };
    markup! {
        @match table.notes.len() {
            0 => {}
            1..=SHOWN => (list),
            many => details.more {
                summary { "Notes: " (many) " lines" }
                (list)
            }
        }
    }
}

/// Returns the ratio of each row to the first row with the same work and setting, within passes.
/// The section is empty for a matrix of one pass.
pub(super) fn ratios(table: &Table) -> Markup {
    let rows = table.rows.iter().filter(|row| {
        row.cells.iter().any(|cell| cell.ratio.is_some_and(|ratio| ratio.passes > 1))
    });
    let rows: Vec<&TableRow> = rows.collect();
    if rows.is_empty() {
        return markup! {};
    }
    markup! {
        section {
            h2 { "Ratios within passes" }
            (folded("Ratios to the first row", rows.len(), &ratio_table(table, &rows)))
            p.soft {
                "Median of the ratios to the first row of the same work, size and setting in the same "
                "pass, so that drift affects both rows; below it the 95 % interval, from six passes. "
                "An interval that includes 1 shows no difference. Rows that copied different sizes "
                "are not compared."
            }
        }
    }
}

fn ratio_table(table: &Table, rows: &[&TableRow]) -> Markup {
    markup! {
        div.scroll {
            table {
                thead { tr {
                    th { "Tool" }
                    th { "Times" }
                    @for condition in &table.conditions {
                        th.figure.path { (path(&Condition::label(condition))) }
                    }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (label(&row.label)) }
                            td { (row.compared_with.as_deref().unwrap_or_default()) }
                            @for cell in &row.cells { td.figure { (ratio(cell)) } }
                        }
                    }
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_breaks_between_properties() {
        let head = path("90 ms, queue 5ms").into_string();
        let parts =
            ["90 ms,", "queue 5ms"].map(|part| format!("<span class=\"word\">{part}</span>"));
        assert_eq!(head, parts.join(" "));
    }

    #[test]
    fn paths_of_one_kind_share_a_table() {
        let labels = |all: &[&str]| all.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        let two = labels(&["0 ms, loss 0", "90 ms, loss 0", "0 ms, loss 1e-4", "90 ms, loss 1e-4"]);
        let groups = grouped(&two);
        let commons: Vec<&str> = groups.iter().map(|group| group.common).collect();
        assert_eq!(commons, ["loss 0", "loss 1e-4"]);
        assert_eq!(groups[1].all, [(2, "0 ms"), (3, "90 ms")]);
        let lone = labels(&["90 ms, loss 0", "90 ms, loss 1e-4"]);
        assert_eq!(grouped(&lone)[0].all.len(), 2, "one table of two columns");
    }
}
