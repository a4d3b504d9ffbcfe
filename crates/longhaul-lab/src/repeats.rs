//! The effect of repeating invalid runs.
//!
//! A run is repeated if the host disturbed it. A tool that needs more CPU time is disturbed more
//! often, so repeating selects the runs of that tool. The report therefore shows the medians with
//! and without the repeated runs, and names every order that the repeats changed.

use longhaul_core::plan::{Condition, Workload};
use longhaul_core::result::{Outcome, RunRecord};
use longhaul_core::stats::median;
use longhaul_core::units::{Bytes, Rate};
use serde::Serialize;

/// The invalid runs of a matrix that were repeated, and their effect.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Repeats {
    /// The rows with repeated runs, in the order of the table.
    pub rows: Vec<RepeatedRow>,
    /// The pairs of rows whose order depends on the repeats.
    pub reversals: Vec<Reversal>,
}

/// The repeated runs of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepeatedRow {
    /// The name of the row.
    pub label: String,
    /// The number of all runs of the row.
    pub runs: usize,
    /// The number of invalid runs that were repeated.
    pub repeated: usize,
    /// The cells with repeated runs.
    pub cells: Vec<RepeatedCell>,
}

/// The medians of a cell with repeated runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepeatedCell {
    /// The index of the path in the table.
    pub condition: usize,
    /// The number of invalid runs that were repeated.
    pub repeated: usize,
    /// The median of the valid runs.
    pub median_bps: Option<Rate>,
    /// The median of the valid and the invalid runs that have a figure.
    pub median_of_all_bps: Option<Rate>,
}

/// Two rows with the same work whose order on a path the repeats changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reversal {
    /// The index of the path in the table.
    pub condition: usize,
    /// The row that is faster by the valid runs.
    pub faster: String,
    /// The row that is faster if the invalid runs count.
    pub slower: String,
}

/// A row of the table, as far as its repeats depend on it.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) label: &'a str,
    /// The work; rows with the same work are compared.
    pub(crate) work: (Workload, &'a str, Option<Bytes>),
    /// The medians of the valid runs, one per path.
    pub(crate) medians: Vec<Option<Rate>>,
}

