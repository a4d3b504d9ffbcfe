//! The share and the recovery of the flows beside a tool: medians per row and path.

use longhaul_core::plan::Condition;
use longhaul_core::result::{FlowFigures, Outcome, RunRecord};
use longhaul_core::stats::median;
use longhaul_core::units::Rate;
use serde::Serialize;

use crate::archive::Contents;
use crate::table::{CellOutcome, Table};

/// The share and the recovery of the flows beside the tool of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FlowShare {
    /// The name of the row.
    pub(crate) label: String,
    /// The index of the path in the table.
    pub(crate) condition: usize,
    /// The state of the cell: measured, or the reason why there is no figure.
    pub(crate) state: CellOutcome,
    /// The median of the mean share of the flows in the link's rate while the tool ran.
    pub(crate) mean_share: Option<f64>,
    /// The median of the smallest share in a second while the tool ran.
    pub(crate) least_share: Option<f64>,
    /// The median of the seconds from the end of the tool until the flows had 80 % of the link's
    /// rate; `None` if they did not reach it in `after_seconds`.
    pub(crate) recovery_seconds: Option<f64>,
    /// The seconds after the end of the tool in which the recovery was measured.
    pub(crate) after_seconds: f64,
    /// The median goodput of the tool meanwhile.
    pub(crate) goodput_bps: Option<Rate>,
    /// The number of valid runs.
    pub(crate) runs: usize,
    /// The numbers of the notes of the table's cell, from 1.
    pub(crate) notes: Vec<usize>,
}

/// Returns the valid runs of a row and a path that have figures of flows, with these figures.
pub(crate) fn flow_runs<'c>(
    contents: &'c Contents,
    label: &str,
    path: &Condition,
) -> impl Iterator<Item = (&'c RunRecord, &'c FlowFigures)> {
    let runs = contents.runs.iter().filter(move |run| {
        run.label == label && run.condition == *path && run.outcome == Outcome::Ok
    });
    runs.filter_map(|run| Some((run, run.flows.as_ref()?)))
}

/// Returns the figures of the flows per cell of the plan, in the order of the table; empty if the
/// plan does not measure them.
pub(crate) fn flow_shares(contents: &Contents, table: &Table) -> Vec<FlowShare> {
    let plan = &contents.header.plan;
    let Some(times) = plan.recovery else { return Vec::new() };
    let (planned, paths) = (plan.rows(), plan.conditions());
    let mut found = Vec::new();
    for cell in plan.cells() {
        if plan.entries[planned[cell.row].entry].beside == 0 {
            continue;
        }
        // The rows of the table are those of the plan; its columns are in another order.
        let row = &table.rows[cell.row];
        let path = &paths[cell.condition];
        let Some(condition) = table.conditions.iter().position(|condition| condition == path)
        else {
            continue;
        };
        let figure = &row.cells[condition];
        let flows: Vec<&FlowFigures> =
            flow_runs(contents, &row.label, path).map(|(_, flows)| flows).collect();
        let of = |value: fn(&FlowFigures) -> Option<f64>| {
            median(&flows.iter().filter_map(|flow| value(flow)).collect::<Vec<f64>>())
        };
        found.push(FlowShare {
            label: row.label.clone(),
            condition,
            state: figure.state,
            mean_share: of(|flow| Some(flow.mean_share)),
            least_share: of(|flow| flow.least_share),
            // A flow that did not recover counts as slower than every other one.
            recovery_seconds: of(|flow| Some(flow.recovery_seconds.unwrap_or(f64::INFINITY)))
                .filter(|seconds| seconds.is_finite()),
            after_seconds: times.after().as_secs_f64(),
            goodput_bps: figure.median_bps,
            runs: flows.len(),
            notes: figure.notes.clone(),
        });
    }
    found.sort_by_key(|share| share.condition);
    found
}

impl FlowShare {
    /// Returns the time of the recovery in words; `None` without a valid run.
    pub(crate) fn recovery(&self) -> Option<String> {
        self.mean_share?;
        Some(match self.recovery_seconds {
            Some(seconds) => format!("{seconds:.1} s"),
            None => format!("more than {:.0} s", self.after_seconds),
        })
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::FlowTimes;

    use super::*;
    use crate::report::fixture;

    fn shares(contents: &Contents) -> Vec<FlowShare> {
        flow_shares(contents, &Table::fold(contents))
    }

    #[test]
    fn a_flow_that_does_not_recover_is_slower_than_every_other() {
        let mut contents = fixture::contents_with_flows();
        let all = shares(&contents);
        assert_eq!(all.len(), 4, "one row with flows over four paths");
        let first = &all[0];
        assert_eq!((first.label.as_str(), first.runs), ("scp, beside 1 cubic flow", 2));
        assert!((first.mean_share.unwrap() - 0.45).abs() < 1e-9, "{first:?}");
        assert_eq!(first.recovery().as_deref(), Some("more than 10 s"));
        // Both runs at 180 ms failed.
        assert_eq!((all[3].state, all[3].recovery()), (CellOutcome::Failed, None));
        assert!(!all[3].notes.is_empty());

        for run in &mut contents.runs {
            if let Some(flows) = &mut run.flows {
                flows.recovery_seconds = Some(f64::from(run.repeat) * 2.0);
            }
        }
        assert_eq!(shares(&contents)[0].recovery().as_deref(), Some("3.0 s"));
        contents.header.plan.recovery = Some(FlowTimes::default());
        contents.header.plan.entries[3].beside = 0;
        contents.header.plan.entries[3].beside_congestion.clear();
        assert_eq!(shares(&contents), []);
    }
}
