//! Figures of throughput against one dimension.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_chart::{Axis, Line, LineChart, LineKind, LinePoint, Panel, Scale};
use longhaul_core::stats::median;

use super::facet::{Common, Facet, Facets};
use super::{Chart, Dimension, Figure, MOST_PANELS, shown};
use crate::reference::published;

/// The highest published figure in a panel, in multiples of the fastest run.
const MOST_TIMES: f64 = 2.0;

/// The figures of a panel by series and x.
type Points = BTreeMap<usize, BTreeMap<u64, Vec<f64>>>;

/// Returns throughput against one dimension: one line per entry, one panel per combination of the
/// other dimensions.
pub(super) fn profile(facets: &Facets<'_>, dimension: Dimension) -> Option<Figure> {
    let mut panels: BTreeMap<Common, Points> = BTreeMap::new();
    for facet in &facets.all {
        let Some(x) = facet.value(dimension) else { continue };
        let points = panels.entry(facets.common(facet, &[dimension])).or_default();
        let line = points.entry(facets.series(facet, &[dimension])).or_default();
        line.entry(x.to_bits()).or_default().push(facet.gbps);
    }
    // A panel with a single value of the dimension is omitted.
    panels.retain(|_, points| points.values().any(|line| line.len() > 1));
    if panels.is_empty() {
        return None;
    }
    let left_out = panels.len().saturating_sub(MOST_PANELS);
    let drawn: Vec<(Common, Points)> = panels.into_iter().take(MOST_PANELS).collect();
    let several = drawn.len() > 1;
    let every = || drawn.iter().flat_map(|(_, points)| points.values()).flatten();
    let xs: BTreeSet<u64> = every().map(|(x, _)| *x).collect();
    let xs: Vec<f64> = xs.into_iter().map(f64::from_bits).collect();
    let ys: Vec<f64> = every().flat_map(|(_, values)| values.iter().copied()).collect();
    let panels: Vec<Panel> = drawn
        .iter()
        .map(|(common, points)| panel(facets, dimension, common, points, several))
        .collect();
    let mut subtitle = subtitle(&drawn);
    if panels.iter().any(|panel| !panel.references.is_empty()) {
        subtitle.push_str(
            ". Crosses: published figures of the same tool or its predecessor, from other machines, up \
             to twice the fastest run here",
        );
    }
    subtitle.push_str(&shown(left_out));
    let chart = LineChart {
        title: format!("Throughput against {}", dimension.title()),
        subtitle,
        x: dimension.axis(&xs),
        y: Axis::new("Gb/s", Scale::for_values(&ys)),
        panels,
        names: facets.names(&[dimension]),
        palette: facets.palette(&[dimension]),
    };
    let figure = Figure::new(dimension.id(), Chart::Lines(chart));
    Some(figure.with_footnote(facets.size_note()))
}

fn subtitle(drawn: &[(Common, Points)]) -> String {
    let what = match drawn {
        [(common, _)] => format!("{}. ", common.title()),
        _ => String::new(),
    };
    let most = drawn.iter().flat_map(|(_, points)| points.values().flatten());
    let bars = match most.map(|(_, values)| values.len()).max().unwrap_or_default() {
        0 | 1 => "One run each",
        2..=5 => "Medians; bars: range of the runs",
        _ => "Medians; bars: 95 % confidence intervals",
    };
    format!("{what}{bars}")
}

fn panel(
    facets: &Facets<'_>,
    dimension: Dimension,
    common: &Common,
    points: &Points,
    titled: bool,
) -> Panel {
    let xs: BTreeSet<u64> = points.values().flat_map(BTreeMap::keys).copied().collect();
    let names = facets.names(&[dimension]);
    let lines = points.iter().map(|(series, line)| {
        let name = &names[*series];
        let mut before: Option<u64> = None;
        let points = line.iter().filter_map(|(&x, values)| {
            let gap = before.is_some_and(|from| xs.range(from + 1..x).next().is_some());
            before = Some(x);
            let point = point(facets, (dimension, name), f64::from_bits(x), values)?;
            Some(LinePoint { after_gap: gap, ..point })
        });
        Line { series: *series, kind: LineKind::Points, points: points.collect() }
    });
    let lines: Vec<Line> = lines.collect();
    let title = if titled { common.title() } else { String::new() };
    let ys = points.values().flat_map(BTreeMap::values).flatten().copied();
    // Published sums over many interfaces would flatten the measured lines.
    let most = MOST_TIMES * ys.clone().fold(0.0, f64::max);
    let mut references = references(facets, dimension, common, points);
    references.retain(|point| point.y <= most);
    // Memory and disk differ by a factor that would flatten one of them on a common scale.
    let ys = ys.chain(references.iter().map(|point| point.y));
    let y = Some(Axis::new("Gb/s", Scale::for_values(&ys.collect::<Vec<f64>>())));
    Panel { title, lines, references, y }
}

fn point(
    facets: &Facets<'_>,
    (dimension, name): (Dimension, &str),
    x: f64,
    values: &[f64],
) -> Option<LinePoint> {
    let y = median(values)?;
    let whole = || {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        (values.len() > 1).then_some((low, high))
    };
    let runs = if values.len() == 1 { "1 run".into() } else { format!("{} runs", values.len()) };
    let title = format!("{name}, {}: {y:.3} Gb/s ({runs})", dimension.named(x));
    let range = facets.intervals.median(values).or_else(whole);
    Some(LinePoint { x, y, range, title, after_gap: false })
}

/// Returns the published figures of the tools in a panel, at their own round-trip times up to the
/// longest of the panel.
fn references(
    facets: &Facets<'_>,
    dimension: Dimension,
    common: &Common,
    points: &Points,
) -> Vec<LinePoint> {
    if dimension != Dimension::Rtt {
        return Vec::new();
    }
    let xs = points.values().flat_map(BTreeMap::keys).map(|bits| f64::from_bits(*bits));
    let most = Duration::from_secs_f64(xs.fold(0.0, f64::max) / 1e3);
    let mut found: Vec<LinePoint> = Vec::new();
    for series in points.keys() {
        let tool = facets.tool(&[dimension], *series);
        for figure in published().within(tool, common.workload(), most) {
            let Some(x) = figure.rtt_ms else { continue };
            let (tool, value, under) = (&figure.tool, &figure.published, &figure.under);
            let title = format!("published: {tool}, {value} at {x} ms ({under})");
            if !found.iter().any(|known| known.title == title) {
                found.push(LinePoint { x, y: figure.gbps, title, ..LinePoint::default() });
            }
        }
    }
    found
}

/// Groups the runs by their common properties, their line, and their value of one dimension. Lines
/// with a single value are omitted.
pub(super) fn groups<'f, 'a>(
    facets: &'f Facets<'a>,
    dimension: Dimension,
) -> BTreeMap<(Common, usize), BTreeMap<u64, Vec<&'f Facet<'a>>>> {
    let mut groups: BTreeMap<(Common, usize), BTreeMap<u64, Vec<&Facet<'a>>>> = BTreeMap::new();
    for facet in &facets.all {
        let Some(x) = facet.value(dimension) else { continue };
        let key = (facets.common(facet, &[dimension]), facets.series(facet, &[dimension]));
        groups.entry(key).or_default().entry(x.to_bits()).or_default().push(facet);
    }
    groups.retain(|_, values| values.len() > 1);
    groups
}
