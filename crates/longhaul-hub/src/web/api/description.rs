//! The OpenAPI description, generated from the types.

use axum::Json;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "longhaul hub",
        description = "The API of a hub: bearer tokens from \
        POST /api/v1/login, or the session of a browser with the header x-csrf-token."
    ),
    paths(
        super::access::post_login,
        super::access::post_token,
        super::access::post_revoke,
        super::fleet::get_status,
        super::fleet::get_hosts,
        super::fleet::get_schedule,
        super::fleet::get_counts,
        super::runs::get_runs,
        super::runs::get_run,
        super::runs::post_cancel,
        super::runs::get_pair,
        super::series::get_series,
        super::events::get_events,
        super::events::get_stream,
        super::events::post_acknowledge,
        super::mesh::get_mesh,
        super::mesh::post_plan,
        super::mesh::post_apply,
        super::exports::get_metrics,
    )
)]
struct Description;

/// `GET /api/v1/openapi.json`.
pub(crate) async fn get_description() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}
