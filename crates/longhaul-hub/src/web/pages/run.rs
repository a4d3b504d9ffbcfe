//! The page of one run: its outcome, its intervals, its document, and the facts of both hosts at that time.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_fleet::api::RunDocument;
use maud::{Markup, html};
use serde_json::Value as Json;

use super::PageViewer;
use super::document::details;
use super::findings::findings;
use super::layout::{failure_page, page, segment, time};
use super::plot::{Mark, Plot, Quantity};
use super::runs::{result, state};
use crate::hub::Hub;
use crate::records::agents::{agents, facts};
use crate::records::runs::run_of;
use crate::store::Sql;
use crate::web::failure::Failure;

/// The most intervals of a graph.
const MOST_INTERVALS: usize = 2000;
/// The highest rate of an interval in bit/s.
const MOST_BPS: f64 = 1e15;
/// The most sentences of a document, and characters of a sentence.
const MOST_SENTENCES: usize = 50;
const MOST_CHARACTERS: usize = 1000;

/// `GET /runs/ID`.
pub(super) async fn get_run(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let read = move |sql: &mut dyn Sql| {
        let Some(run) = run_of(sql, &id)? else { return Ok(None) };
        let mut known = Vec::new();
        for agent in
            agents(sql)?.iter().filter(|one| [&run.source, &run.destination].contains(&&one.host))
        {
            known.push((agent.host.clone(), facts(sql, &agent.id, run.planned_ms)?));
        }
        Ok(Some((run, known)))
    };
    let Some((run, known)) = hub.store.read(read).await? else {
        return Ok(failure_page(StatusCode::NOT_FOUND, Some(&caller), "the hub has no such run"));
    };
    let document = run.document.as_ref();
    let main = html! {
        p.kind { (run.kind.as_str()) }
        h1 { (run.source) " \u{2192} " (run.destination) }
        p { (state(&run)) " " (result(&run)) }
        @for sentence in document.map(sentences).unwrap_or_default() { p { (sentence) } }
        (table(&run))
        (intervals(&run))
        @if let Some(document) = document {
            (details("Result document", document))
        }
        @for (host, known) in &known {
            section {
                h2 { "Host " a href=(format!("/hosts/{}", segment(host))) { (host) } " at that time" }
                @match known {
                    Some(_) => { (findings(known.as_ref())) }
                    None => { p { "The agent had not reported facts." } }
                }
            }
        }
    };
    let title = format!("{} to {}", run.source, run.destination);
    Ok(page(&title, Some(&caller), !run.state.is_final(), &main))
}

fn table(run: &RunDocument) -> Markup {
    let pair = format!("/pairs/{}/{}", segment(&run.source), segment(&run.destination));
    html! {
        div.scroll { table.facts { tbody {
            tr { th scope="row" { "Test" } td { a href=(format!("/runs?test={}", segment(&run.test))) { (run.test) } } }
            tr { th scope="row" { "Pair" } td { a href=(pair) { (run.source) " > " (run.destination) } } }
            tr { th scope="row" { "Window" } td { (time(run.planned_ms)) " to " (time(run.window_end_ms)) } }
            @for (name, at) in [("Start", run.started_ms), ("End", run.ended_ms)] {
                tr { th scope="row" { (name) } td { @match at { Some(at) => { (time(at)) } None => { "\u{2013}" } } } }
            }
            tr { th scope="row" { "Resources" } td { (run.resources.join(", ")) } }
            tr { th scope="row" { "Fencing number" } td { (run.fencing) } }
            tr { th scope="row" { "Run" } td { code { (run.run) } " " a href=(format!("/api/v1/runs/{}", segment(&run.run))) { "JSON" } } }
        } } }
    }
}

/// Returns the results of a document that are sentences: the summary of `path`, the reason for the rate of
/// `test` with its advice, the verdict of `cp`, the answer of `diagnose`.
fn sentences(document: &Json) -> Vec<String> {
    let cut = |text: &str| text.chars().take(MOST_CHARACTERS).collect::<String>();
    let text = |value: &Json| value.as_str().filter(|text| !text.is_empty()).map(cut);
    let lines = document.get("summary").and_then(Json::as_array).map(Vec::as_slice);
    let lines = lines.unwrap_or_default().iter().take(MOST_SENTENCES);
    let mut all: Vec<String> = lines.filter_map(text).collect();
    for place in ["/summary/reason/sentence", "/summary/reason/advice", "/verdict", "/sentence"] {
        all.extend(document.pointer(place).and_then(text));
    }
    all
}

