//! Figures of throughput against distance, and over streams and windows.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_chart::HeatMap;
use longhaul_core::stats::{deviation, median};

use super::facet::{Common, Facet, Facets};
use super::profile::{groups, profile};
use super::{Chart, Columns, Dimension, Figure, MOST_PANELS, shown};
use crate::reference::published;

/// Returns throughput against distance with the two figures of merit of UltraScience Net: the
/// standard deviation at each distance, and the decrease per mile from the shortest distance on.
pub(super) fn distance(facets: &Facets<'_>) -> Option<Figure> {
    let figure = profile(facets, Dimension::Miles)?;
    let mut lines = Vec::new();
    for ((common, series), distances) in groups(facets, Dimension::Miles) {
        let mut first: Option<(f64, f64)> = None;
        for (bits, runs) in distances {
            let miles = f64::from_bits(bits);
            let values: Vec<f64> = runs.iter().map(|facet: &&Facet<'_>| facet.gbps).collect();
            let Some(middle) = median(&values) else { continue };
            let (from, most) = *first.get_or_insert((miles, middle));
            let decrease = (miles > from).then(|| (most - middle) * 1e3 / (miles - from));
            lines.push(vec![
                facets.names(&[Dimension::Miles])[series].clone(),
                common.title(),
                Dimension::Miles.tick(miles),
                format!("{middle:.3}"),
                deviation(&values)
                    .map_or_else(|| "-".into(), |value| format!("{:.2}", value * 1e3)),
                decrease.map_or_else(|| "-".into(), |value| format!("{value:.4}")),
            ]);
        }
    }
    for figure in &published().figures {
        if let (Some(miles), Some(spread)) = (figure.miles, figure.deviation_mbps) {
            lines.push(vec![
                format!("published [P{}]: {}", published().number(figure), figure.tool),
                figure.under.clone(),
                Dimension::Miles.tick(miles),
                format!("{:.3}", figure.gbps),
                format!("{spread:.2}"),
                figure
                    .decrease_mbps_per_mile
                    .map_or_else(|| "-".into(), |value| format!("{value:.4}")),
            ]);
        }
    }
    let heads = [
        "Tool",
        "Under",
        "Miles",
        "Median, Gb/s",
        "Standard deviation, Mb/s",
        "Decrease, Mb/s per mile",
    ];
    let title = "Distance and stability".to_owned();
    let table = Columns { title, heads: heads.map(str::to_owned).to_vec(), lines };
    Some(figure.with_table(table).with_note(
        "The decrease per mile is the difference from the shortest distance of the same line, divided by \
         the miles between; a negative value is an increase. Published rows are the figures of UltraScience Net.",
    ))
}

/// Figures in Gb/s by window and number of streams. The keys are float bits, which sort like the
/// numbers.
type Surface = BTreeMap<(u64, u64), Vec<f64>>;

/// Returns throughput over numbers of streams and windows: one heat map per entry and path.
pub(super) fn surfaces(facets: &Facets<'_>) -> Vec<Figure> {
    let apart = [Dimension::Streams, Dimension::Window];
    let mut surfaces: BTreeMap<(Common, usize), Surface> = BTreeMap::new();
    for facet in &facets.all {
        let (Some(streams), Some(window)) = (facet.value(apart[0]), facet.value(apart[1])) else {
            continue;
        };
        let surface = surfaces
            .entry((facets.common(facet, &apart), facets.series(facet, &apart)))
            .or_default();
        surface.entry((window.to_bits(), streams.to_bits())).or_default().push(facet.gbps);
    }
    let left_out = surfaces.len().saturating_sub(MOST_PANELS);
    let entries = facets.names(&apart);
    let drawn = surfaces.into_iter().take(MOST_PANELS).enumerate();
    let figures = drawn.map(|(number, ((common, series), cells))| {
        let rows: BTreeSet<u64> = cells.keys().map(|(window, _)| *window).collect();
        let columns: BTreeSet<u64> = cells.keys().map(|(_, streams)| *streams).collect();
        let cell = |row: &u64, column: &u64| cells.get(&(*row, *column)).and_then(|v| median(v));
        let names = |dimension: Dimension, all: &BTreeSet<u64>| {
            all.iter().map(|bits| dimension.tick(f64::from_bits(*bits))).collect()
        };
        let map = HeatMap {
            title: format!("{}: throughput over streams and windows", entries[series]),
            subtitle: format!(
                "{}. Median Gb/s; lighter means more{}",
                common.title(),
                if number == 0 { shown(left_out) } else { String::new() }
            ),
            x: ("Streams".to_owned(), names(Dimension::Streams, &columns)),
            y: ("Window per stream".to_owned(), names(Dimension::Window, &rows)),
            cells: rows.iter().map(|row| columns.iter().map(|c| cell(row, c)).collect()).collect(),
            unit: "Gb/s".to_owned(),
        };
        Figure::new(&format!("surface-{}", number + 1), Chart::Heat(map))
    });
    figures.collect()
}
