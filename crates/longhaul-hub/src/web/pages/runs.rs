//! The list of runs, one run, and the schedule.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_fleet::api::RunDocument;
use maud::{Markup, html};

use super::PageViewer;
use super::layout::{badge, failure_page, page, segment, time};
use crate::clock::{DAY, HOUR, now_ms};
use crate::hub::Hub;
use crate::records::agents::{agents, facts};
use crate::records::counts::{RunCount, counts};
use crate::records::runs::{RunFilter, run_of, runs};
use crate::store::Sql;
use crate::web::api::{RunQuery, parse_filter};
use crate::web::failure::Failure;
use crate::words;

/// The number of runs of a page.
const ON_PAGE: i64 = 100;

/// Returns a table of runs.
pub(super) fn table(runs: &[RunDocument]) -> Markup {
    html! {
        div.scroll { table.small {
            thead { tr { @for name in ["Planned", "Test", "Source", "Destination", "State", "Result"] {
                th scope="col" { (name) }
            } } }
            tbody {
                @if runs.is_empty() { tr { td colspan="6" { "No runs in this range." } } }
                @for run in runs { tr {
                    td { a href=(format!("/runs/{}", segment(&run.run))) { (time(run.planned_ms)) } }
                    td { (run.test) }
                    td { a href=(format!("/hosts/{}", segment(&run.source))) { (run.source) } }
                    td { a href=(format!("/hosts/{}", segment(&run.destination))) { (run.destination) } }
                    td { (state(run)) }
                    td.wrap { (result(run)) }
                } }
            }
        } }
    }
}

fn state(run: &RunDocument) -> Markup {
    let (word, class) = words::run_state(run.state);
    let glyph = match class {
        "good" => "\u{2713}",
        "critical" => "\u{2715}",
        "notrun" => "\u{2298}",
        _ => "\u{00B7}",
    };
    badge(glyph, word, class)
}

/// Returns the figures of a run, or the reason why it has none.
fn result(run: &RunDocument) -> String {
    if let Some(reason) = run.reason {
        let message = run.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        return format!("{}{message}", words::reason(reason));
    }
    #[allow(clippy::cast_precision_loss)]
    let throughput = run.throughput_bps.map(|bps| words::rate(bps as f64));
    let parts = [
        throughput,
        run.loss.map(|loss| format!("loss {}", words::percent(loss))),
        run.rtt_ms.map(|ms| format!("RTT {}", words::milliseconds(ms))),
        run.mtu.map(|bytes| format!("MTU {bytes} B")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `GET /runs`.
pub(super) async fn get_runs(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Query(query): Query<RunQuery>,
) -> Result<Response, Failure> {
    let now = now_ms();
    let filter = parse_filter(&query, now)?;
    let read = move |sql: &mut dyn Sql| {
        Ok((runs(sql, &filter, ON_PAGE)?, counts(sql, (now - 7 * DAY, now))?))
    };
    let (found, counted) = hub.store.read(read).await?;
    let next = (found.len() as i64 == ON_PAGE).then(|| found.last()).flatten();
    let kept = [
        ("test", &query.test),
        ("source", &query.source),
        ("destination", &query.destination),
        ("host", &query.host),
        ("state", &query.state),
        ("reason", &query.reason),
    ];
    let kept: String = kept
        .iter()
        .filter_map(|(name, value)| Some(format!("&{name}={}", segment(value.as_deref()?))))
        .collect();
    let main = html! {
        h1 { "Runs" }
        form.filter action="/runs" {
            @for (name, value) in [("test", &query.test), ("source", &query.source), ("destination", &query.destination)] {
                label { (name) " " input name=(name) value=(value.as_deref().unwrap_or_default()) size="12"; }
            }
            label { "state " select name="state" {
                option value="" { "any" }
                @for state in ["planned", "leased", "running", "finished", "failed", "missed", "cancelled"] {
                    option value=(state) selected[query.state.as_deref() == Some(state)] { (state) }
                }
            } }
            button { "Show" }
            " " a href=(format!("/api/v1/runs?format=csv&limit=10000{kept}")) { "CSV" }
            " " a href=(format!("/api/v1/runs?format=jsonl&limit=10000{kept}")) { "JSON lines" }
        }
        (table(&found))
        @if let Some(last) = next {
            p { a href=(format!("/runs?before={}.{}{kept}", last.planned_ms, segment(&last.run))) { "Earlier runs" } }
        }
        h2 { "Runs of the last seven days" }
        (counts_table(&counted))
    };
    Ok(page("Runs", Some(&caller), query.before.is_none(), &main))
}

fn counts_table(counted: &[RunCount]) -> Markup {
    html! {
        div.scroll { table.small {
            thead { tr { @for name in ["Day (UTC)", "Test", "State", "Reason"] { th scope="col" { (name) } } th.figure scope="col" { "Runs" } } }
            tbody { @for count in counted.iter().rev() { tr {
                td { (&words::utc(count.day_ms)[..10]) }
                td { (count.test) }
                td { (words::run_state(count.state).0) }
                td.wrap { (count.reason.map(words::reason).unwrap_or_default()) }
                td.figure { (count.runs) }
            } } }
        } }
    }
}

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
            known.extend(
                facts(sql, &agent.id, run.planned_ms)?.map(|facts| (agent.host.clone(), facts)),
            );
        }
        Ok(Some((run, known)))
    };
    let Some((run, known)) = hub.store.read(read).await? else {
        return Ok(failure_page(StatusCode::NOT_FOUND, Some(&caller), "the hub has no such run"));
    };
    let pretty =
        |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let summary = run.document.as_ref().and_then(|document| document.get("summary"));
    let sentences = summary.and_then(|value| value.as_array()).cloned().unwrap_or_default();
    let main = html! {
        p.kind { (run.kind.as_str()) }
        h1 { (run.source) " \u{2192} " (run.destination) }
        p { (state(&run)) " " (result(&run)) }
        @for sentence in sentences.iter().filter_map(|value| value.as_str()) { p { (sentence) } }
        div.scroll { table.facts { tbody {
            tr { th scope="row" { "Test" } td { (run.test) } }
            tr { th scope="row" { "Pair" } td { a href=(format!("/pairs/{}/{}", segment(&run.source), segment(&run.destination))) { (run.source) " > " (run.destination) } } }
            tr { th scope="row" { "Window" } td { (time(run.planned_ms)) " to " (time(run.window_end_ms)) } }
            @for (name, at) in [("Start", run.started_ms), ("End", run.ended_ms)] {
                tr { th scope="row" { (name) } td { @match at { Some(at) => { (time(at)) } None => { "\u{2013}" } } } }
            }
            tr { th scope="row" { "Resources" } td { (run.resources.join(", ")) } }
            tr { th scope="row" { "Fencing number" } td { (run.fencing) } }
            tr { th scope="row" { "Run" } td { code { (run.run) } " " a href=(format!("/api/v1/runs/{}", segment(&run.run))) { "JSON" } } }
        } } }
        @if let Some(document) = &run.document {
            details.more { summary { "Result document" } pre { (pretty(document)) } }
        }
        @for (host, (at, document)) in &known {
            details.more { summary { "Facts of " (host) " at that time" } p { "Reported " (time(*at)) } pre { (pretty(document)) } }
        }
    };
    Ok(page(
        &format!("{} to {}", run.source, run.destination),
        Some(&caller),
        !run.state.is_final(),
        &main,
    ))
}

