//! Decides which runs are still needed.

use std::collections::HashMap;

use longhaul_core::plan::{Condition, MatrixPlan, MatrixRow};
use longhaul_core::result::{Outcome, RunRecord};
use longhaul_core::sequential::InterimChecks;

use super::PlannedRun;

/// The number of attempts after which a place in the matrix stays invalid. The cause of a single
/// invalid run, such as a burst of other work on the host, often ends within a minute; the cause of
/// three invalid runs is likely to persist.
const ATTEMPTS: u32 = 3;

/// The completed runs, and the decision which runs are still needed.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    plan: &'a MatrixPlan,
    /// The numbers of valid runs at which a cell may be complete.
    checks: Option<InterimChecks>,
    rows: Vec<MatrixRow>,
    conditions: Vec<Condition>,
    retry_failed: bool,
    places: HashMap<u32, Place>,
    /// The valid figures by row name and path.
    figures: HashMap<String, Vec<(Condition, f64)>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Place {
    /// The number of all attempts.
    attempts: u32,
    /// The number of attempts since this matrix was started or resumed.
    here: u32,
    last: LastOutcome,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LastOutcome {
    #[default]
    None,
    Ok,
    Failed,
    Invalid,
}

impl<'a> Tally<'a> {
    /// Creates the tally of an archive's runs. With `retry_failed`, failed runs are repeated.
    pub(super) fn new(plan: &'a MatrixPlan, runs: &[RunRecord], retry_failed: bool) -> Self {
        let (rows, conditions) = (plan.rows(), plan.conditions());
        let (places, figures) = Default::default();
        let checks = plan.interim_checks();
        let mut tally = Tally { plan, checks, rows, conditions, retry_failed, places, figures };
        for run in runs {
            tally.add(run);
        }
        for place in tally.places.values_mut() {
            place.here = 0;
        }
        tally
    }

    /// Counts a run.
    pub(super) fn add(&mut self, run: &RunRecord) {
        let place = self.places.entry(run.sequence).or_default();
        place.attempts = place.attempts.max(run.attempt);
        place.here += 1;
        place.last = match run.outcome {
            Outcome::Ok => LastOutcome::Ok,
            Outcome::Failed { .. } => LastOutcome::Failed,
            Outcome::Invalid { .. } => LastOutcome::Invalid,
        };
        if let (Outcome::Ok, Some(rate)) = (&run.outcome, run.throughput_bps) {
            let figures = self.figures.entry(run.label.clone()).or_default();
            figures.push((run.condition.clone(), rate.bps() as f64));
        }
    }

    /// Returns the number of the next attempt at a place, if another one is needed.
    pub(super) fn next_attempt(&self, sequence: u32) -> Option<u32> {
        let place = self.places.get(&sequence).copied().unwrap_or_default();
        let again = match place.last {
            LastOutcome::None => true,
            LastOutcome::Ok => false,
            LastOutcome::Failed => self.retry_failed && place.here == 0,
            LastOutcome::Invalid => place.here < ATTEMPTS,
        };
        again.then_some(place.attempts + 1)
    }

    /// Returns whether a place has any run.
    pub(super) fn has(&self, sequence: u32) -> bool {
        self.places.contains_key(&sequence)
    }

    /// Returns whether `cell` needs a run: its place has no valid run, and the plan or the
    /// precision of the cell's median requires its pass.
    pub(super) fn wants(&self, sequence: u32, cell: &PlannedRun) -> bool {
        let asked_for = cell.repeat <= self.plan.repeats || !self.is_settled(cell);
        asked_for && self.next_attempt(sequence).is_some()
    }

    /// Returns whether the median of a cell has the plan's precision. A cell without valid runs
    /// never has it, and gets only the plan's repeats.
    fn is_settled(&self, cell: &PlannedRun) -> bool {
        let (Some(target), Some(checks)) = (&self.plan.precision, &self.checks) else {
            return true;
        };
        let (row, condition) = (&self.rows[cell.row], &self.conditions[cell.condition]);
        let all = self.figures.get(&row.label).map_or(&[][..], Vec::as_slice);
        let here = all.iter().filter(|(path, _)| path == condition);
        let values: Vec<f64> = here.map(|(_, bps)| *bps).collect();
        values.is_empty() || checks.settled(&values, target.share)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_core::plan::Precision;
    use longhaul_core::units::Rate;

    use super::super::cells;
    use super::*;
    use crate::plan::Shipped;
    use crate::report::fixture;

    fn plan() -> MatrixPlan {
        let drivers = crate::drivers::all(Path::new("longhaul"));
        let mut plan = Shipped::named("quick").unwrap().plan(&drivers).unwrap();
        plan.precision = Some(Precision::new(0.1, 40));
        plan
    }

    fn run(
        plan: &MatrixPlan,
        cell: &PlannedRun,
        sequence: u32,
        outcome: Outcome,
        bps: u64,
    ) -> RunRecord {
        RunRecord {
            sequence,
            repeat: cell.repeat,
            label: plan.rows()[cell.row].label.clone(),
            condition: plan.conditions()[cell.condition].clone(),
            outcome,
            throughput_bps: Some(Rate::from_bps(bps)),
            ..fixture::contents().runs[0].clone()
        }
    }

    #[test]
    fn an_invalid_run_is_made_again_and_a_failed_one_on_request() {
        let plan = plan();
        let cell = cells(&plan)[0];
        let mut tally = Tally::new(&plan, &[], false);
        assert_eq!(tally.next_attempt(1), Some(1));
        let invalid = || Outcome::Invalid { reason: "late".into() };
        let mut runs = Vec::new();
        for attempt in 1..=3 {
            assert_eq!(tally.next_attempt(1), Some(attempt));
            let run = RunRecord { attempt, ..run(&plan, &cell, 1, invalid(), 1) };
            tally.add(&run);
            runs.push(run);
        }
        assert_eq!(tally.next_attempt(1), None);
        assert_eq!(Tally::new(&plan, &runs, false).next_attempt(1), Some(4), "when resumed");

        let failed = [run(&plan, &cell, 2, Outcome::Failed { reason: "no".into() }, 1)];
        assert_eq!(Tally::new(&plan, &failed, false).next_attempt(2), None);
        assert_eq!(Tally::new(&plan, &failed, true).next_attempt(2), Some(2));
    }

    #[test]
    fn passes_continue_until_a_check_finds_a_narrow_interval() {
        let plan = plan();
        let all = cells(&plan);
        let first = all[0];
        let mut same: Vec<(u32, PlannedRun)> = (1..).zip(all).collect();
        same.retain(|(_, cell)| (cell.row, cell.condition) == (first.row, first.condition));
        let mut tally = Tally::new(&plan, &[], false);
        let checks = plan.interim_checks().unwrap();
        // Two odd figures leave the first interval wide; figures within 5 % of 10 Gb/s follow.
        let figures = [100, 60, 99, 101, 61, 98, 102, 97, 103].into_iter();
        for (index, bps) in figures.chain([100, 101, 99].into_iter().cycle()).enumerate() {
            let Some((sequence, cell)) = same.get(index) else { panic!("it never settles") };
            if !tally.wants(*sequence, cell) {
                assert_eq!(index, checks.counts()[1]);
                return;
            }
            tally.add(&run(&plan, cell, *sequence, Outcome::Ok, bps * 100_000_000));
        }
    }
}
