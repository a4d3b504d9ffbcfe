//! Figures over streams and windows.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_chart::HeatMap;
use longhaul_core::stats::median;

use super::facet::{Common, Facets};
use super::{Chart, Dimension, Figure, MOST_PANELS, shown};

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
