//! Aggregates runs into the table: one row per entry, one column per condition, and in each cell
//! the median of the valid runs.

use std::collections::{BTreeSet, HashMap};

use longhaul_core::plan::{Condition, Content, MatrixPlan, MatrixRow as PlanRow, Workload};
use longhaul_core::result::{Guarantees, Outcome, RunRecord};
use longhaul_core::sequential::InterimChecks;
use longhaul_core::stats::{median, median_interval};
use longhaul_core::units::{Bytes, Rate};
use serde::Serialize;

use crate::archive::Contents;
use crate::repeats::Subject;

pub use crate::repeats::{RepeatedCell, RepeatedRow, Repeats, Reversal};

/// The aggregated results of all rows under all conditions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// The columns of the table.
    pub conditions: Vec<Condition>,
    /// The rows, in the order of the plan.
    pub rows: Vec<TableRow>,
    /// The notes to which cells refer by number, from 1.
    pub notes: Vec<String>,
    /// The invalid runs that were repeated, and their effect.
    pub repeats: Repeats,
}

/// One row of the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableRow {
    /// The name of the row.
    pub label: String,
    /// The name of the driver.
    pub tool: String,
    /// The kind of work.
    pub workload: Workload,
    /// The plan's name of the work; rows with different names moved different data.
    pub work: String,
    /// The size of the data that each client copies, if the plan states it.
    pub bytes: Option<Bytes>,
    /// The guarantees of its transfers; `None` without a run.
    pub guarantees: Option<Guarantees>,
    /// The median time in seconds from the tool's end until its copies were on stable storage.
    pub sync_seconds: Option<f64>,
    /// The row to which the ratios of the cells refer: the first with the same work, size and
    /// setting; `None` for that row.
    pub compared_with: Option<String>,
    /// One cell per condition.
    pub cells: Vec<CellFigure>,
    /// The numbers of notes about the whole row, from 1.
    pub notes: Vec<usize>,
}

/// The result of one row under one condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellFigure {
    /// The state of the cell: measured, or the reason why there is no figure.
    pub state: CellOutcome,
    /// The median of the valid runs.
    pub median_bps: Option<Rate>,
    /// The smallest valid figure.
    pub min_bps: Option<Rate>,
    /// The largest valid figure.
    pub max_bps: Option<Rate>,
    /// The distribution-free 95 % confidence interval of the median; it needs six runs. If the
    /// plan ends passes by a precision, it allows for the repeated checks.
    pub interval_bps: Option<(Rate, Rate)>,
    /// The median of the ratios to the row of [`TableRow::compared_with`] in the same pass, and its
    /// 95 % confidence interval. Slow changes of the host affect both rows equally.
    pub ratio: Option<Ratio>,
    /// The number of valid runs.
    pub runs: usize,
    /// The numbers of notes, from 1.
    pub notes: Vec<usize>,
}

/// A ratio within passes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The 95 % confidence interval; it needs six passes.
    pub interval: Option<(f64, f64)>,
    /// The number of passes in which both rows have a figure.
    pub passes: usize,
}

/// The state of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellOutcome {
    /// The cell has a figure.
    Measured,
    /// No run is valid because the path violated its conditions.
    Invalid,
    /// No run is valid because the tool failed.
    Failed,
    /// The tool is not installed.
    NotInstalled,
    /// The cell has no run yet.
    NotRun,
}

impl CellOutcome {
    /// Returns the text of a cell without a figure.
    pub const fn label(self) -> &'static str {
        match self {
            CellOutcome::Measured => "",
            CellOutcome::Invalid => "invalid",
            CellOutcome::Failed => "failed",
            CellOutcome::NotInstalled => "not installed",
            CellOutcome::NotRun => "-",
        }
    }
}

