//! Figures of throughput over time.

use std::collections::BTreeMap;

use longhaul_chart::{Axis, Line, LineChart, LineKind, LinePoint, Panel, Scale};
use longhaul_core::plan::Workload;
use longhaul_core::result::RunSample;
use longhaul_core::stats::median;

use super::facet::{Common, Facet, Facets};
use super::{Chart, Columns, Figure, MOST_PANELS, shown};

/// The maximum number of points of a line.
const POINTS: f64 = 150.0;
/// The shortest interval in seconds: two sampling intervals of 0.1 s, to smooth the effect of a
/// late sample.
const SHORTEST: f64 = 0.2;
/// The maximum number of runs that the remark about short runs names.
const MOST_NAMED: usize = 12;
/// The share of the steady rate at which the ramp-up ends.
const RAMPED: f64 = 0.9;

/// Returns the throughput over time of the run nearest the median of each cell: one figure per kind
/// of work.
pub(super) fn time(facets: &Facets<'_>) -> Vec<Figure> {
    let figure = |work: Workload| one(facets, work);
    Workload::ALL.into_iter().filter_map(figure).collect()
}

/// The runs of one kind of work by cell.
type Cells<'f, 'a> = BTreeMap<(Common, usize), Vec<&'f Facet<'a>>>;

fn cells<'f, 'a>(facets: &'f Facets<'a>, work: Workload) -> Cells<'f, 'a> {
    let mut cells = Cells::new();
    // A path without counters has no samples, and no figure.
    let is_counted = facets.all.iter().any(|facet| !facet.run.samples.is_empty());
    let of_work = |facet: &&Facet<'_>| is_counted && facet.run.workload == work;
    for facet in facets.all.iter().filter(of_work) {
        cells
            .entry((facets.common(facet, &[]), facets.series(facet, &[])))
            .or_default()
            .push(facet);
    }
    cells
}

fn one(facets: &Facets<'_>, work: Workload) -> Option<Figure> {
    let names = facets.names(&[]);
    let (mut panels, mut ramps) = (BTreeMap::<Common, Vec<Line>>::new(), Vec::new());
    let mut short = Vec::new();
    for ((common, series), runs) in cells(facets, work) {
        let Some(typical) = typical(&runs) else { continue };
        let rates = rates(&typical.run.samples);
        if rates.len() < 3 {
            short.push(format!("{}, {}", names[series], common.title()));
            continue;
        }
        let ramped = ramp_up(&rates);
        let name = &names[series];
        ramps.push(vec![
            name.clone(),
            common.title(),
            ramped.map_or_else(|| "never".to_owned(), |at| format!("{at:.1}")),
            format!("{:.2}", steady(&rates)),
        ]);
        let points = rates.iter().map(|&(x, y)| {
            let is_ramp = ramped == Some(x);
            let title =
                if is_ramp { format!("{name}: ramp-up took {x:.1} s") } else { String::new() };
            LinePoint { x, y, title, ..LinePoint::default() }
        });
        let line = Line { series, kind: LineKind::Trace, points: points.collect() };
        panels.entry(common).or_default().push(line);
    }
    let short = too_short(&short);
    if panels.is_empty() {
        // All runs were too short: the remark replaces the figure.
        let title = format!("Throughput over time: {}. ", work.label());
        let id = format!("time-{}", work.name());
        let notes = vec![title + &short?];
        return Some(Figure::new(&id, None::<Chart>).with_notes(notes));
    }
    let left_out = panels.len().saturating_sub(MOST_PANELS);
    let table = Columns {
        title: "Ramp-up".into(),
        heads: ["Tool", "Path", "Ramp-up, s", "Steady, Gb/s"].map(str::to_owned).to_vec(),
        lines: ramps,
    };
    let figure = Figure::new(
        &format!("time-{}", work.name()),
        Chart::Lines(chart(facets, work, panels, left_out)),
    );
    let figure = figure.with_notes(short);
    Some(figure.with_table(table).with_note(
        "Measured by the path's counters, including headers and retransmissions, not by the tool; \
         the run nearest the median of its cell. Steady: median of the second half. Ramp-up: \
         time until 90 % of that is reached first, marked on the line; for a copy it includes connection \
         set-up.",
    ))
}

/// Returns the remark about runs without enough samples for a line; `None` if there are none.
fn too_short(names: &[String]) -> Option<String> {
    let named = names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<&str>>().join("; ");
    let more = match names.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!names.is_empty()).then(|| format!("Too short to sample: {named}{more}."))
}

