//! The difference between two matrices with the same rows and paths: an earlier and a later one.

use longhaul_core::plan::{Condition, Workload};
use longhaul_core::units::Rate;
use serde::Serialize;

use crate::archive::MatrixHeader;
use crate::table::{CellFigure, Table};

/// The comparison of the cells that two tables share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableComparison {
    /// The columns that both tables have.
    pub conditions: Vec<Condition>,
    /// The rows that both tables have, in the order of the later table.
    pub rows: Vec<ChangedRow>,
    /// The rows that only the later table has.
    pub added: Vec<String>,
    /// The rows that only the earlier table has.
    pub gone: Vec<String>,
    /// The facts that differ between the two matrices and may make the comparison unfair.
    pub differences: Vec<String>,
}

/// One row in both tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedRow {
    /// The name of the row.
    pub label: String,
    /// The kind of work.
    pub workload: Workload,
    /// One cell per condition; `None` if one of the tables has no figure.
    pub cells: Vec<Option<ChangedCell>>,
}

/// One cell in both tables.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChangedCell {
    /// The earlier median.
    pub then_bps: Rate,
    /// The later median.
    pub now_bps: Rate,
    /// The later median divided by the earlier one.
    pub ratio: f64,
    /// True if the two 95 % intervals do not overlap; `None` if a median has no interval because
    /// the cell has fewer than six runs.
    pub apart: Option<bool>,
}

impl TableComparison {
    /// Compares two tables, each given with the header of its archive.
    pub fn between(then: (&MatrixHeader, &Table), now: (&MatrixHeader, &Table)) -> Self {
        let (then_header, then) = then;
        let (now_header, now) = now;
        let conditions: Vec<Condition> =
            now.conditions.iter().filter(|c| then.conditions.contains(c)).cloned().collect();
        let cell = |table: &Table, row: usize, condition: &Condition| {
            let column = table.conditions.iter().position(|other| other == condition)?;
            table.rows[row].cells.get(column).cloned()
        };
        let place = |table: &Table, label: &str| table.rows.iter().position(|r| r.label == label);
        let shared = now.rows.iter().enumerate().filter_map(|(row, entry)| {
            let before = place(then, &entry.label)?;
            let cells = conditions.iter().map(|condition| {
                changed(&cell(then, before, condition)?, &cell(now, row, condition)?)
            });
            let cells = cells.collect();
            Some(ChangedRow { label: entry.label.clone(), workload: entry.workload, cells })
        });
        let rows = shared.collect();
        let only_in = |table: &Table, other: &Table| {
            let labels = table.rows.iter().map(|row| row.label.clone());
            labels.filter(|label| place(other, label).is_none()).collect()
        };
        let (added, gone) = (only_in(now, then), only_in(then, now));
        let differences = differences(then_header, now_header);
        TableComparison { conditions, rows, added, gone, differences }
    }
}

fn changed(then: &CellFigure, now: &CellFigure) -> Option<ChangedCell> {
    let (then_bps, now_bps) = (then.median_bps?, now.median_bps?);
    let apart = then.interval_bps.zip(now.interval_bps);
    let apart = apart.map(|((a, b), (c, d))| b < c || d < a);
    let ratio = now_bps.bps() as f64 / then_bps.bps().max(1) as f64;
    Some(ChangedCell { then_bps, now_bps, ratio, apart })
}

fn differences(then: &MatrixHeader, now: &MatrixHeader) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |name: &str, then: String, now: String| {
        if then != now {
            found.push(format!("{name}: {then}, now {now}"));
        }
    };
    note("longhaul", then.program_version.clone(), now.program_version.clone());
    note("network", then.network.clone(), now.network.clone());
    let seconds = |header: &MatrixHeader| {
        let memory = &header.plan.memory;
        format!("{} s after {} s", memory.seconds, memory.omit_seconds)
    };
    note("memory", seconds(then), seconds(now));
    let data = |header: &MatrixHeader| {
        header.data.as_ref().map_or("none".into(), |d| format!("{} in {}", d.bytes, d.files))
    };
    note("data", data(then), data(now));
    for (name, value) in &now.facts {
        let before = then.facts.iter().find(|(other, _)| other == name);
        note(name, before.map_or("not recorded".into(), |(_, v)| v.clone()), value.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn shared_cells_are_compared_and_the_rest_is_named() {
        let then = fixture::contents();
        let mut now = fixture::contents();
        now.header.facts[0].1 = "6.19.0".into();
        now.header.plan.entries[1].label = Some("another".into());
        for run in &mut now.runs {
            run.throughput_bps = run.throughput_bps.map(|rate| Rate::from_bps(rate.bps() / 2));
        }
        let (before, after) = (Table::fold(&then), Table::fold(&now));
        let change = TableComparison::between((&then.header, &before), (&now.header, &after));
        assert_eq!(change.added, ["another"]);
        assert_eq!(change.gone, ["nuttcp"]);
        assert_eq!(change.differences, ["Kernel: 6.18.0, now 6.19.0"]);
        let labels: Vec<&str> = change.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels[..3], ["iperf3", "longhaul cp --cleartext", "scp"]);
        let scp = &change.rows[2];
        assert!((scp.cells[0].unwrap().ratio - 0.5).abs() < 1e-6);
        assert_eq!(scp.cells[0].unwrap().apart, None, "two runs have no interval");
        assert_eq!(scp.cells[3], None, "failed at 180 ms");
    }

    #[test]
    fn intervals_that_lie_apart_are_a_change() {
        let figure = |low: u64, high: u64| CellFigure {
            median_bps: Some(Rate::from_bps((low + high) / 2)),
            interval_bps: Some((Rate::from_bps(low), Rate::from_bps(high))),
            ..Table::fold(&fixture::contents()).rows[0].cells[1].clone()
        };
        let apart = |then, now| changed(&then, &now).unwrap().apart;
        assert_eq!(apart(figure(10, 20), figure(21, 30)), Some(true));
        assert_eq!(apart(figure(21, 30), figure(10, 20)), Some(true));
        assert_eq!(apart(figure(10, 22), figure(21, 30)), Some(false));
    }
}
