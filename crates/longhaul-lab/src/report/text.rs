//! Renders the table as text.

use longhaul_core::plan::{Condition, MatrixPlan, Workload};
use longhaul_core::result::Guarantees;
use longhaul_core::text::escape;

use super::flow;
pub(super) use super::words::{gbps, references};
use crate::archive::Contents;
use crate::best::best;
use crate::table::{CellFigure, RepeatedRow, Table, TableRow};

/// Renders the table as text: tool, type, one column per condition, medians in Gb/s.
pub fn text(contents: &Contents, table: &Table) -> String {
    let mut lines = vec![headline(contents), String::new()];
    lines.extend(align(&cells(table), table.conditions.len()));
    lines.push(String::new());
    lines.extend(legend(table).lines().map(str::to_owned));
    if table.rows.iter().flat_map(|row| &row.cells).any(|cell| cell.interval_bps.is_some()) {
        lines.push("(low-high): 95 % confidence interval of the median.".to_owned());
        lines.extend(precision_remark(contents));
    }
    for (number, note) in (1..).zip(&table.notes) {
        lines.push(format!("[{number}] {note}"));
    }
    lines.extend(repeats(table));
    lines.extend(repeat_warnings(table));
    lines.extend(flows(contents, table));
    lines.extend(best_settings(contents, table));
    lines.push(String::new());
    join(&lines)
}

/// Returns the table of the flows beside the tools.
fn flows(contents: &Contents, table: &Table) -> Vec<String> {
    let mut lines = flow::lines(contents, table);
    if lines.is_empty() {
        return Vec::new();
    }
    lines.insert(0, flow::HEADS.map(str::to_owned).to_vec());
    let mut all = vec![String::new()];
    all.extend(align(&lines, flow::HEADS.len() - 2));
    all.extend([String::new(), flow::MEANING.to_owned()]);
    all
}

/// The number of settings of a tool from which the text names the best one.
const SEVERAL: usize = 3;

/// Returns two lines per tool and path with several settings: the best setting with its evidence,
/// and its command.
fn best_settings(contents: &Contents, table: &Table) -> Vec<String> {
    let all = best(contents, table);
    let searched = all.iter().filter(|best| best.settings >= SEVERAL);
    let mut lines: Vec<String> = searched
        .flat_map(|best| {
            let ratio = match (&best.ratio, best.is_shown()) {
                (None, _) if best.is_first() => "the default".to_owned(),
                (None, _) => "no pass has both settings".to_owned(),
                (Some(ratio), true) => format!("{:.2} times the default", ratio.median),
                (Some(ratio), false) => {
                    format!("{:.2} times the default, no difference shown", ratio.median)
                }
            };
            let interval = best.ratio.and_then(|ratio| ratio.interval);
            let interval = interval
                .map_or_else(String::new, |(low, high)| format!(" (95 %: {low:.2} to {high:.2})"));
            let (path, rate) = (best.condition.label(), gbps(best.rate));
            let what = format!("{} at {path}: {}", best.tool, best.best.label);
            [
                format!("{what}, {rate} Gb/s, {ratio}{interval}; {} compared", best.settings),
                format!("  {}", best.command),
            ]
        })
        .collect();
    if !lines.is_empty() {
        let head = "Best settings. The highest of several medians is too high on average.";
        lines.splice(0..0, [String::new(), head.to_owned()]);
    }
    lines
}

/// Joins lines after escaping control characters, so that the output of a tool cannot add a line.
pub(super) fn join(lines: &[String]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| escape(line)).collect();
    lines.join("\n")
}

/// Returns a one-line description of the measurement.
pub(super) fn headline(contents: &Contents) -> String {
    let plan = &contents.header.plan;
    let mut parts = vec![format!("longhaul matrix: {}", plan.name)];
    if plan.has(Workload::Memory) {
        let memory = &plan.memory;
        let omitted = match memory.omit_seconds {
            0 => String::new(),
            seconds => format!(" after {seconds} s omitted"),
        };
        parts.push(format!("memory {} s{omitted}", memory.seconds));
    }
    if let Some(data) = &contents.header.data {
        let files =
            if data.files == 1 { String::new() } else { format!(" in {} files", data.files) };
        parts.push(format!("disk {}{files}", data.bytes));
    }
    parts.push(passes(plan));
    format!("{}; Gb/s", parts.join(", "))
}

/// Returns the number of runs per cell.
pub(super) fn passes(plan: &MatrixPlan) -> String {
    match (&plan.precision, plan.repeats) {
        (Some(target), _) => {
            format!("medians within {:.0} % where runs allow it", target.share * 100.0)
        }
        (None, 1) => "one run per cell".to_owned(),
        (None, repeats) => format!("medians of {repeats}"),
    }
}

/// Returns the remark about the intervals of a plan whose number of passes depends on the results.
pub(super) fn precision_remark(contents: &Contents) -> Option<String> {
    let checks = contents.header.plan.interim_checks()?;
    let counts: Vec<String> = checks.counts().iter().map(usize::to_string).collect();
    Some(format!(
        "Passes ended when the interval was narrow, after {} valid runs at the earliest; the \
         intervals are wider by as much as these interim checks require.",
        counts.join(", ")
    ))
}

fn cells(table: &Table) -> Vec<Vec<String>> {
    let mut head = vec!["Tool".to_owned(), "Type".to_owned()];
    head.extend(table.conditions.iter().map(Condition::label));
    head.extend(["E V S".to_owned(), "Sync".to_owned()]);
    let mut lines = vec![head];
    for row in &table.rows {
        let label = format!("{}{}", row.label, references(&row.notes));
        let mut line = vec![label, row.workload.label().to_owned()];
        line.extend(row.cells.iter().map(cell));
        line.push(guarantees(row));
        line.push(sync(row));
        lines.push(line);
    }
    lines
}

