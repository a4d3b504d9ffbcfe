//! The HTTP API below `/api/v1`, for the command line, scripts and the pages' script, and its OpenAPI
//! description, generated from the types.

mod access;
mod events;
mod exports;
mod fleet;
mod mesh;
mod pscheduler;
mod runs;
mod series;
mod snapshot;

pub(crate) use fleet::{hosts_document, status_document};
pub(crate) use runs::RunQuery;
pub(crate) use runs::parse_filter;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Json, Router};
use utoipa::OpenApi;

use crate::hub::Hub;

/// The maximum number of bytes of a body: a mesh of 1 MiB as a JSON text.
const BODY_BYTES: usize = 4 << 20;

/// The maximum number of bytes of a login, which anybody can send.
const LOGIN_BYTES: usize = 16 << 10;

/// Returns the routes of the API.
pub(crate) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/api/v1/login", post(access::post_login).layer(DefaultBodyLimit::max(LOGIN_BYTES)))
        .route("/api/v1/tokens", post(access::post_token))
        .route("/api/v1/agents/{id}/revoke", post(access::post_revoke))
        .route("/api/v1/status", get(fleet::get_status))
        .route("/api/v1/hosts", get(fleet::get_hosts))
        .route("/api/v1/hosts/{name}/snapshot", get(snapshot::get_snapshot))
        .route("/api/v1/schedule", get(fleet::get_schedule))
        .route("/api/v1/counts", get(fleet::get_counts))
        .route("/api/v1/runs", get(runs::get_runs))
        .route("/api/v1/runs/{id}", get(runs::get_run))
        .route("/api/v1/runs/{id}/cancel", post(runs::post_cancel))
        .route("/api/v1/pairs/{source}/{destination}", get(runs::get_pair))
        .route("/api/v1/series", get(series::get_series))
        .route("/api/v1/events", get(events::get_events))
        .route("/api/v1/events/{id}/ack", post(events::post_acknowledge))
        .route("/api/v1/mesh", get(mesh::get_mesh))
        .route("/api/v1/mesh/plan", post(mesh::post_plan))
        .route("/api/v1/mesh/apply", post(mesh::post_apply))
        .route("/api/v1/openapi.json", get(get_description))
        .route("/metrics", get(exports::get_metrics))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

/// Returns the routes of answers that last: they have places of their own.
pub(crate) fn live_routes() -> Router<Arc<Hub>> {
    Router::new().route("/api/v1/events/stream", get(events::get_stream))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "longhaul hub",
        description = "The API of a hub: bearer tokens from \
        POST /api/v1/login, or the session of a browser with the header x-csrf-token."
    ),
    paths(
        access::post_login,
        access::post_token,
        access::post_revoke,
        fleet::get_status,
        fleet::get_hosts,
        snapshot::get_snapshot,
        fleet::get_schedule,
        fleet::get_counts,
        runs::get_runs,
        runs::get_run,
        runs::post_cancel,
        runs::get_pair,
        series::get_series,
        events::get_events,
        events::get_stream,
        events::post_acknowledge,
        mesh::get_mesh,
        mesh::post_plan,
        mesh::post_apply,
        exports::get_metrics,
    )
)]
struct Description;

/// `GET /api/v1/openapi.json`.
pub(crate) async fn get_description() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}
