//! The section of published figures: those nearest to the measured ones, and all by source.

use longhaul_core::plan::Condition;
use longhaul_core::units::Rate;
use maud::{Markup, html as markup};

use super::{folded, label};
use crate::reference::{Figure, published};
use crate::report::text::gbps;
use crate::table::{Table, TableRow};

const NEAREST: &str = "Beside the nearest published condition";

/// A row and a column with a measured figure, and the published ones beside it.
type Pair<'a> = (&'a TableRow, usize, Vec<&'a Figure>);

/// Returns the section.
pub(super) fn section(table: &Table) -> Markup {
    markup! {
        p.soft {
            "Figures that others measured on other machines and paths, for comparison. "
            "Published figures are excluded from medians and ratios."
        }
        (nearest(table))
        (by_source())
    }
}

/// Returns the measured figures with the published ones of the nearest round-trip time, one line
/// per row and path.
fn nearest(table: &Table) -> Markup {
    let columns = || 0..table.conditions.len();
    let cells = table.rows.iter().flat_map(|row| columns().map(move |column| (row, column)));
    let measured = cells.filter(|(row, column)| row.cells[*column].median_bps.is_some());
    let pairs = measured.filter_map(|(row, column)| {
        let rtt = table.conditions[column].rtt;
        let figures = published().nearest(&row.tool, row.workload, rtt);
        (!figures.is_empty()).then_some((row, column, figures))
    });
    let pairs: Vec<Pair<'_>> = pairs.collect();
    markup! {
        @if !pairs.is_empty() { (folded(NEAREST, pairs.len(), &beside(table, &pairs))) }
    }
}

fn beside(table: &Table, pairs: &[Pair<'_>]) -> Markup {
    markup! {
        div.scroll {
            table.small {
                thead { tr {
                    th { "Tool" }
                    th { "Type" }
                    th.figure { "Path" }
                    th.figure { "Here, Gb/s" }
                    th.figure { "Published, Gb/s" }
                    th.figure { "At" }
                    th { "By" }
                } }
                tbody { @for pair in pairs { (line(table, pair)) } }
            }
        }
    }
}

fn line(table: &Table, (row, column, figures): &Pair<'_>) -> Markup {
    let here = row.cells[*column].median_bps.map(gbps).unwrap_or_default();
    let by = figures.iter().map(|figure| {
        let number = published().number(figure);
        format!("P{number} {}", figure.tool)
    });
    let mut by: Vec<String> = by.collect();
    by.dedup();
    let published = span(figures, |figure| figure.gbps, rate);
    let at = span(figures, |figure| figure.rtt_ms.unwrap_or_default(), |ms| ms.to_string());
    markup! {
        tr {
            th scope="row" { (label(&row.label)) }
            td { (row.workload.label()) }
            td.figure { (Condition::label(&table.conditions[*column])) }
            td.figure { (here) }
            td.figure { (published) }
            td.figure { (at) " ms" }
            td.wrap { (by.join(", ")) }
        }
    }
}

/// Formats a rate given in Gb/s.
fn rate(figure: f64) -> String {
    gbps(Rate::from_bps((figure * 1e9).round() as u64))
}

/// Returns the smallest and the largest value, or the only one.
fn span(figures: &[&Figure], of: fn(&Figure) -> f64, text: fn(f64) -> String) -> String {
    let least = figures.iter().map(|figure| of(figure)).fold(f64::INFINITY, f64::min);
    let most = figures.iter().map(|figure| of(figure)).fold(0.0, f64::max);
    let (least, most) = (text(least), text(most));
    if least == most { least } else { format!("{least} - {most}") }
}

/// Returns the published figures, grouped by source.
fn by_source() -> Markup {
    let all = published();
    markup! {
        @for (number, source) in (1..).zip(&all.sources) {
            details.more {
                summary {
                    b { "P" (number) } " " (source.title) ". " (source.by) "; " (source.place) "."
                }
                div.scroll {
                    table.small {
                        thead { tr {
                            th { "Tool" }
                            th { "Type" }
                            th.figure { "Path" }
                            th.figure { "Published" }
                            th.figure { "Gb/s" }
                            th { "Under" }
                        } }
                        tbody {
                            @for figure in all.figures.iter().filter(|f| f.source == source.id) {
                                tr {
                                    th scope="row" { (figure.tool) }
                                    td { (figure.workload.label()) }
                                    td.figure { (path(figure)) }
                                    td.figure { (figure.published) }
                                    td.figure { (rate(figure.gbps)) }
                                    td.wrap { (figure.under) }
                                }
                            }
                            @for fact in all.facts.iter().filter(|f| f.source == source.id) {
                                tr {
                                    th scope="row" { (fact.subject) }
                                    td.wrap colspan="4" { (fact.published) }
                                    td.wrap { (fact.under) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn path(figure: &Figure) -> String {
    match (figure.rtt_ms, figure.miles) {
        (Some(ms), _) => format!("{ms} ms"),
        (None, Some(miles)) => format!("{miles} mi"),
        (None, None) => "not stated".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::Workload;

    use super::*;

    #[test]
    fn several_figures_of_one_condition_are_a_span() {
        let rtt = Duration::from_millis(80);
        let figures = published().nearest("nuttcp", Workload::Memory, rtt);
        assert_eq!(span(&figures, |figure| figure.gbps, rate), "5.56 - 9.66");
        assert_eq!(span(&figures[..1], |figure| figure.gbps, rate), "9.66");
    }
}
