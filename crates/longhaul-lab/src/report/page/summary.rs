//! The head of the HTML document.

use std::collections::HashSet;

use longhaul_core::plan::Workload;
use longhaul_core::result::Outcome;
use longhaul_core::units::Rate;
use maud::{Markup, html as markup};

use crate::archive::Contents;
use crate::report::text::headline;
use crate::table::{Table, TableRow};

/// Returns the title, the subject, the main results and links to the sections.
pub(super) fn head(contents: &Contents, table: &Table) -> Markup {
    let plan = &contents.header.plan;
    markup! {
        header {
            p.kind { "Wide-area transfer matrix" }
            h1 { (plan.name) }
            @if let Some(about) = &plan.about { p.about { (about) } }
            p.soft { (headline(contents)) " \u{b7} " (contents.header.started_at) }
            @for sentence in sentences(table) { p.lead { (sentence) } }
            (tiles(contents, table))
        }
        nav {
            @for (id, name) in [
                ("throughput", "Table"),
                ("figures", "Figures"),
                ("published", "Published"),
                ("emulator", "Emulator"),
                ("repeat", "Reproduction"),
                ("runs", "All runs"),
            ] { a href=(format!("#{id}")) { (name) } }
        }
    }
}

fn tiles(contents: &Contents, table: &Table) -> Markup {
    let places: HashSet<u32> = contents.runs.iter().map(|run| run.sequence).collect();
    let good = contents.runs.iter().filter(|run| run.outcome == Outcome::Ok).count();
    let failed =
        |run: &&longhaul_core::result::RunRecord| matches!(run.outcome, Outcome::Failed { .. });
    let failed = contents.runs.iter().filter(failed).count();
    let invalid = contents.runs.len() - good - failed;
    let tools = contents.tools.iter().filter(|tool| tool.version.is_some()).count();
    let all = [
        (good.to_string(), "valid runs"),
        (invalid.to_string(), "invalid, repeated"),
        (failed.to_string(), "failed"),
        (places.len().to_string(), "runs of the plan done"),
        (format!("{} \u{d7} {}", table.rows.len(), table.conditions.len()), "rows \u{d7} paths"),
        (tools.to_string(), "tools"),
    ];
    markup! {
        div.tiles {
            @for (figure, name) in all { div { b { (figure) } span { (name) } } }
        }
    }
}

/// Returns, per workload, a sentence about the fastest and the slowest row on the longest path with
/// figures.
fn sentences(table: &Table) -> Vec<String> {
    Workload::ALL.into_iter().filter_map(|work| sentence(table, work)).collect()
}

fn sentence(table: &Table, workload: Workload) -> Option<String> {
    // Only rows with the same work are compared: other rows moved other data.
    let measured = |row: &&TableRow| row.cells.iter().any(|cell| cell.median_bps.is_some());
    let work = &table.rows_of(workload).filter(measured).last()?.work;
    let rows = || table.rows_of(workload).filter(|row| row.work == *work);
    let has_figure = |column: usize| rows().any(|row| row.cells[column].median_bps.is_some());
    let paths = table.conditions.iter().enumerate().filter(|(column, _)| has_figure(*column));
    let (column, condition) = paths.max_by_key(|(_, condition)| condition.rtt)?;
    // The tools with the row and rate of their best figure.
    let mut best: Vec<(&str, &str, Rate)> = Vec::new();
    for row in rows() {
        let Some(rate) = row.cells[column].median_bps else { continue };
        match best.iter_mut().find(|(tool, ..)| *tool == row.tool) {
            Some(known) if known.2 < rate => *known = (&row.tool, &row.label, rate),
            Some(_) => {}
            None => best.push((&row.tool, &row.label, rate)),
        }
    }
    best.sort_by_key(|(_, _, rate)| rate.bps());
    let (&(_, slowest, low), &(_, fastest, high)) = (best.first()?, best.last()?);
    let (what, path) = (workload.label(), condition.label());
    if best.len() == 1 {
        return Some(format!("{what} over {path}, {fastest} reached {high}."));
    }
    let factor = high.bps() as f64 / low.bps().max(1) as f64;
    Some(format!(
        "{what} over {path}, {fastest} was fastest with {high}, {factor:.1} times {slowest} with {low}."
    ))
}