impl Table {
    /// Aggregates an archive's contents.
    pub fn fold(contents: &Contents) -> Self {
        let plan = &contents.header.plan;
        let mut conditions = plan.conditions();
        // A path that the constraints exclude for every row has no column.
        let used: BTreeSet<usize> = plan.cells().iter().map(|cell| cell.condition).collect();
        let mut places = 0..;
        conditions.retain(|_| places.next().is_some_and(|place| used.contains(&place)));
        // In the order of distance, whatever the order of the plan.
        conditions.sort_by_key(|condition| condition.rtt);
        let intervals = Intervals::of(plan);
        let mut notes = Notes::default();
        let mut rows = Vec::new();
        let planned = plan.rows();
        for row in &planned {
            let entry = &plan.entries[row.entry];
            let label = row.label.clone();
            let runs: Vec<&RunRecord> =
                contents.runs.iter().filter(|run| run.label == label).collect();
            let first = first_like(&planned, row);
            let missing = contents
                .tools
                .iter()
                .find(|tool| tool.name == entry.tool)
                .and_then(|tool| tool.missing.as_deref());
            let cells: Vec<CellFigure> = conditions
                .iter()
                .map(|condition| {
                    let here = runs.iter().copied().filter(|run| run.condition == *condition);
                    let here: Vec<&RunRecord> = here.collect();
                    let ratio = first.as_ref().and_then(|first| {
                        let is_first =
                            |run: &&RunRecord| run.label == *first && run.condition == *condition;
                        ratio(&here, contents.runs.iter().filter(is_first), &intervals)
                    });
                    let found = figure(&here, missing.is_some(), &intervals, &mut notes);
                    CellFigure { ratio, ..found }
                })
                .collect();
            let absent = missing
                .filter(|_| runs.is_empty())
                .map(|program| format!("not installed: {program} not found"));
            let about = absent.or_else(|| smaller_size(plan, row));
            let about = about.into_iter().chain(files_per_second(row, &conditions, &cells));
            rows.push(TableRow {
                notes: about.map(|text| notes.number(text)).collect(),
                guarantees: runs.first().map(|run| run.guarantees),
                sync_seconds: sync_seconds(&runs),
                workload: row.work.workload(),
                work: row.work.name.clone(),
                bytes: volume(&row.work.content),
                tool: entry.tool.clone(),
                label,
                compared_with: first,
                cells,
            });
        }
        let subjects: Vec<Subject<'_>> = rows.iter().map(TableRow::subject).collect();
        let repeats = Repeats::of(&contents.runs, &subjects, &conditions);
        Table { conditions, rows, notes: notes.texts, repeats }
    }

    /// Returns the ratio of two rows under a condition within passes, for rows of this table and
    /// the contents that it was made from; `None` if they share no pass.
    pub(crate) fn ratio(
        contents: &Contents,
        (row, to): (&TableRow, &TableRow),
        condition: &Condition,
    ) -> Option<Ratio> {
        let of = |label: &str| {
            let label = label.to_owned();
            let runs = contents.runs.iter();
            runs.filter(move |run| run.label == label && run.condition == *condition)
        };
        let own: Vec<&RunRecord> = of(&row.label).collect();
        ratio(&own, of(&to.label), &Intervals::of(&contents.header.plan))
    }

    /// Returns the rows of one workload.
    pub fn rows_of(&self, workload: Workload) -> impl Iterator<Item = &TableRow> {
        self.rows.iter().filter(move |row| row.workload == workload)
    }
}

impl TableRow {
    /// Returns whether another row moved the same data, so that the two can be compared.
    pub(crate) fn is_like(&self, other: &TableRow) -> bool {
        (self.workload, &self.work, self.bytes) == (other.workload, &other.work, other.bytes)
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            label: &self.label,
            work: (self.workload, &self.work, self.bytes),
            medians: self.cells.iter().map(|cell| cell.median_bps).collect(),
        }
    }
}

/// Returns the label of the row with which a row is compared: the first with the same work, size and
/// setting. A small copy spends a larger part of its time in slow start. `None` for that row.
fn first_like(planned: &[PlanRow], row: &PlanRow) -> Option<String> {
    let key = |row: &PlanRow| {
        let size = volume(&row.work.content);
        let settings = (row.streams, row.window, row.message, row.clients);
        (row.work.name.clone(), size, settings, row.beside_congestion.clone())
    };
    let first = planned.iter().find(|other| key(other) == key(row))?;
    (first.label != row.label).then(|| first.label.clone())
}