/// Returns the graph of the intervals of a test; empty without intervals.
fn intervals(run: &RunDocument) -> Markup {
    let list = run.document.as_ref().and_then(|document| document.get("intervals")?.as_array());
    let (Some(list), Some(start)) = (list, run.started_ms) else { return html! {} };
    let marks = |reverse: bool| -> Vec<Mark> {
        let own =
            |one: &&Json| one.get("reverse").and_then(Json::as_bool).unwrap_or(false) == reverse;
        list.iter().filter(own).take(MOST_INTERVALS).filter_map(|one| mark(one, start)).collect()
    };
    let series: Vec<(&str, Vec<Mark>)> =
        [("throughput", marks(false)), ("reverse throughput", marks(true))]
            .into_iter()
            .filter(|(_, marks)| !marks.is_empty())
            .collect();
    let ends = series.iter().flat_map(|(_, marks)| marks.last()).map(|mark| mark.at_ms);
    let Some(end) = ends.max() else { return html! {} };
    let step_ms = series[0].1.windows(2).map(|two| two[1].at_ms - two[0].at_ms).max().unwrap_or(0);
    Plot {
        title: "Throughput of the intervals",
        quantity: Quantity::Rate,
        window_ms: (start, end.max(start + 1)),
        joined_ms: 2 * step_ms,
        series,
        expected: None,
    }
    .figure()
}

/// Returns the throughput of an interval, at its end. A document comes from an agent, which may be hostile.
#[allow(clippy::cast_possible_truncation)]
fn mark(interval: &Json, start_ms: i64) -> Option<Mark> {
    let number = |name: &str| interval.get(name).and_then(Json::as_f64);
    let (from, to) = (number("start_seconds")?, number("end_seconds")?);
    let seconds = to - from;
    let sane = (0.0..1e7).contains(&from) && to < 1e7 && seconds > 0.0;
    let at_ms = start_ms.saturating_add((to * 1000.0) as i64);
    let value = Some((number("bytes")?.max(0.0) * 8.0 / seconds).min(MOST_BPS));
    sane.then_some(Mark { at_ms, value, range: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_sentences_of_documents_are_found() {
        let test =
            json!({"summary": {"reason": {"sentence": "limited by the path", "advice": null}}});
        assert_eq!(sentences(&test), ["limited by the path"]);
        assert_eq!(sentences(&json!({"summary": ["a", 1, "b"], "verdict": ""})), ["a", "b"]);
        let diagnosis = json!({"sentence": "the path limits the copy", "limits": []});
        assert_eq!(sentences(&diagnosis), ["the path limits the copy"]);
        assert_eq!(sentences(&json!([1])), [""; 0]);
        let endless = sentences(&json!({"summary": vec!["x".repeat(5000); 5000]}));
        assert_eq!((endless.len(), endless[0].len()), (MOST_SENTENCES, MOST_CHARACTERS));
    }

    #[test]
    fn hostile_intervals_are_ignored() {
        let one = |bytes: Json, from: Json, to: Json| {
            mark(
                &json!({"bytes": bytes, "start_seconds": from, "end_seconds": to}),
                i64::MAX - 5000,
            )
        };
        let good = one(json!(125_000), json!(1.0), json!(2.0)).unwrap();
        assert_eq!((good.at_ms, good.value), (i64::MAX - 3000, Some(1e6)));
        assert_eq!(one(json!(-1), json!(0), json!(1)).unwrap().value, Some(0.0));
        assert_eq!(one(json!(1e308), json!(0), json!(1e-9)).unwrap().value, Some(MOST_BPS));
        for (bytes, from, to) in [
            (json!("x"), json!(0), json!(1)),
            (json!(1), json!(2), json!(1)),
            (json!(1), json!(0), json!(1e300)),
            (json!(1), json!(-5), json!(1)),
        ] {
            assert_eq!(one(bytes, from, to), None);
        }
    }
}
