//! The sections that compare: ratios within passes, and published figures.

use longhaul_core::plan::Condition;
use maud::{Markup, html as markup};

use crate::reference::{Figure, published};
use crate::table::{CellFigure, Table, TableRow};

/// Returns the ratio of each row to the first row with the same work and setting, within passes.
/// The section is empty for a matrix of one pass.
pub(super) fn ratios(table: &Table) -> Markup {
    let rows = table.rows.iter().filter(|row| {
        row.cells.iter().any(|cell| cell.ratio.is_some_and(|ratio| ratio.passes > 1))
    });
    let rows: Vec<&TableRow> = rows.collect();
    if rows.is_empty() {
        return markup! {};
    }
    markup! {
        section {
            h2 { "Ratios within passes" }
            div.scroll {
                table {
                    thead { tr {
                        th { "Tool" }
                        th { "Times" }
                        @for condition in &table.conditions {
                            th.figure { (Condition::label(condition)) }
                        }
                    } }
                    tbody {
                        @for row in rows {
                            tr {
                                th scope="row" { (row.label) }
                                td { (row.compared_with.as_deref().unwrap_or_default()) }
                                @for cell in &row.cells { td.figure { (ratio(cell)) } }
                            }
                        }
                    }
                }
            }
            p.soft {
                "Median of the ratios to the first row of the same work and setting in the same "
                "pass, so that drift affects both rows; below it the 95 % interval, from six passes."
            }
        }
    }
}

fn ratio(cell: &CellFigure) -> Markup {
    markup! {
        @if let Some(ratio) = cell.ratio {
            (format!("{:.2}", ratio.median))
            @if let Some((low, high)) = ratio.interval {
                span.range { (format!("{low:.2} - {high:.2}")) }
            }
        }
    }
}

/// Returns the published figures, grouped by source.
pub(super) fn published_figures() -> Markup {
    let all = published();
    markup! {
        p.soft {
            "Figures that others measured on other machines and paths, for comparison. "
            "Published figures are excluded from medians and ratios."
        }
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
                                    td.figure { (format!("{:.3}", figure.gbps)) }
                                    td.wrap { (figure.under) }
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
