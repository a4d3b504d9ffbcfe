//! The table that fills while a matrix runs, as text of a given width and height. It is pure, so
//! that it is tested without a terminal.

use longhaul_core::plan::{Condition, MatrixPlan, MatrixRow};
use longhaul_core::result::{Outcome, RunRecord};
use longhaul_core::stats::median;

/// The largest width of a row's name.
const NAME: usize = 30;
/// The smallest width of a column: `invalid` and the brackets around the running cell.
const CELL: usize = 9;

/// The results so far.
pub(super) struct LiveTable {
    rows: Vec<MatrixRow>,
    conditions: Vec<Condition>,
    /// By row and column.
    cells: Vec<Vec<Cell>>,
    running: Option<(usize, usize)>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    /// The plan's constraints exclude it.
    Excluded,
    /// No run has ended.
    Waiting,
    /// The tool is not installed.
    Missing,
    /// The Gb/s of the valid runs.
    Figures(Vec<f64>),
    Failed,
    Invalid,
}

impl LiveTable {
    /// Returns the table of a plan before its first run.
    pub(super) fn new(plan: &MatrixPlan) -> Self {
        let (rows, conditions) = (plan.rows(), plan.conditions());
        let mut cells = vec![vec![Cell::Excluded; conditions.len()]; rows.len()];
        for cell in plan.cells() {
            cells[cell.row][cell.condition] = Cell::Waiting;
        }
        LiveTable { rows, conditions, cells, running: None }
    }

    /// Marks the rows of a tool that is not installed.
    pub(super) fn missing(&mut self, plan: &MatrixPlan, tool: &str) {
        for (row, cells) in self.rows.iter().zip(&mut self.cells) {
            if plan.entries[row.entry].tool == tool {
                cells.iter_mut().for_each(|cell| *cell = Cell::Missing);
            }
        }
    }

    /// Marks the start of a run.
    pub(super) fn started(&mut self, row: usize, condition: usize) {
        self.running = Some((row, condition));
    }

    /// Adds a run that ended now or in an earlier session.
    pub(super) fn add(&mut self, run: &RunRecord) {
        self.running = None;
        let row = self.rows.iter().position(|row| row.label == run.label);
        let column = self.conditions.iter().position(|path| *path == run.condition);
        let (Some(row), Some(column)) = (row, column) else { return };
        let cell = &mut self.cells[row][column];
        match (&run.outcome, run.throughput_bps) {
            (Outcome::Ok, Some(rate)) => {
                let gbps = rate.bps() as f64 / 1e9;
                match cell {
                    Cell::Figures(known) => known.push(gbps),
                    other => *other = Cell::Figures(vec![gbps]),
                }
            }
            _ if matches!(cell, Cell::Figures(_)) => {}
            (Outcome::Invalid { .. }, _) => *cell = Cell::Invalid,
            _ => *cell = Cell::Failed,
        }
    }

    /// Returns at most `height` lines of at most `width` characters, including the running cell.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let name = self.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
        let name = name.clamp(4, NAME).min(width / 2);
        let heads: Vec<String> = self.conditions.iter().map(Condition::label).collect();
        let widths: Vec<usize> = heads.iter().map(|head| head.chars().count().max(CELL)).collect();
        let (row_now, column_now) = self.running.unwrap_or((0, 0));
        let columns = window(&widths, column_now, width.saturating_sub(name + 2));
        let rows = window(&vec![1; self.rows.len()], row_now, height.saturating_sub(1));

        let more = |hidden: bool, mark: &'static str| if hidden { mark } else { "" };
        let mut head = pad(more(columns.start > 0, "<"), name);
        for column in columns.clone() {
            head.push_str(&format!("  {:>1$}", heads[column], widths[column]));
        }
        head.push_str(more(columns.end < heads.len(), " >"));
        let mut lines = vec![head];
        for row in rows {
            let mut line = pad(&self.rows[row].label, name);
            for column in columns.clone() {
                let running = self.running == Some((row, column));
                let text = self.cells[row][column].text(running);
                line.push_str(&format!("  {text:>0$}", widths[column]));
            }
            lines.push(line.trim_end().to_owned());
        }
        lines
    }
}

impl Cell {
    /// Returns `9.41`, or `[9.41]` while the cell runs again.
    fn text(&self, running: bool) -> String {
        let text = match self {
            Cell::Excluded => String::new(),
            Cell::Waiting => if running { "..." } else { "." }.to_owned(),
            Cell::Missing => "-".to_owned(),
            Cell::Failed => "failed".to_owned(),
            Cell::Invalid => "invalid".to_owned(),
            Cell::Figures(figures) => gbps(median(figures).unwrap_or_default()),
        };
        if running { format!("[{text}]") } else { text }
    }
}

