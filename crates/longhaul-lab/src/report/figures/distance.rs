//! Figures of throughput against distance.

use longhaul_core::stats::{deviation, median};

use super::facet::{Facet, Facets};
use super::profile::{groups, profile};
use super::{Columns, Dimension, Figure};
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
