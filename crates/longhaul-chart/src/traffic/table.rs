//! The table beside a graph, and the section of a page with both.

use maud::{Markup, PreEscaped, html as markup};

use super::TrafficFigures;
use super::graph::TrafficGraph;
use super::period::span_words;
use crate::Width;

/// Returns a section of a page: the graph for a page and for a phone, and its table.
pub fn section(graph: &TrafficGraph) -> Markup {
    markup! {
        figure.traffic {
            (PreEscaped(graph.draw(Width::Page).embedded("wide")))
            (PreEscaped(graph.draw(Width::Phone).embedded("narrow")))
            (figures_table(graph))
        }
    }
}

/// Returns the table of maximum, average, current value and 95th percentile of both directions, each with
/// its percentage of the capacity. The headings state which maximum a column has.
pub fn figures_table(graph: &TrafficGraph) -> Markup {
    let averages = span_words(graph.step_seconds as f64);
    let peak = graph.sample_seconds.map(span_words);
    let cell = |value: Option<f64>| cell(graph, value);
    let row = |name: &str, figures: TrafficFigures| {
        markup! {
            tr {
                th scope="row" { (name) }
                @if peak.is_some() { (cell(figures.peak)) }
                (cell(figures.maximum))
                (cell(figures.average))
                (cell(figures.current))
                (cell(figures.percentile_95))
            }
        }
    };
    markup! {
        div.scroll {
            table.small.traffic {
                thead { tr {
                    th scope="col" { span.hidden { "Direction" } }
                    @if let Some(peak) = &peak { th.figure scope="col" { "Max of " (peak) } }
                    th.figure scope="col" { "Max of " (averages) }
                    th.figure scope="col" { "Average" }
                    th.figure scope="col" { "Current" }
                    th.figure scope="col" { "95th percentile of " (averages) }
                } }
                tbody {
                    (row("In", graph.inbound_figures()))
                    (row("Out", graph.outbound_figures()))
                }
            }
        }
    }
}

fn cell(graph: &TrafficGraph, value: Option<f64>) -> Markup {
    markup! {
        td.figure {
            @match value {
                None => { span.none { "no data" } }
                Some(value) => {
                    (graph.unit.text(value))
                    @if let Some(share) = graph.percent(value) { span.range { (share) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bin, Period, TrafficUnit};
    use super::*;

    #[test]
    fn each_maximum_is_labelled_and_has_a_percentage() {
        let bin =
            Bin { start: 0, covered_seconds: 300.0, average: 3.1e9, minimum: 0.0, maximum: 31.5e9 };
        let graph = TrafficGraph {
            inbound: vec![bin],
            capacity: Some(40e9),
            sample_seconds: Some(1.0),
            ..TrafficGraph::new(Period::Day, 299, TrafficUnit::Bits)
        };
        let table = figures_table(&graph).into_string();
        for part in ["Max of 1 s<", "Max of 5 min<", "31.5 Gb/s", "78.8 %", "3.10 Gb/s", "7.8 %"] {
            assert!(table.contains(part), "'{part}' is not in {table}");
        }
        assert_eq!(table.matches("no data").count(), 5, "{table}");
        let only_averages = TrafficGraph { sample_seconds: None, capacity: None, ..graph };
        let table = figures_table(&only_averages).into_string();
        assert!(!table.contains("Max of 1 s") && !table.contains('%'), "{table}");
    }
}
