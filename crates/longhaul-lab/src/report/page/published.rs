//! The section of published figures.

use maud::{Markup, html as markup};

use crate::reference::{Figure, published};

/// Returns the published figures, grouped by source.
pub(super) fn section() -> Markup {
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
