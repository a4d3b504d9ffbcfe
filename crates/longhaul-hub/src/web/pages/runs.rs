//! The list of runs.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use longhaul_fleet::api::RunDocument;
use maud::{Markup, html};

use super::PageViewer;
use super::days::days_table;
use super::layout::{badge, page, segment, time};
use crate::clock::{DAY, now_ms};
use crate::hub::Hub;
use crate::records::counts::counts;
use crate::records::runs::runs;
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

pub(super) fn state(run: &RunDocument) -> Markup {
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
pub(super) fn result(run: &RunDocument) -> String {
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
        h2 { "Expected and received runs of the last seven days" }
        (days_table(&counted))
    };
    Ok(page("Runs", Some(&caller), query.before.is_none(), &main))
}
