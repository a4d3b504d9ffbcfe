//! The findings about a host at a time: the document of `longhaul doctor` that its agent reported.

use maud::{Markup, html};
use serde_json::Value as Json;

use super::document::details;
use super::layout::{badge, time};

/// The maximum number of findings of a verdict in the table; a doctor has fewer than a hundred.
const MOST_FINDINGS: usize = 200;

/// Returns the findings of the doctor's document of a host, without the facts that are in order.
pub(super) fn findings(known: Option<&(i64, Json)>) -> Markup {
    let Some((at, document)) = known else { return html! {} };
    let list = document.get("findings").and_then(Json::as_array).cloned().unwrap_or_default();
    let text = |finding: &Json, name: &str| {
        finding.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    let of = |verdict: &str| {
        list.iter().filter(|finding| text(finding, "verdict") == verdict).collect::<Vec<_>>()
    };
    let marks = [("problem", "\u{2715}", "critical"), ("advice", "\u{25B3}", "warning")];
    let commands = |finding: &Json| {
        let all = finding.get("commands").and_then(Json::as_array).cloned().unwrap_or_default();
        all.iter().filter_map(Json::as_str).collect::<Vec<_>>().join("\n")
    };
    html! {
        p.soft { "Reported " (time(*at)) ". " (of("ok").len()) " facts are in order." }
        @if marks.iter().any(|(verdict, ..)| !of(verdict).is_empty()) {
            div.scroll { table.small {
                thead { tr { @for name in ["Verdict", "Finding", "Value", "Remedy"] { th scope="col" { (name) } } } }
                tbody { @for (verdict, glyph, class) in marks { @for finding in of(verdict).into_iter().take(MOST_FINDINGS) { tr {
                    td { (badge(glyph, verdict, class)) }
                    td.wrap { b { (text(finding, "title")) } " " (text(finding, "subject")) }
                    td.wrap { (text(finding, "seen")) @if !text(finding, "wanted").is_empty() { ", recommended: " (text(finding, "wanted")) } }
                    td.wrap { @if !commands(finding).is_empty() { pre { (commands(finding)) } } }
                } } } }
            } }
        }
        (details("All facts", document))
    }
}