/// `GET /schedule`.
pub(super) async fn get_schedule(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let from_ms = Some(now - HOUR);
    let filter = RunFilter { from_ms, ..RunFilter::default() };
    let mut planned = hub.store.read(move |sql| runs(sql, &filter, 2000)).await?;
    planned.retain(|run| !run.state.is_final());
    planned.reverse();
    let main = html! {
        h1 { "Schedule" }
        @match applied.as_deref() {
            None => { p { "No mesh is applied." } }
            Some(applied) => {
                p { "A full cycle of all tests takes " (words::span(applied.schedule.cycle_ms)) ". Mesh "
                    b { (applied.mesh.name) } ", revision " (applied.revision) ", applied " (time(applied.applied_ms)) "." }
                h2 { "Next runs" }
                (table(&planned))
                h2 { "Load of interfaces and trunks" }
                (load(applied))
                details.more { summary { "Mesh file" } pre { (applied.text) } }
            }
        }
    };
    Ok(page("Schedule", Some(&caller), true, &main))
}

#[allow(clippy::cast_precision_loss)]
fn load(applied: &crate::fleet::Applied) -> Markup {
    let mut all: Vec<_> = applied.schedule.load.iter().collect();
    all.sort_by(|a, b| b.busy_share.total_cmp(&a.busy_share));
    html! {
        div.scroll { table.small {
            thead { tr {
                th scope="col" { "Resource" }
                @for name in ["Capacity", "Busy", "Mean rate of tests", "Rate of STAMP"] { th.figure scope="col" { (name) } }
            } }
            tbody { @for one in all { tr {
                td { (one.resource) }
                td.figure { (words::rate(one.capacity_bps.bps() as f64)) }
                td.figure { meter min="0" max="1" value=(format!("{:.3}", one.busy_share.min(1.0))) {} " " (words::percent(one.busy_share)) }
                td.figure { (words::rate(one.mean_bps.bps() as f64)) }
                td.figure { (words::rate(one.light_bps.bps() as f64)) }
            } } }
        } }
    }
}
