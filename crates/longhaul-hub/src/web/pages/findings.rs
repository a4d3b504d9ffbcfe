//! The findings about a host at a time: the document of `longhaul doctor` that its agent reported.

use maud::{Markup, html};
use serde_json::Value as Json;

use super::document::details;
use super::layout::{badge, time};
use crate::words;

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
        p.soft { "Reported " (time(*at)) ". " (of("ok").len()) " facts are in order. " (target(document)) }
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

/// Returns the target of the recommendations; empty if the document of the agent has none.
fn target(document: &Json) -> String {
    let number = |name: &str| document.pointer(name).and_then(Json::as_f64);
    let origin = |name: &str| match document.pointer(name).and_then(Json::as_str) {
        Some("asked") => "the capacity that the mesh declares",
        Some("interface") => "the speed of the interface",
        Some("measured") => "measured",
        _ => "assumed",
    };
    let (Some(rate), Some(rtt)) = (number("/target/rate_bps"), number("/target/rtt_ms")) else {
        return String::new();
    };
    format!(
        "The recommendations are for a rate of {} ({}) over a round-trip time of {} ({}).",
        words::rate(rate),
        origin("/target/rate_from"),
        words::milliseconds(rtt.clamp(0.0, 1e9)),
        origin("/target/rtt_from")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn recommendations_state_their_target() {
        let text = |target: Json| findings(Some(&(0, json!({"target": target})))).into_string();
        let known = json!({"rate_bps": 50_000_000, "rate_from": "asked", "rtt_ms": 100.0, "rtt_from": "assumed"});
        let wanted = "for a rate of 50.0 Mb/s (the capacity that the mesh declares) over a round-trip time \
                      of 100 ms (assumed).";
        assert!(text(known.clone()).contains(wanted), "{}", text(known));
        for hostile in [json!(null), json!([]), json!({"rate_bps": "x", "rtt_ms": -1e300})] {
            assert!(!text(hostile.clone()).contains("recommendations"), "{hostile}");
        }
        assert!(text(json!({"rate_bps": -1, "rtt_ms": 1e300})).contains("of 0.00 b/s (assumed)"));
    }
}
