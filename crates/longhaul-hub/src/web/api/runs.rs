//! Runs and pairs.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_fleet::api::{CellDocument, RUNS_SCHEMA, RunDocument, RunsDocument, UserRole};
use longhaul_fleet::protocol::RunReason;
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::figures::Route;
use crate::hub::{Hub, PageMessage};
use crate::records::cells::cells_of;
use crate::records::leases::cancel;
use crate::records::paths::{PathChange, path_changes};
use crate::records::runs::{RunFilter, named, run_of, runs};
use crate::web::access::ApiCaller;
use crate::web::connection::Client;
use crate::web::failure::Failure;
use crate::web::range::Range;
use crate::web::readers::keeping;

/// The choice of runs.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
pub(crate) struct RunQuery {
    /// The name of the test.
    pub(crate) test: Option<String>,
    /// The source's host.
    pub(crate) source: Option<String>,
    /// The destination's host.
    pub(crate) destination: Option<String>,
    /// The source's or destination's host.
    pub(crate) host: Option<String>,
    /// The state.
    pub(crate) state: Option<String>,
    /// The reason.
    pub(crate) reason: Option<String>,
    /// The start of the range: `now-24h`, RFC 3339 or ms since 1970.
    pub(crate) from: Option<String>,
    /// The end of the range.
    pub(crate) to: Option<String>,
    /// The value of `next` of the page before.
    pub(crate) before: Option<String>,
    /// The number of runs; 1 to 10000.
    pub(crate) limit: Option<i64>,
    /// `json`, `jsonl`, `csv`, or `pscheduler` for the lines that pScheduler's archivers read.
    pub(crate) format: Option<String>,
    /// With `format=pscheduler`: the `data` of the archiver, a JSON object.
    pub(crate) data: Option<String>,
}

/// Returns the filter of a query.
pub(crate) fn parse_filter(query: &RunQuery, now: i64) -> Result<RunFilter, Failure> {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let bad = |what: &str| Failure::bad(format!("'{what}' of the query is malformed"));
    let time = |text: &Option<String>, what: &str| {
        let parse = |text: String| crate::web::range::time(&text, now).ok_or_else(|| bad(what));
        filled(text).map(parse).transpose()
    };
    let before = filled(&query.before).map(|text| {
        let (planned, id) = text.split_once('.')?;
        Some((planned.parse::<i64>().ok()?, id.to_owned()))
    });
    Ok(RunFilter {
        test: filled(&query.test),
        source: filled(&query.source),
        destination: filled(&query.destination),
        host: filled(&query.host),
        state: filled(&query.state).map(|s| named(&s)).transpose().map_err(|_| bad("state"))?,
        reason: filled(&query.reason).map(|s| named(&s)).transpose().map_err(|_| bad("reason"))?,
        from_ms: time(&query.from, "from")?,
        to_ms: time(&query.to, "to")?,
        before: before.map(|found| found.ok_or_else(|| bad("before"))).transpose()?,
    })
}

/// The longest list that takes no place of the exports.
const SMALL: i64 = 1000;
/// The longest wait for a place.
const EXPORT_WAIT: Duration = Duration::from_secs(20);

/// Returns runs, the latest first.
#[utoipa::path(get, path = "/api/v1/runs", params(RunQuery),
    responses((status = 200, body = RunsDocument)))]
pub(crate) async fn get_runs(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    _: ApiCaller,
    Query(query): Query<RunQuery>,
) -> Result<Response, Failure> {
    let filter = parse_filter(&query, now_ms())?;
    let limit = query.limit.unwrap_or(200).clamp(1, 10_000);
    let place = if limit > SMALL {
        Some(hub.exports.take(client.0.ip(), EXPORT_WAIT).await.ok_or_else(busy)?)
    } else {
        None
    };
    let mut found = hub.store.read(move |sql| runs(sql, &filter, limit + 1)).await?;
    let more = found.len() as i64 > limit;
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let last = found.last().filter(|_| more);
    let next = last.map(|run| format!("{}.{}", run.planned_ms, run.run));
    let list = match query.format.as_deref() {
        None | Some("json" | "") => {
            let schema = RUNS_SCHEMA.to_owned();
            Json(RunsDocument { schema, runs: found, next }).into_response()
        }
        Some("jsonl") => super::exports::json_lines(&found),
        Some("csv") => super::exports::runs_csv(&found),
        Some("pscheduler") => super::pscheduler::archiver_lines(hub, found, query.data.as_deref())?,
        Some(_) => return Err(Failure::bad("the format is json, jsonl, csv or pscheduler")),
    };
    Ok(keeping(list, place))
}

fn busy() -> Failure {
    Failure::busy("too many exports are under way; try again in a minute")
}

/// Returns a run with its document.
#[utoipa::path(get, path = "/api/v1/runs/{id}", params(("id" = String, Path)),
    responses((status = 200, body = RunDocument), (status = 404)))]
pub(crate) async fn get_run(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let run = hub.store.read(move |sql| run_of(sql, &id)).await?;
    let run = run.ok_or_else(|| Failure::not_found("run"))?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(run)).into_response())
}

/// Cancels a run that is not over.
#[utoipa::path(post, path = "/api/v1/runs/{id}/cancel", params(("id" = String, Path)),
    responses((status = 204), (status = 403), (status = 404)))]
pub(crate) async fn post_cancel(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    caller.at_least(UserRole::Operator)?;
    let now = now_ms();
    let known = hub.store.write(move |sql| cancel(sql, &id, RunReason::Cancelled, now)).await?;
    hub.wake_all();
    let _ = hub.live.send(PageMessage::Changed);
    if known { Ok(StatusCode::NO_CONTENT) } else { Err(Failure::not_found("open run")) }
}

/// The state and the latest runs of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct PairDocument {
    /// `longhaul.fleet-pair/1`.
    schema: &'static str,
    /// The cells from the source to the destination.
    cells: Vec<CellDocument>,
    /// The runs in the range, the latest first; at most 1000.
    runs: Vec<RunDocument>,
    /// The routes in the range and the one before it, the latest first; at most 1001.
    routes: Vec<RouteDocument>,
}

/// A route of a path, which differs from the one before.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct RouteDocument {
    /// The start of the first run with this route in ms since 1970.
    at_ms: i64,
    /// The id of this run.
    run: String,
    /// The route.
    route: Route,
}

/// Returns the state and the runs of a directed pair.
#[utoipa::path(get, path = "/api/v1/pairs/{source}/{destination}",
    params(("source" = String, Path), ("destination" = String, Path), Range),
    responses((status = 200, body = PairDocument)))]
pub(crate) async fn get_pair(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
    Path((source, destination)): Path<(String, String)>,
    Query(range): Query<Range>,
) -> Result<Json<PairDocument>, Failure> {
    let (from_ms, to_ms) = range.times(now_ms())?;
    let read = move |sql: &mut dyn crate::store::Sql| {
        let cells = cells_of(sql, (&source, &destination))?;
        let filter = RunFilter {
            source: Some(source.clone()),
            destination: Some(destination.clone()),
            from_ms: Some(from_ms),
            to_ms: Some(to_ms),
            ..RunFilter::default()
        };
        let changes = path_changes(sql, (&source, &destination), (from_ms, to_ms), 1000)?;
        let document =
            |one: PathChange| RouteDocument { at_ms: one.at_ms, run: one.run, route: one.route };
        Ok(PairDocument {
            schema: "longhaul.fleet-pair/1",
            cells,
            runs: runs(sql, &filter, 1000)?,
            routes: changes.into_iter().map(document).collect(),
        })
    };
    Ok(Json(hub.store.read(read).await?))
}