pub(super) fn cell(figure: &CellFigure) -> String {
    let notes = references(&figure.notes);
    match figure.median_bps {
        Some(rate) => match figure.interval_bps {
            Some((low, high)) => format!("{} ({}-{}){notes}", gbps(rate), gbps(low), gbps(high)),
            None => format!("{}{notes}", gbps(rate)),
        },
        None => format!("{}{notes}", figure.state.label()),
    }
}

pub(super) fn guarantees(row: &TableRow) -> String {
    match row.guarantees {
        Some(Guarantees { encrypted, verified, synced }) if row.workload.copies() => {
            let mark = |has: bool, letter: &'static str| if has { letter } else { "-" };
            format!("{} {} {}", mark(encrypted, "E"), mark(verified, "V"), mark(synced, "S"))
        }
        _ => String::new(),
    }
}

/// Returns the guarantees as words, for example `encrypted, verified`.
pub(super) fn guarantees_in_words(guarantees: Guarantees) -> String {
    let Guarantees { encrypted, verified, synced } = guarantees;
    let all = [(encrypted, "encrypted"), (verified, "verified"), (synced, "synced")];
    let kept: Vec<&str> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    if kept.is_empty() { "none".to_owned() } else { kept.join(", ") }
}

pub(super) fn sync(row: &TableRow) -> String {
    row.sync_seconds.map_or(String::new(), |seconds| format!("+{:.1} s", seconds.max(0.0)))
}

pub(super) fn legend(table: &Table) -> &'static str {
    if table.rows_of(Workload::Disk).next().is_none() {
        return "Memory: goodput at the receiver.";
    }
    "Disk: bytes over the command's wall-clock time. E encrypted, V verified end to\n\
     end by the tool, S on stable storage when the tool ends; Sync: time from the end\n\
     of the tool until then."
}

/// Returns a sentence per row with repeated runs.
pub(super) fn repeats(table: &Table) -> Vec<String> {
    table.repeats.rows.iter().map(|row| repeat(row, table)).collect()
}

/// Returns a warning per order of two rows that the repeated runs changed.
pub(super) fn repeat_warnings(table: &Table) -> Vec<String> {
    let all = table.repeats.reversals.iter().map(|reversal| {
        format!(
            "Warning: over {}, {} is faster than {} in the valid runs, and slower if the invalid \
             runs count.",
            path_of(table, reversal.condition),
            reversal.faster,
            reversal.slower
        )
    });
    all.collect()
}

fn path_of(table: &Table, condition: usize) -> String {
    table.conditions.get(condition).map_or_else(String::new, Condition::label)
}

fn repeat(row: &RepeatedRow, table: &Table) -> String {
    let cells = row.cells.iter().filter_map(|cell| {
        let (without, with) = (cell.median_bps?, cell.median_of_all_bps?);
        let (without, with) = (gbps(without), gbps(with));
        let path = path_of(table, cell.condition);
        Some(format!("{path}: {without}, with the invalid runs {with}"))
    });
    let cells: Vec<String> = cells.collect();
    let medians = match cells.len() {
        0 => String::new(),
        _ => format!(" Medians in Gb/s at {}.", cells.join("; ")),
    };
    let RepeatedRow { label, repeated, runs, .. } = row;
    format!("{label}: {repeated} of {runs} runs were invalid and repeated.{medians}")
}

/// Pads the columns: names left-aligned, figures right-aligned, a rule below the head.
pub(super) fn align(lines: &[Vec<String>], figures: usize) -> Vec<String> {
    let columns = lines.first().map_or(0, Vec::len);
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out: Vec<String> = lines
        .iter()
        .map(|line| {
            let padded: Vec<String> = line
                .iter()
                .enumerate()
                .map(|(column, text)| match column {
                    c if c < 2 || c == 2 + figures => format!("{text:<0$}", widths[c]),
                    c => format!("{text:>0$}", widths[c]),
                })
                .collect();
            padded.join("  ").trim_end().to_owned()
        })
        .collect();
    let rule = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
    out.insert(1.min(out.len()), "-".repeat(rule));
    out
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_table_reads_like_the_published_one() {
        let contents = fixture::contents();
        insta::assert_snapshot!(text(&contents, &Table::fold(&contents)));
    }

    #[test]
    fn the_legend_fits_80_columns() {
        let contents = fixture::contents();
        let table = Table::fold(&contents);
        assert!(table.rows_of(Workload::Disk).next().is_some(), "the longer legend");
        assert!(
            legend(&table).lines().all(|line| line.chars().count() <= 80),
            "{}",
            legend(&table)
        );
    }

    #[test]
    fn the_best_of_three_settings_has_its_command() {
        let mut contents = fixture::contents();
        // Three copying tools become three settings of one tool.
        for entry in contents.header.plan.entries.iter_mut().filter(|e| e.workloads[0] == "disk") {
            entry.label = Some(entry.label());
            entry.tool = "scp".into();
        }
        let text = text(&contents, &Table::fold(&contents));
        let line = text.lines().find(|line| line.starts_with("scp at 15 ms: ")).unwrap();
        assert!(
            line.contains("longhaul cp --cleartext, 9.90 Gb/s, the default; 3 compared"),
            "{line}"
        );
        assert!(text.contains("\n  longhaul cp far\n"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        for (bps, expected) in [
            (124_600_000_000, "125"),
            (23_449_000_000, "23.4"),
            (570_000_000, "0.57"),
            (93e6 as u64, "0.093"),
        ] {
            assert_eq!(gbps(Rate::from_bps(bps)), expected);
        }
    }
}
