//! The figures of the HTML document.

use longhaul_chart::Width;
use maud::{Markup, PreEscaped, html as markup};

use super::{folded, label};
use crate::report::figures::{Columns, Figure};

/// The number of characters of a cell above which its text has several lines.
const LONG: usize = 40;

/// Returns all figures, each drawn for a page and for a phone.
pub(super) fn all(figures: &[Figure]) -> Markup {
    markup! { @for figure in figures { (one(figure)) } }
}

fn one(figure: &Figure) -> Markup {
    markup! {
        figure id=(format!("figure-{}", figure.id)) {
            @for (width, class) in [(Width::Page, "wide"), (Width::Phone, "narrow")] {
                @if let Some(drawing) = figure.draw(width) { (PreEscaped(drawing.embedded(class))) }
            }
            @if let Some(table) = &figure.table {
                (folded(&table.title, table.lines.len(), &body(table)))
            }
            @for note in &figure.notes { figcaption.soft { (note) } }
        }
    }
}

fn body(table: &Columns) -> Markup {
    markup! {
        div.scroll {
            table.small {
                thead { tr {
                    @for (column, head) in table.heads.iter().enumerate() {
                        th.figure[column > 1] { (head) }
                    }
                } }
                tbody {
                    @for line in &table.lines {
                        tr {
                            @for (column, text) in line.iter().enumerate() {
                                @if column == 0 { th scope="row" { (label(text)) } }
                                @else {
                                    td.figure[column > 1].wrap[text.len() > LONG] { (label(text)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
