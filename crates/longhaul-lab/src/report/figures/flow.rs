//! The figure of the share of the flows beside the tools over time.

use longhaul_chart::{Axis, Line, LineChart, LineKind, LinePoint, Panel, Scale};
use longhaul_core::plan::{Condition, MatrixRow};
use longhaul_core::result::{FlowFigures, RunRecord};

use super::palette::palette;
use super::{Chart, Columns, Figure, MOST_PANELS, shown};
use crate::archive::Contents;
use crate::flow_share::{flow_runs, flow_shares};
use crate::report::flow::{HEADS, MEANING, lines};
use crate::table::Table;

/// Returns the share of the flows over time, one panel per path and congestion control, with the
/// table of all cells; `None` if the plan does not measure it.
pub(super) fn flow(contents: &Contents, table: &Table) -> Option<Figure> {
    let lines = lines(contents, table);
    if lines.is_empty() {
        return None;
    }
    let panels = panels(contents, table);
    let chart = (!panels.is_empty()).then(|| Chart::Lines(chart(contents, panels)));
    let columns = Columns {
        title: "Share and recovery of the flow".into(),
        heads: HEADS.map(str::to_owned).to_vec(),
        lines,
    };
    let figure = Figure::new("flow-share", chart);
    Some(figure.with_table(columns).with_note(MEANING))
}

fn chart(contents: &Contents, mut panels: Vec<Panel>) -> LineChart {
    let left_out = panels.len().saturating_sub(MOST_PANELS);
    panels.truncate(MOST_PANELS);
    let points = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let xs: Vec<f64> = points().map(|point| point.x).collect();
    let entries = &contents.header.plan.entries;
    LineChart {
        title: "Share of the flow over time".into(),
        subtitle: format!(
            "Mean of each second from the start of the tool; marked at the end of the tool{}",
            shown(left_out)
        ),
        x: Axis::new("Seconds", Scale::from_zero(&xs)),
        y: Axis::new("Share of the link, %", Scale::from_zero(&[100.0])),
        panels,
        names: entries.iter().map(|entry| entry.without_flows().label()).collect(),
        palette: palette(entries.iter().map(|entry| entry.tool.as_str())),
    }
}

/// Returns the panels that have a valid run, in the order of the table.
fn panels(contents: &Contents, table: &Table) -> Vec<Panel> {
    let plan = &contents.header.plan;
    let rows = plan.rows();
    let mut panels: Vec<Panel> = Vec::new();
    for share in flow_shares(contents, table) {
        let (Some(path), Some(row)) = (
            table.conditions.get(share.condition),
            rows.iter().find(|row| row.label == share.label),
        ) else {
            continue;
        };
        let Some((run, flows)) = typical(contents, row, path, share.mean_share) else { continue };
        let flow = row.beside_congestion.as_deref().unwrap_or("default");
        let title = format!("{}, {flow} flow", path.label());
        let line = Line {
            series: row.entry,
            kind: LineKind::Trace,
            points: points(flows, run.seconds.unwrap_or_default()),
        };
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.lines.push(line),
            None => {
                panels.push(Panel { title, lines: vec![line], references: Vec::new(), y: None });
            }
        }
    }
    panels
}

/// Returns the valid run of a cell whose share is nearest the median.
fn typical<'a>(
    contents: &'a Contents,
    row: &MatrixRow,
    path: &Condition,
    median: Option<f64>,
) -> Option<(&'a RunRecord, &'a FlowFigures)> {
    let median = median?;
    let distance = |flows: &FlowFigures| (flows.mean_share - median).abs();
    flow_runs(contents, &row.label, path)
        .min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))
}

/// Returns the share of each second from the start of the tool to the end of the recovery.
fn points(flows: &FlowFigures, tool_seconds: f64) -> Vec<LinePoint> {
    let mut points = vec![LinePoint { y: 100.0 * flows.before_share, ..LinePoint::default() }];
    let last = (tool_seconds + flows.after_seconds) as u32;
    let mut is_marked = false;
    for x in (1..=last).map(f64::from) {
        let Some(share) = flows.share(x - 1.0, x) else { continue };
        let ends = !is_marked && x >= tool_seconds;
        is_marked |= ends;
        let title =
            if ends { format!("the tool ended after {tool_seconds:.1} s") } else { String::new() };
        points.push(LinePoint { x, y: 100.0 * share, title, ..LinePoint::default() });
    }
    points
}