/// The notes without duplicates.
#[derive(Default)]
struct Notes {
    texts: Vec<String>,
}

impl Notes {
    fn number(&mut self, text: String) -> usize {
        if let Some(index) = self.texts.iter().position(|known| *known == text) {
            return index + 1;
        }
        self.texts.push(text);
        self.texts.len()
    }
}

fn figure(
    runs: &[&RunRecord],
    missing: bool,
    intervals: &Intervals,
    notes: &mut Notes,
) -> CellFigure {
    let mut numbers = BTreeSet::new();
    let (mut failed, mut invalid) = (false, false);
    let made_good = |run: &RunRecord| {
        let same = runs.iter().filter(|other| other.sequence == run.sequence);
        same.into_iter().any(|other| other.outcome == Outcome::Ok)
    };
    for run in runs {
        let about = match &run.outcome {
            Outcome::Ok => continue,
            Outcome::Invalid { .. } if made_good(run) => {
                numbers.insert(notes.number("an invalid run was repeated".into()));
                continue;
            }
            Outcome::Failed { reason } => {
                failed = true;
                format!("{} failed: {reason}", run.label)
            }
            Outcome::Invalid { reason } => {
                invalid = true;
                let figure = run.throughput_bps.map(|rate| format!(" ({rate})"));
                let figure = figure.unwrap_or_default();
                format!("{} at {} is invalid{figure}: {reason}", run.label, run.condition.label())
            }
        };
        numbers.insert(notes.number(about));
    }
    let counted: Vec<f64> = runs
        .iter()
        .filter(|run| run.outcome == Outcome::Ok)
        .filter_map(|run| run.throughput_bps.map(|rate| rate.bps() as f64))
        .collect();
    let rate = |bps: f64| Rate::from_bps(bps as u64);
    let state = match (counted.is_empty(), invalid, failed, missing) {
        (false, ..) => CellOutcome::Measured,
        (true, true, ..) => CellOutcome::Invalid,
        (true, false, true, _) => CellOutcome::Failed,
        (true, false, false, true) => CellOutcome::NotInstalled,
        (true, false, false, false) => CellOutcome::NotRun,
    };
    CellFigure {
        state,
        median_bps: median(&counted).map(rate),
        min_bps: counted.iter().copied().reduce(f64::min).map(rate),
        max_bps: counted.iter().copied().reduce(f64::max).map(rate),
        interval_bps: intervals.median(&counted).map(|(low, high)| (rate(low), rate(high))),
        ratio: None,
        runs: counted.len(),
        notes: numbers.into_iter().collect(),
    }
}

/// Returns the ratio of two rows' figures within passes.
fn ratio<'a>(
    runs: &[&RunRecord],
    first: impl Iterator<Item = &'a RunRecord>,
    intervals: &Intervals,
) -> Option<Ratio> {
    let counted = |run: &RunRecord| {
        let rate = run.throughput_bps.filter(|_| run.outcome == Outcome::Ok)?;
        Some((run.repeat, rate.bps() as f64))
    };
    let first: HashMap<u32, f64> = first.filter_map(counted).collect();
    let pairs = runs.iter().filter_map(|run| counted(run));
    let ratios: Vec<f64> = pairs.filter_map(|(pass, bps)| Some(bps / first.get(&pass)?)).collect();
    let interval = intervals.median(&ratios);
    Some(Ratio { median: median(&ratios)?, interval, passes: ratios.len() })
}

/// Returns a note if a row copies less data than other rows with the same workload.
fn smaller_size(plan: &MatrixPlan, row: &PlanRow) -> Option<String> {
    let usual = usual_volume(plan, row)?;
    let own = volume(&row.work.content)?;
    (own < usual).then(|| format!("copied {own} instead of {usual}"))
}

