//! Figures of the variation between passes.

use std::collections::BTreeMap;

use longhaul_chart::{Axis, Line, LineChart, LineKind, LinePoint, Panel, Scale};
use longhaul_core::stats::{deviation, median};

use super::facet::{Common, Facet, Facets};
use super::{Chart, Columns, Figure, MOST_PANELS, shown};

/// The minimum number of passes for which a standard deviation is meaningful.
const PASSES: usize = 5;
/// The number of runs per line above which markers would overlap.
const CLOSE: usize = 60;

/// Returns each cell's throughput in each pass and its standard deviation.
pub(super) fn stability(facets: &Facets<'_>) -> Option<Figure> {
    let mut cells: BTreeMap<(Common, usize), Vec<&Facet<'_>>> = BTreeMap::new();
    for facet in &facets.all {
        cells
            .entry((facets.common(facet, &[]), facets.series(facet, &[])))
            .or_default()
            .push(facet);
    }
    cells.retain(|_, runs| runs.len() >= PASSES);
    if cells.is_empty() {
        return None;
    }
    let table = Columns {
        title: "Stability".into(),
        heads: [
            "Tool",
            "Path",
            "Runs",
            "Median, Gb/s",
            "Standard deviation, Mb/s",
            "of the median",
        ]
        .map(str::to_owned)
        .to_vec(),
        lines: cells
            .iter()
            .map(|((common, series), runs)| line(facets, common, *series, runs))
            .collect(),
    };
    Some(Figure::new("stability", Chart::Lines(chart(facets, cells))).with_table(table))
}

/// Returns the figure of the cells: one panel per path and work.
fn chart(facets: &Facets<'_>, cells: BTreeMap<(Common, usize), Vec<&Facet<'_>>>) -> LineChart {
    let mut panels: BTreeMap<Common, Vec<Line>> = BTreeMap::new();
    for ((common, series), mut runs) in cells {
        runs.sort_by_key(|facet| facet.run.repeat);
        let close = runs.len() > CLOSE;
        let points = runs.iter().map(|facet| LinePoint {
            x: f64::from(facet.run.repeat),
            y: facet.gbps,
            title: if close { String::new() } else { title(facets, facet) },
            ..LinePoint::default()
        });
        let kind = if close { LineKind::Trace } else { LineKind::Points };
        panels.entry(common).or_default().push(Line { series, kind, points: points.collect() });
    }
    let left_out = panels.len().saturating_sub(MOST_PANELS);
    let several = panels.len() > 1;
    let only = panels.keys().next().filter(|_| !several).map(|common| common.title() + ". ");
    let panels = panels.into_iter().take(MOST_PANELS).map(|(common, lines)| {
        let title = if several { common.title() } else { String::new() };
        let ys: Vec<f64> =
            lines.iter().flat_map(|line| &line.points).map(|point| point.y).collect();
        let y = Some(Axis::new("Gb/s", Scale::for_values(&ys)));
        Panel { title, lines, references: Vec::new(), y }
    });
    let panels: Vec<Panel> = panels.collect();
    let every = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let ys: Vec<f64> = every().map(|point| point.y).collect();
    let last = every().map(|point| point.x).fold(1.0, f64::max);
    let x = Axis::new("Pass", Scale::from_zero(&[last]));
    LineChart {
        title: "Throughput in each pass".into(),
        subtitle: format!(
            "{}A level line means constant performance; a slope means that host or disk drifts{}",
            only.unwrap_or_default(),
            shown(left_out)
        ),
        x,
        y: Axis::new("Gb/s", Scale::for_values(&ys)),
        panels,
        names: facets.names(&[]),
        palette: facets.palette(&[]),
    }
}

fn title(facets: &Facets<'_>, facet: &Facet<'_>) -> String {
    let name = &facets.names(&[])[facets.series(facet, &[])];
    format!("{name}, pass {}: {:.3} Gb/s", facet.run.repeat, facet.gbps)
}

fn line(facets: &Facets<'_>, common: &Common, series: usize, runs: &[&Facet<'_>]) -> Vec<String> {
    let values: Vec<f64> = runs.iter().map(|facet| facet.gbps).collect();
    let middle = median(&values).unwrap_or_default();
    let spread = deviation(&values).unwrap_or_default();
    let share = if middle > 0.0 { spread / middle * 100.0 } else { 0.0 };
    vec![
        facets.names(&[])[series].clone(),
        common.title(),
        runs.len().to_string(),
        format!("{middle:.3}"),
        format!("{:.1}", spread * 1e3),
        format!("{share:.1} %"),
    ]
}
