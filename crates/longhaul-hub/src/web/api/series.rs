//! Series of interfaces and their queues, of hosts and of STAMP.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::hub::Hub;
use crate::records::series::{Series, read_series, series};
use crate::samples::{Bucket, Kind, Span};
use crate::web::access::ApiCaller;
use crate::web::failure::Failure;
use crate::web::range::Range;

/// The choice of a series.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
pub(crate) struct SeriesQuery {
    /// `interface`, `queue`, `host` or `stamp`.
    kind: String,
    /// The host that measures.
    host: String,
    /// The interface or the peer; absent for the kind `host`.
    #[serde(default)]
    name: String,
    /// The start of the range: `now-24h`, RFC 3339 or ms since 1970.
    from: Option<String>,
    /// The end of the range.
    to: Option<String>,
    /// The length of an interval in seconds; chosen for about 500 intervals if absent.
    step: Option<i64>,
    /// `json` or `csv`.
    format: Option<String>,
}

/// The values of a series.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct SeriesDocument {
    /// `longhaul.fleet-series/1`.
    schema: &'static str,
    /// `interface`, `queue`, `host` or `stamp`.
    kind: &'static str,
    /// The host that measures.
    host: String,
    /// The interface or the peer; empty for the kind `host`.
    name: String,
    /// The rate of the interface in bit/s.
    speed_bps: Option<i64>,
    /// The length of an interval in ms.
    step_ms: i64,
    /// The names of the metrics.
    metrics: &'static [&'static str],
    /// The intervals with data; a missing interval is a gap.
    rows: Vec<SeriesRow>,
}

/// The values of one interval.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct SeriesRow {
    /// The start in ms since 1970.
    start_ms: i64,
    /// Per metric the average, minimum and maximum; `null` if it was not measured.
    values: Vec<Option<[f64; 3]>>,
}

/// Returns the values of a series.
#[utoipa::path(get, path = "/api/v1/series", params(SeriesQuery),
    responses((status = 200, body = SeriesDocument), (status = 404)))]
pub(crate) async fn get_series(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
    Query(query): Query<SeriesQuery>,
) -> Result<Response, Failure> {
    let kind = Kind::named(&query.kind).ok_or_else(|| Failure::bad("no such kind of series"))?;
    let now = now_ms();
    let range = Range { from: query.from.clone(), to: query.to.clone() }.times(now)?;
    let chosen = query.step.map_or((range.1 - range.0) / 500, |step| step.saturating_mul(1000));
    // At most 10,000 intervals.
    let step = chosen.max(1000).max((range.1 - range.0) / 10_000) / 1000 * 1000;
    let read = move |sql: &mut dyn crate::store::Sql| {
        let all = series(sql, kind, Some(&query.host))?;
        let Some(found) = all.into_iter().find(|one| one.name == query.name) else {
            return Ok(None);
        };
        let (step_ms, buckets) = read_series(sql, &found, range, step, now)?;
        Ok(Some((document(found, step_ms, &buckets), query.format.clone())))
    };
    match hub.store.read(read).await? {
        None => Err(Failure::not_found("series")),
        Some((document, format)) if format.as_deref() == Some("csv") => Ok(csv(&document)),
        Some((document, _)) => Ok(Json(document).into_response()),
    }
}

fn document(series: Series, step_ms: i64, buckets: &[Bucket]) -> SeriesDocument {
    let triple = |span: &Span| Some([span.average()?, span.min, span.max]);
    let row = |bucket: &Bucket| SeriesRow {
        start_ms: bucket.start_ms,
        values: bucket.spans.iter().map(triple).collect(),
    };
    SeriesDocument {
        schema: "longhaul.fleet-series/1",
        kind: series.kind.as_str(),
        host: series.host,
        name: series.name,
        speed_bps: series.speed_bps,
        step_ms,
        metrics: series.kind.metrics(),
        rows: buckets.iter().map(row).collect(),
    }
}

fn csv(document: &SeriesDocument) -> Response {
    let mut text = "start_ms".to_owned();
    for metric in document.metrics {
        text += &format!(",{metric}_average,{metric}_min,{metric}_max");
    }
    text.push('\n');
    for row in &document.rows {
        text += &row.start_ms.to_string();
        for value in &row.values {
            match value {
                Some([average, min, max]) => text += &format!(",{average},{min},{max}"),
                None => text += ",,,",
            }
        }
        text.push('\n');
    }
    super::exports::attachment(text, "text/csv; charset=utf-8", "series.csv")
}
