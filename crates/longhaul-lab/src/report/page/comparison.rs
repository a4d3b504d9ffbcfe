//! The section of ratios within passes.

use longhaul_core::plan::Condition;
use maud::{Markup, html as markup};

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
                "Median of the ratios to the first row of the same work, size and setting in the same "
                "pass, so that drift affects both rows; below it the 95 % interval, from six passes. "
                "An interval that includes 1 shows no difference. Rows that copied different sizes "
                "are not compared."
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