fn gbps(value: f64) -> String {
    match value {
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns a name with exactly `width` characters.
fn pad(name: &str, width: usize) -> String {
    let cut: String = if name.chars().count() > width {
        name.chars().take(width.saturating_sub(2)).chain("..".chars()).collect()
    } else {
        name.to_owned()
    };
    format!("{cut:<width$}")
}

/// Returns the longest range around `now` with widths, plus two per gap, that fit in `room`. It
/// always includes `now`.
fn window(widths: &[usize], now: usize, room: usize) -> std::ops::Range<usize> {
    let gap = if widths.iter().all(|width| *width == 1) { 0 } else { 2 };
    let now = now.min(widths.len().saturating_sub(1));
    let (mut from, mut to) = (now, (now + 1).min(widths.len()));
    let mut used = widths.get(now).map_or(0, |width| width + gap);
    loop {
        let after = widths.get(to).map(|width| width + gap).filter(|more| used + more <= room);
        if let Some(more) = after {
            (used, to) = (used + more, to + 1);
        }
        let before = from.checked_sub(1).map(|at| widths[at] + gap);
        let before = before.filter(|more| used + more <= room);
        if let Some(more) = before {
            (used, from) = (used + more, from - 1);
        }
        if after.is_none() && before.is_none() {
            return from..to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::{Conditions, PlanEntry};
    use longhaul_core::units::Rate;

    use super::*;

    fn plan(tools: &[&str], rtts: &[u64]) -> MatrixPlan {
        let rtts: Vec<Duration> = rtts.iter().map(|ms| Duration::from_millis(*ms)).collect();
        let mut plan = MatrixPlan::named("live");
        plan.conditions = Conditions::new(&rtts, &[]);
        plan.entries = tools.iter().map(|tool| PlanEntry::new(tool, "memory")).collect();
        plan
    }

    /// Returns a record with the fields that the table reads.
    fn run(tool: &str, rtt_ms: u64, outcome: Outcome, mbps: u64) -> RunRecord {
        let text = r#"{"schema": "longhaul.run/1", "sequence": 1, "repeat": 1, "tool": "x",
            "label": "x", "options": [], "workload": "memory",
            "condition": {"rtt_ms": 0.0, "rate_bps": null}, "outcome": {"status": "ok"},
            "throughput_bps": null, "tool_throughput_bps": null, "bytes": null, "seconds": 1.5,
            "durable_seconds": null,
            "guarantees": {"encrypted": true, "verified": false, "synced": false},
            "caches": null, "started_at": "", "tool_version": "", "near_command": "",
            "far_command": null,
            "near_output": {"exit_code": 0, "stdout": "", "stderr": "", "truncated": false},
            "far_output": null, "notes": [], "path": null}"#;
        let record: RunRecord = serde_json::from_str(text).unwrap();
        RunRecord {
            label: tool.into(),
            condition: Condition::new(Duration::from_millis(rtt_ms), None),
            outcome,
            throughput_bps: Some(Rate::from_bps(mbps * 1_000_000)),
            ..record
        }
    }

    #[test]
    fn the_table_fills_cell_by_cell() {
        let plan = plan(&["iperf3", "nuttcp", "longhaul test"], &[0, 90]);
        let mut table = LiveTable::new(&plan);
        table.missing(&plan, "nuttcp");
        table.add(&run("iperf3", 0, Outcome::Ok, 21_430));
        table.add(&run("iperf3", 90, Outcome::Failed { reason: "no".into() }, 0));
        table.add(&run("longhaul test", 0, Outcome::Ok, 9_000));
        table.add(&run("longhaul test", 0, Outcome::Ok, 9_820));
        table.started(2, 1);
        assert_eq!(
            table.lines(80, 20),
            [
                "                    0 ms      90 ms",
                "iperf3              21.4     failed",
                "nuttcp                 -          -",
                "longhaul test       9.41      [...]",
            ]
        );
        table.started(2, 0);
        assert!(table.lines(80, 20)[3].contains("[9.41]"));
    }

    #[test]
    fn an_invalid_run_does_not_hide_a_figure() {
        let plan = plan(&["iperf3"], &[0]);
        let mut table = LiveTable::new(&plan);
        let invalid = || Outcome::Invalid { reason: "late".into() };
        table.add(&run("iperf3", 0, invalid(), 5));
        assert_eq!(table.cells[0][0], Cell::Invalid);
        table.add(&run("iperf3", 0, Outcome::Ok, 5_000));
        table.add(&run("iperf3", 0, invalid(), 5));
        assert_eq!(table.cells[0][0], Cell::Figures(vec![5.0]));
    }

    #[test]
    fn a_small_terminal_shows_the_running_cell() {
        let names: Vec<String> = (0..40).map(|n| format!("tool {n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let plan = plan(&names, &[0, 15, 90, 180, 250, 300]);
        let mut table = LiveTable::new(&plan);
        table.started(30, 4);
        let lines = table.lines(40, 8);
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("tool 30") && line.contains("[...]")));
        assert!(lines[0].contains("250 ms") && lines[0].starts_with('<'), "{lines:#?}");
    }

    #[test]
    fn the_window_grows_to_both_sides() {
        assert_eq!(window(&[1; 10], 5, 4), 4..8);
        assert_eq!(window(&[9, 9, 9], 2, 22), 1..3);
        assert_eq!(window(&[9, 9, 9], 0, 3), 0..1);
        assert_eq!(window(&[], 0, 3), 0..0);
    }
}
