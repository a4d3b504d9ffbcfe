//! The head of the HTML document.

use std::collections::HashSet;

use longhaul_core::plan::Workload;
use longhaul_core::result::Outcome;
use longhaul_core::units::Rate;
use maud::{Markup, html as markup};

use super::label;
use crate::archive::Contents;
use crate::best::best;
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
            @for sentence in sentences(contents, table) { p.lead { (label(&sentence)) } }
            (tiles(contents, table))
        }
        nav {
            @let searched = !best(contents, table).is_empty();
            @for (id, name) in [
                ("throughput", "Table"),
                ("best", "Best settings"),
                ("figures", "Figures"),
                ("published", "Published"),
                ("emulator", "Emulator"),
                ("repeat", "Reproduction"),
                ("runs", "All runs"),
            ] {
                @if id != "best" || searched { a href=(format!("#{id}")) { (name) } }
            }
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

/// Returns, per workload, a sentence about the fastest and the slowest tool on the longest path
/// with figures.
fn sentences(contents: &Contents, table: &Table) -> Vec<String> {
    Workload::ALL.into_iter().filter_map(|work| sentence(contents, table, work)).collect()
}

fn sentence(contents: &Contents, table: &Table, workload: Workload) -> Option<String> {
    // Only rows with the same work and size are compared: other rows moved other data.
    let measured = |row: &&TableRow| row.cells.iter().any(|cell| cell.median_bps.is_some());
    let rows = table.rows_of(workload).filter(measured);
    let example = rows.max_by_key(|row| (row.bytes, std::cmp::Reverse(&row.work)))?;
    let rows = || table.rows_of(workload).filter(|row| row.is_like(example));
    let has_figure = |column: usize| rows().any(|row| row.cells[column].median_bps.is_some());
    let paths = table.conditions.iter().enumerate().filter(|(column, _)| has_figure(*column));
    let (column, condition) = paths.max_by_key(|(_, condition)| condition.rtt)?;
    // The rows of the best figure of each tool, with that figure.
    let mut best: Vec<(&TableRow, Rate)> = Vec::new();
    for row in rows() {
        let Some(rate) = row.cells[column].median_bps else { continue };
        match best.iter_mut().find(|(known, _)| known.tool == row.tool) {
            Some(known) if known.1 < rate => *known = (row, rate),
            Some(_) => {}
            None => best.push((row, rate)),
        }
    }
    best.sort_by_key(|(_, rate)| rate.bps());
    let (&(slowest, low), &(fastest, high)) = (best.first()?, best.last()?);
    let (what, path) = (workload.label(), condition.label());
    let sample = sample(fastest.cells[column].runs.min(slowest.cells[column].runs), best.len());
    if best.len() == 1 {
        return Some(format!("{what} over {path}, {} reached {high} ({sample}).", fastest.label));
    }
    let ratio = Table::ratio(contents, (fastest, slowest), condition);
    let (fastest, slowest) = (&fastest.label, &slowest.label);
    let both = format!("{what} over {path}, {fastest} reached {high} and {slowest} {low}");
    Some(match ratio.and_then(|ratio| Some((ratio, ratio.interval?))) {
        Some((ratio, (from, to))) if from > 1.0 => {
            let digits = digits(from);
            format!(
                "{what} over {path}, {fastest} was fastest with {high}, {:.digits$} times {slowest} \
                 with {low} ({} passes, 95 %: {from:.digits$} to {to:.digits$}).",
                ratio.median, ratio.passes
            )
        }
        Some((ratio, (from, to))) => format!(
            "{both}: no difference shown ({} passes, 95 % interval of the ratio: {from:.2} to \
             {to:.2}).",
            ratio.passes
        ),
        None => format!("{both} ({sample}; a ratio needs six passes)."),
    })
}

/// Returns the number of decimals with which a ratio above 1, rounded, differs from 1.
fn digits(lowest: f64) -> usize {
    match lowest {
        ..1.005 => 3,
        ..5.0 => 2,
        _ => 1,
    }
}

/// Returns the number of runs of a figure.
fn sample(runs: usize, tools: usize) -> String {
    match (runs, tools) {
        (1, 1) => "a single run".to_owned(),
        (1, _) => "a single run each".to_owned(),
        (runs, 1) => format!("median of {runs} runs"),
        (runs, _) => format!("medians of {runs} runs"),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::RunRecord;

    use super::*;
    use crate::report::fixture::contents;

    /// Returns the contents of the sample with a number of passes, whose figures differ by up to
    /// `spread` between passes.
    fn passes(count: u32, spread: f64) -> Contents {
        let mut all = contents();
        let first: Vec<RunRecord> =
            all.runs.iter().filter(|run| run.repeat == 1).cloned().collect();
        all.runs.clear();
        for repeat in 1..=count {
            for run in &first {
                let sign = if run.tool == "scp" { -1.0 } else { 1.0 };
                let factor = 1.0 + sign * spread * (f64::from(repeat % 3) - 1.0);
                let bps = (run.throughput_bps.map_or(1e8, |rate| rate.bps() as f64)) * factor;
                all.runs.push(RunRecord {
                    sequence: all.runs.len() as u32 + 1,
                    repeat,
                    outcome: Outcome::Ok,
                    throughput_bps: Some(Rate::from_bps(bps as u64)),
                    ..run.clone()
                });
            }
        }
        all
    }

    fn disk(contents: &Contents) -> String {
        sentence(contents, &Table::fold(contents), Workload::Disk).unwrap()
    }

    #[test]
    fn a_factor_needs_an_interval_without_one() {
        let six = disk(&passes(6, 0.01));
        assert!(six.contains("times") && six.contains("6 passes, 95 %"), "{six}");
        let five = disk(&passes(5, 0.01));
        assert!(!five.contains("times") && five.contains("a ratio needs six passes"), "{five}");
        let one = disk(&passes(1, 0.0));
        assert!(one.contains("a single run each"), "{one}");
    }

    #[test]
    fn a_factor_above_one_is_not_printed_as_one() {
        assert_eq!((digits(1.002), digits(1.02), digits(40.0)), (3, 2, 1));
    }

    #[test]
    fn an_interval_with_one_shows_no_difference() {
        let mut contents = passes(6, 0.3);
        contents.header.plan.entries.retain(|entry| entry.tool != "longhaul cp");
        contents.runs.retain(|run| run.tool == "scp" || run.tool == "rsync");
        for run in &mut contents.runs {
            run.throughput_bps =
                run.throughput_bps.map(|rate| Rate::from_bps(rate.bps().min(110_000_000)));
        }
        let said = disk(&contents);
        assert!(said.contains("no difference shown"), "{said}");
    }
}
