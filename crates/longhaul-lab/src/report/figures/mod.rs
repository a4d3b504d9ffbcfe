//! Selects and computes the figures of a report: throughput against each dimension that the plan
//! varied, surfaces of two dimensions, repeats, throughput over time, CPU time, scaling and
//! distance.
//!
//! Figures use valid runs only. If there are more combinations than a figure can show, it shows the
//! first ones and states the number of omitted combinations.

mod cpu;
mod dimension;
mod distance;
mod facet;
mod flow;
mod palette;
mod profile;
mod scaling;
mod stability;
mod time;

use dimension::Dimension;
use facet::Facets;

use longhaul_chart::{BarChart, Drawing, HeatMap, LineChart, Width};

use crate::archive::Contents;
use crate::table::Table;

/// The maximum number of panels of a figure: four rows, which fit a printed page.
const MOST_PANELS: usize = 8;

/// A figure: a drawing, a table, or both.
pub(super) struct Figure {
    /// The name of its file.
    pub(super) id: String,
    chart: Option<Chart>,
    pub(super) table: Option<Columns>,
    /// The footnote in the drawing, which a saved figure includes.
    footnote: Option<String>,
    /// Remarks below the figure.
    pub(super) notes: Vec<String>,
}

/// A chart that can be drawn at both widths.
pub(super) enum Chart {
    Lines(LineChart),
    Bars(BarChart),
    Heat(HeatMap),
}

/// A table with its title, column heads and lines; the first column is a name.
pub(super) struct Columns {
    pub(super) title: String,
    pub(super) heads: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

impl Figure {
    fn new(id: &str, chart: impl Into<Option<Chart>>) -> Self {
        let (id, chart) = (id.to_owned(), chart.into());
        Figure { id, chart, table: None, footnote: None, notes: Vec::new() }
    }

    /// Returns the drawing; `None` for a figure that is only a table.
    pub(super) fn draw(&self, width: Width) -> Option<Drawing> {
        let drawing = self.chart.as_ref()?.draw(width);
        Some(match &self.footnote {
            Some(text) => drawing.with_footnote(text),
            None => drawing,
        })
    }

    fn with_footnote(self, footnote: Option<String>) -> Self {
        Figure { footnote, ..self }
    }

    fn with_table(self, table: Columns) -> Self {
        Figure { table: Some(table), ..self }
    }

    fn with_notes(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    fn with_note(mut self, note: &str) -> Self {
        self.notes.push(note.to_owned());
        self
    }
}

impl Chart {
    fn draw(&self, width: Width) -> Drawing {
        match self {
            Chart::Lines(chart) => chart.draw(width),
            Chart::Bars(chart) => chart.draw(width),
            Chart::Heat(chart) => chart.draw(width),
        }
    }
}

/// Returns all figures that the runs support, in the order of the report.
pub(super) fn figures(contents: &Contents, table: &Table) -> Vec<Figure> {
    let facets = Facets::of(contents);
    let is_surface = facets.varies(Dimension::Streams) && facets.varies(Dimension::Window);
    let mut all = Vec::from_iter(flow::flow(contents, table));
    for dimension in facets.varying.iter().copied() {
        match dimension {
            Dimension::Streams | Dimension::Window if is_surface => {}
            Dimension::Streams | Dimension::Clients => {
                all.extend(profile::profile(&facets, dimension));
                all.extend(scaling::scaling(&facets, dimension));
            }
            Dimension::Miles => all.extend(distance::distance(&facets)),
            _ => all.extend(profile::profile(&facets, dimension)),
        }
    }
    if is_surface {
        all.extend(distance::surfaces(&facets));
    }
    all.extend(time::time(&facets));
    all.extend(stability::stability(&facets));
    all.extend(cpu::cpu(&facets));
    all
}

/// Returns the remark about omitted panels.
fn shown(left_out: usize) -> String {
    match left_out {
        0 => String::new(),
        1 => ". One more panel omitted".to_owned(),
        n => format!(". {n} more panels omitted"),
    }
}