fn chart(
    facets: &Facets<'_>,
    work: Workload,
    panels: BTreeMap<Common, Vec<Line>>,
    left_out: usize,
) -> LineChart {
    let several = panels.len() > 1;
    let only = panels.keys().next().filter(|_| !several).map(|common| common.title() + ". ");
    let mut panels: Vec<Panel> = panels
        .into_iter()
        .take(MOST_PANELS)
        .map(|(common, lines)| Panel {
            title: if several { common.title() } else { String::new() },
            lines,
            references: Vec::new(),
            y: None,
        })
        .collect();
    let lines = || panels.iter().flat_map(|panel| &panel.lines);
    let ends: Vec<f64> =
        lines().filter_map(|line| line.points.last()).map(|point| point.x).collect();
    let longest = ends.iter().copied().fold(0.0, f64::max);
    // The figure ends at three times the median duration: a slow tool may take a hundred times as
    // long, which would hide the start of the other lines.
    let shown_until = longest.min((median(&ends).unwrap_or(longest) * 3.0).max(2.0));
    let cut = shown_until < longest;
    for line in panels.iter_mut().flat_map(|panel| &mut panel.lines) {
        line.points.retain(|point| point.x <= shown_until);
    }
    panels.iter_mut().for_each(|panel| panel.lines.retain(|line| !line.points.is_empty()));
    let every = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let ys: Vec<f64> = every().map(|point| point.y).collect();
    let until = if cut { format!("; the first {shown_until:.0} s") } else { String::new() };
    LineChart {
        title: format!("Throughput over time: {}", work.label()),
        subtitle: format!(
            "{}The run nearest the median of each cell, from its start; marked at the end of its ramp-\
             up{until}{}",
            only.unwrap_or_default(),
            shown(left_out)
        ),
        x: Axis::new("Seconds", Scale::from_zero(&[shown_until])),
        y: Axis::new("Gb/s", Scale::from_zero(&ys)),
        panels,
        names: facets.names(&[]),
        palette: facets.palette(&[]),
    }
}

/// Returns the run whose figure is nearest the median.
fn typical<'f, 'a>(runs: &[&'f Facet<'a>]) -> Option<&'f Facet<'a>> {
    let middle = median(&runs.iter().map(|facet| facet.gbps).collect::<Vec<f64>>())?;
    let distance = |facet: &&Facet<'_>| (facet.gbps - middle).abs();
    runs.iter().copied().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Returns the ends of intervals in seconds and the rates within them in Gb/s.
fn rates(samples: &[RunSample]) -> Vec<(f64, f64)> {
    let length = samples.last().map_or(0.0, |sample| sample.seconds);
    let interval = (length / POINTS).max(SHORTEST) * 0.95;
    let mut rates = Vec::new();
    let (mut from, mut before, mut bits) = (0.0, 0.0, 0.0);
    for sample in samples {
        bits += sample.throughput_bps.bps() as f64 * (sample.seconds - before);
        before = sample.seconds;
        if sample.seconds - from >= interval {
            rates.push((sample.seconds, bits / 1e9 / (sample.seconds - from)));
            (from, bits) = (sample.seconds, 0.0);
        }
    }
    rates
}

/// Returns the median rate of the second half of a run.
fn steady(rates: &[(f64, f64)]) -> f64 {
    let later: Vec<f64> = rates[rates.len() / 2..].iter().map(|(_, rate)| *rate).collect();
    median(&later).unwrap_or_default()
}

/// Returns the time at which the run first reached [`RAMPED`] of the steady rate.
fn ramp_up(rates: &[(f64, f64)]) -> Option<f64> {
    let enough = steady(rates) * RAMPED;
    rates.iter().find(|(_, rate)| *rate >= enough && enough > 0.0).map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    #[test]
    fn a_long_list_of_short_runs_is_cut() {
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<String>>();
        assert_eq!(too_short(&[]), None);
        assert_eq!(too_short(&names(2)).as_deref(), Some("Too short to sample: 0; 1."));
        assert!(too_short(&names(15)).unwrap().ends_with("; 11; and 3 more."));
    }

    #[test]
    fn ramp_up_is_when_nine_tenths_are_reached() {
        // 10 Gb/s after a second of linear growth.
        let samples = (1..=100_u64).map(|tick| RunSample {
            seconds: tick as f64 / 10.0,
            throughput_bps: Rate::from_bps(1_000_000_000 * tick.min(10)),
        });
        let samples: Vec<RunSample> = samples.collect();
        let rates = rates(&samples);
        assert_eq!(rates.len(), 50);
        assert!((steady(&rates) - 10.0).abs() < 1e-6);
        assert!((ramp_up(&rates).unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(ramp_up(&[(0.2, 0.0), (0.4, 0.0)]), None);
    }
}
