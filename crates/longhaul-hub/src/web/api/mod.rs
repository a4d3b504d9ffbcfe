//! The HTTP API below `/api/v1`, for the command line, scripts and the pages' script.

mod access;
mod description;
mod events;
mod exports;
mod fleet;
mod mesh;
mod runs;
mod series;

pub(crate) use fleet::{hosts_document, status_document};
pub(crate) use mesh::{apply_text, plan_text};
pub(crate) use runs::RunQuery;
pub(crate) use runs::parse_filter;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use crate::hub::Hub;

/// The most bytes of a body: a mesh of 1 MiB as a JSON text.
const BODY_BYTES: usize = 4 << 20;

/// Returns the routes of the API.
pub(crate) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/api/v1/login", post(access::post_login))
        .route("/api/v1/tokens", post(access::post_token))
        .route("/api/v1/agents/{id}/revoke", post(access::post_revoke))
        .route("/api/v1/status", get(fleet::get_status))
        .route("/api/v1/hosts", get(fleet::get_hosts))
        .route("/api/v1/schedule", get(fleet::get_schedule))
        .route("/api/v1/counts", get(fleet::get_counts))
        .route("/api/v1/runs", get(runs::get_runs))
        .route("/api/v1/runs/{id}", get(runs::get_run))
        .route("/api/v1/runs/{id}/cancel", post(runs::post_cancel))
        .route("/api/v1/pairs/{source}/{destination}", get(runs::get_pair))
        .route("/api/v1/series", get(series::get_series))
        .route("/api/v1/events", get(events::get_events))
        .route("/api/v1/events/stream", get(events::get_stream))
        .route("/api/v1/events/{id}/ack", post(events::post_acknowledge))
        .route("/api/v1/mesh", get(mesh::get_mesh))
        .route("/api/v1/mesh/plan", post(mesh::post_plan))
        .route("/api/v1/mesh/apply", post(mesh::post_apply))
        .route("/api/v1/openapi.json", get(description::get_description))
        .route("/metrics", get(exports::get_metrics))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}
