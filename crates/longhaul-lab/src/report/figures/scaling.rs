//! Figures of scaling with streams and clients.

use longhaul_chart::{Axis, Line, LineChart, LineKind, LinePoint, Panel, Scale};
use longhaul_core::stats::median;

use super::facet::{Facet, Facets};
use super::profile::groups;
use super::{Chart, Columns, Dimension, Figure, MOST_PANELS, shown};
use crate::reference::published;

/// Returns the scale factor as Fermilab tabulated it: the joint throughput of n clients or streams
/// divided by n times the throughput of one. A factor of 1 is perfect scaling.
pub(super) fn scaling(facets: &Facets<'_>, dimension: Dimension) -> Option<Figure> {
    let names = facets.names(&[dimension]);
    let what = if dimension == Dimension::Clients { "clients" } else { "streams" };
    let (mut panels, mut lines) = (Vec::<(String, Vec<Line>)>::new(), Vec::new());
    for ((common, series), counts) in groups(facets, dimension) {
        let middle = |runs: &Vec<&Facet<'_>>| {
            median(&runs.iter().map(|facet| facet.gbps).collect::<Vec<f64>>())
        };
        let Some(one) = counts.get(&1_f64.to_bits()).and_then(middle).filter(|one| *one > 0.0)
        else {
            continue;
        };
        let mut points = Vec::new();
        for (bits, runs) in &counts {
            let count = f64::from_bits(*bits);
            let Some(together) = middle(runs) else { continue };
            let factor = together / (count * one);
            let name = &names[series];
            points.push(LinePoint {
                x: count,
                y: factor,
                title: format!("{name}, {}: scale factor {factor:.2}", dimension.named(count)),
                ..LinePoint::default()
            });
            lines.push(vec![
                name.clone(),
                common.title(),
                dimension.tick(count),
                format!("{one:.3}"),
                format!("{together:.3}"),
                format!("{factor:.2}"),
            ]);
        }
        let line = Line { series, kind: LineKind::Points, points };
        let title = common.title();
        match panels.iter_mut().find(|(known, _)| *known == title) {
            Some((_, lines)) => lines.push(line),
            None => panels.push((title, vec![line])),
        }
    }
    if panels.is_empty() {
        return None;
    }
    lines.extend(published_lines());
    let heads = ["Tool", "Under", what, "One, Gb/s", "Together, Gb/s", "Scale factor"];
    let table = Columns {
        title: format!("Scale factor with {what}"),
        heads: heads.map(str::to_owned).to_vec(),
        lines,
    };
    let id = format!("scale-factor-{what}");
    Some(Figure::new(&id, Chart::Lines(chart(facets, dimension, what, panels))).with_table(table))
}

/// Returns the lines of the published scale factors.
fn published_lines() -> impl Iterator<Item = Vec<String>> {
    published().figures.iter().filter_map(|figure| {
        let (count, one, factor) = (figure.count?, figure.single_gbps?, figure.scale_factor?);
        let size = figure.data_gb.map_or(String::new(), |size| format!("{size} GB, "));
        Some(vec![
            format!("published [P{}]: {}", published().number(figure), figure.tool),
            format!("{size}{}", figure.under),
            count.to_string(),
            format!("{one:.3}"),
            format!("{:.3}", figure.gbps),
            format!("{factor:.2}"),
        ])
    })
}

fn chart(
    facets: &Facets<'_>,
    dimension: Dimension,
    what: &str,
    panels: Vec<(String, Vec<Line>)>,
) -> LineChart {
    let left_out = panels.len().saturating_sub(MOST_PANELS);
    let only = if panels.len() == 1 { format!("{}. ", panels[0].0) } else { String::new() };
    let several = panels.len() > 1;
    let panels = panels.into_iter().take(MOST_PANELS).map(|(title, lines)| Panel {
        title: if several { title } else { String::new() },
        lines,
        references: Vec::new(),
        y: None,
    });
    let panels: Vec<Panel> = panels.collect();
    let every = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let mut xs: Vec<f64> = every().map(|point| point.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let ys: Vec<f64> = every().map(|point| point.y).collect();
    LineChart {
        title: format!("Scale factor against number of {what}"),
        subtitle: format!(
            "{only}Joint throughput divided by that of one times their number; 1 is perfect{}",
            shown(left_out)
        ),
        x: dimension.axis(&xs),
        y: Axis::new("Scale factor", Scale::from_zero(&ys)),
        panels,
        names: facets.names(&[dimension]),
        palette: facets.palette(&[dimension]),
    }
}
