//! The section of the best settings.

use longhaul_core::plan::Condition;
use maud::{Markup, html as markup};

use super::{folded, label};
use crate::archive::Contents;
use crate::best::{Best, best};
use crate::report::text::gbps;
use crate::table::Table;

/// Returns the best setting of each tool and path with its evidence; empty if no tool has several
/// settings.
pub(super) fn section(contents: &Contents, table: &Table) -> Markup {
    let all = best(contents, table);
    if all.is_empty() {
        return markup! {};
    }
    markup! {
        section id="best" {
            h2 { "Best settings" }
            (folded("Best setting of each tool", all.len(), &lines(&all)))
            (folded("Commands of the best settings", all.len(), &commands(&all)))
            p.soft {
                "The setting with the highest median, and its ratio within passes to the default, which is "
                "the first setting of the tool, with the 95 % interval from six passes. The highest of "
                "several medians is biased upwards, which the interval does not allow for: repeat the two "
                "settings before you rely on a small difference."
            }
        }
    }
}

fn lines(all: &[Best<'_>]) -> Markup {
    markup! {
        div.scroll {
            table.small {
                thead { tr {
                    th { "Tool" }
                    th { "Type" }
                    th.figure { "Path" }
                    th { "Best setting" }
                    th.figure { "Gb/s" }
                    th.figure { "Ratio to the default" }
                } }
                tbody { @for best in all { (line(best)) } }
            }
        }
    }
}

/// Returns the commands below the table, so that they have the whole width of a phone.
fn commands(all: &[Best<'_>]) -> Markup {
    markup! {
        @for best in all {
            p.soft { (best.best.label) ", " (Condition::label(best.condition)) }
            pre { (best.command) }
        }
    }
}

fn line(best: &Best<'_>) -> Markup {
    let ratio = match (&best.ratio, best.is_shown()) {
        (None, _) if best.is_first() => "the default".to_owned(),
        (None, _) => "no pass has both settings".to_owned(),
        (Some(ratio), true) => format!("{:.2}", ratio.median),
        (Some(ratio), false) => format!("{:.2}, no difference shown", ratio.median),
    };
    let interval = best.ratio.and_then(|ratio| ratio.interval);
    markup! {
        tr {
            th scope="row" { (best.tool) }
            td { (best.first.workload.label()) }
            td.figure { (Condition::label(best.condition)) }
            td { (label(&best.best.label)) " (" (best.settings) " compared)" }
            td.figure { (gbps(best.rate)) }
            td.figure {
                (ratio)
                @if let Some((low, high)) = interval { span.range { (format!("{low:.2} - {high:.2}")) } }
            }
        }
    }
}