/// Returns a note with the files per second of a row of several files that are so small that the
/// operations on each file take most of the time.
fn files_per_second(
    row: &PlanRow,
    conditions: &[Condition],
    cells: &[CellFigure],
) -> Option<String> {
    const SMALL: Bytes = Bytes::kib(16);
    let Content::Files { files: 2.., size } = row.work.content else { return None };
    if size > SMALL || size.get() == 0 {
        return None;
    }
    let each = conditions.iter().zip(cells).filter_map(|(condition, cell)| {
        let rate = cell.median_bps?.bps() as f64 / (8 * size.get()) as f64;
        let digits = usize::from(rate < 9.95) + usize::from(rate < 0.995);
        Some(format!("{rate:.digits$} files/s at {}", condition.label()))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("{}: {}", row.label, each.join(", ")))
}

/// Returns the size of the data of a row's workload, which the row's entry may reduce.
pub(crate) fn usual_volume(plan: &MatrixPlan, row: &PlanRow) -> Option<Bytes> {
    volume(&plan.work(&row.work.name)?.scaled(plan.scale).content)
}

/// Returns the size of the data of a copy, if the plan states it.
fn volume(content: &Content) -> Option<Bytes> {
    match content {
        Content::Files { files, size } => Some(Bytes::new(files.saturating_mul(size.get()))),
        _ => None,
    }
}

fn sync_seconds(runs: &[&RunRecord]) -> Option<f64> {
    let waits: Vec<f64> = runs
        .iter()
        .filter(|run| run.outcome == Outcome::Ok)
        .filter_map(|run| Some(run.durable_seconds? - run.seconds?))
        .collect();
    median(&waits)
}

/// The 95 % confidence intervals of medians of a plan's runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Intervals {
    /// The checks of a plan with a precision, whose number of passes depends on the results.
    checks: Option<InterimChecks>,
}

impl Intervals {
    pub(crate) fn of(plan: &MatrixPlan) -> Self {
        Intervals { checks: plan.interim_checks() }
    }

    /// Returns the interval of the median of the population of `values`; `None` for fewer than six
    /// values.
    pub(crate) fn median(&self, values: &[f64]) -> Option<(f64, f64)> {
        match &self.checks {
            Some(checks) => checks.interval(values),
            None => median_interval(values, 0.95),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Precision;

    use super::*;

    #[test]
    fn rows_of_small_files_state_files_per_second() {
        let entry = "[[entries]]\ntool = \"scp\"\nworkload = [\"small\", \"large\"]\n";
        let work = |name: &str, size: &str| {
            format!("[[workloads]]\nname = \"{name}\"\nfiles = 16\nsize = \"{size}\"\n")
        };
        let works = work("small", "4KiB") + &work("large", "1MiB");
        let plan = format!("name = \"p\"\n[conditions]\nrtt = [\"0ms\", \"90ms\"]\n{works}{entry}");
        let plan: MatrixPlan = toml::from_str(&plan).unwrap();
        let cell = |mbps: Option<u64>| {
            let median_bps = mbps.map(|mbps| Rate::from_bps(mbps * 1_000_000));
            let (min_bps, max_bps) = (None, None);
            let state = CellOutcome::Measured;
            let (ratio, interval_bps, runs, notes) = (None, None, 1, Vec::new());
            CellFigure { state, median_bps, min_bps, max_bps, interval_bps, ratio, runs, notes }
        };
        let note = |row: &PlanRow, cells: [Option<u64>; 2]| {
            files_per_second(row, &plan.conditions(), &cells.map(cell))
        };
        let rows = plan.rows();
        let found = note(&rows[0], [Some(8), Some(1)]);
        assert_eq!(found.as_deref(), Some("scp, small: 244 files/s at 0 ms, 31 files/s at 90 ms"));
        assert_eq!(note(&rows[0], [None, None]), None);
        assert_eq!(note(&rows[1], [Some(8), Some(1)]), None);
    }

    #[test]
    fn repeated_checks_need_a_wider_interval() {
        let values: Vec<f64> = (1..=30).map(f64::from).collect();
        let mut plan = MatrixPlan::named("p");
        let fixed = Intervals::of(&plan).median(&values).unwrap();
        plan.precision = Some(Precision::new(0.05, 60));
        let checks = Intervals::of(&plan);
        let (low, high) = checks.median(&values).unwrap();
        assert!(low < fixed.0 + 0.5 && high > fixed.1 - 0.5, "{low} {high} {fixed:?}");
        assert_eq!(checks.median(&values[..5]), None);
    }
}