impl Repeats {
    /// Finds the repeated runs of the rows of a table.
    pub(crate) fn of(runs: &[RunRecord], rows: &[Subject<'_>], conditions: &[Condition]) -> Self {
        let mut found = Repeats::default();
        for row in rows {
            let own: Vec<&RunRecord> = runs.iter().filter(|run| run.label == row.label).collect();
            let cells = conditions.iter().enumerate().map(|(index, condition)| {
                let here = own.iter().copied().filter(|run| run.condition == *condition);
                cell(index, &here.collect::<Vec<_>>())
            });
            let cells: Vec<RepeatedCell> = cells.filter(|cell| cell.repeated > 0).collect();
            if !cells.is_empty() {
                found.rows.push(RepeatedRow {
                    label: row.label.to_owned(),
                    runs: own.len(),
                    repeated: cells.iter().map(|cell| cell.repeated).sum(),
                    cells,
                });
            }
        }
        found.reversals = found.reversals(rows, conditions.len());
        found
    }

    /// Returns the median of a cell if the invalid runs count.
    fn of_all(&self, row: &Subject<'_>, condition: usize) -> Option<Rate> {
        let repeated = self.rows.iter().find(|repeated| repeated.label == row.label);
        let cell = repeated.and_then(|row| row.cells.iter().find(|c| c.condition == condition));
        cell.map_or(row.medians[condition], |cell| cell.median_of_all_bps)
    }

    fn reversals(&self, rows: &[Subject<'_>], conditions: usize) -> Vec<Reversal> {
        let mut found = Vec::new();
        for condition in 0..conditions {
            for (index, one) in rows.iter().enumerate() {
                for other in rows[index + 1..].iter().filter(|other| other.work == one.work) {
                    let (a, b) = (one.medians[condition], other.medians[condition]);
                    let all = |row: &Subject<'_>| self.of_all(row, condition);
                    let (Some(a), Some(b), Some(c), Some(d)) = (a, b, all(one), all(other)) else {
                        continue;
                    };
                    let (faster, slower) = match (a > b && c < d, a < b && c > d) {
                        (true, _) => (one, other),
                        (_, true) => (other, one),
                        _ => continue,
                    };
                    let (faster, slower) = (faster.label.to_owned(), slower.label.to_owned());
                    found.push(Reversal { condition, faster, slower });
                }
            }
        }
        found
    }
}

fn is_invalid(run: &RunRecord) -> bool {
    matches!(run.outcome, Outcome::Invalid { .. })
}

fn cell(condition: usize, runs: &[&RunRecord]) -> RepeatedCell {
    // A run that was invalid in all attempts was repeated, too.
    let is_repeated = |run: &RunRecord| {
        let is_other = |other: &RunRecord| {
            let is_later = other.attempt > run.attempt || other.outcome == Outcome::Ok;
            other.sequence == run.sequence && is_later
        };
        is_invalid(run) && runs.iter().any(|other| is_other(other))
    };
    let count = runs.iter().filter(|run| is_repeated(run)).count();
    let invalid = runs.iter().copied().filter(|run| is_invalid(run));
    let valid = runs.iter().copied().filter(|run| run.outcome == Outcome::Ok);
    let rates = |runs: &[&RunRecord]| {
        let rates = runs.iter().filter_map(|run| run.throughput_bps);
        let rates: Vec<f64> = rates.map(|rate| rate.bps() as f64).collect();
        median(&rates).map(|bps| Rate::from_bps(bps as u64))
    };
    let (valid, invalid): (Vec<&RunRecord>, Vec<&RunRecord>) = (valid.collect(), invalid.collect());
    let median_bps = rates(&valid);
    let median_of_all_bps = rates(&[valid, invalid].concat());
    RepeatedCell { condition, repeated: count, median_bps, median_of_all_bps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::table::Table;

    #[test]
    fn a_repeat_that_changes_the_order_is_named() {
        let mut contents = fixture::contents();
        // longhaul cp is faster than rsync at 180 ms, unless two slow runs that were repeated
        // count.
        let first = contents.runs.iter().find(|run| {
            run.tool == "longhaul cp" && run.condition.rtt.as_millis() == 180 && run.repeat == 1
        });
        let first = first.unwrap().clone();
        for attempt in 1..=2 {
            contents.runs.push(RunRecord {
                attempt,
                outcome: Outcome::Invalid { reason: "late".into() },
                throughput_bps: Some(Rate::from_bps(1_000_000)),
                ..first.clone()
            });
        }
        contents.runs.push(RunRecord {
            attempt: 3,
            outcome: Outcome::Invalid { reason: "late".into() },
            throughput_bps: Some(Rate::from_bps(1_000_000)),
            ..first
        });
        let repeats = Table::fold(&contents).repeats;
        let row = repeats.rows.iter().find(|row| row.label.starts_with("longhaul cp")).unwrap();
        assert_eq!((row.repeated, row.cells.len()), (3, 1));
        assert!(row.cells[0].median_of_all_bps < row.cells[0].median_bps);
        let [reversal] = &repeats.reversals[..] else { panic!("{repeats:?}") };
        assert!(reversal.faster.starts_with("longhaul cp") && reversal.slower.starts_with("rsync"));
        assert_eq!(reversal.condition, 3);
    }

    #[test]
    fn a_run_that_was_never_valid_was_repeated_too() {
        let mut contents = fixture::contents();
        let first = contents.runs.iter().find(|run| run.tool == "scp").unwrap().clone();
        contents.runs.retain(|run| run.sequence != first.sequence);
        for attempt in 1..=3 {
            contents.runs.push(RunRecord {
                attempt,
                outcome: Outcome::Invalid { reason: "late".into() },
                ..first.clone()
            });
        }
        let repeats = Table::fold(&contents).repeats;
        let row = repeats.rows.iter().find(|row| row.label == "scp").unwrap();
        assert_eq!(row.repeated, 2, "the third run was not repeated");
    }

    #[test]
    fn without_repeats_there_is_nothing_to_report() {
        let mut contents = fixture::contents();
        contents.runs.retain(|run| run.outcome == Outcome::Ok);
        assert_eq!(Table::fold(&contents).repeats, Repeats::default());
    }
}
