use longhaul_core::plan::{Condition, Workload};
use maud::{Markup, html as markup};

use crate::table::{CellFigure, Row, Table};

/// Each row over the first of its workload, pass by pass; nothing for a matrix of one pass.
pub(super) fn section(table: &Table) -> Markup {
    markup! { @for workload in Workload::ALL { (one(table, workload)) } }
}

fn one(table: &Table, workload: Workload) -> Markup {
    let rows: Vec<&Row> = table.rows_of(workload).collect();
    let repeated =
        rows.iter().flat_map(|row| &row.cells).any(|cell| cell.ratio.is_some_and(|r| r.passes > 1));
    let (Some((first, others)), true) = (rows.split_first(), repeated) else { return markup! {} };
    markup! {
        section {
            h2 { (workload.label()) ": times " (first.label) }
            div.scroll {
                table {
                    thead { tr {
                        th { "Tool" }
                        @for condition in &table.conditions {
                            th.figure { (Condition::label(condition)) }
                        }
                    } }
                    tbody {
                        @for row in others {
                            tr {
                                th scope="row" { (row.label) }
                                @for cell in &row.cells { td.figure { (ratio(cell)) } }
                            }
                        }
                    }
                }
            }
            p.soft { "Median of the ratios within passes; below it the 95 % interval, from six passes." }
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
