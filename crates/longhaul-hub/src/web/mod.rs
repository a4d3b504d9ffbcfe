//! HTTP: connections, authentication, the requests of agents, the API, the pages.

mod access;
mod agent;
mod api;
mod connection;
mod failure;
mod pages;
mod range;
mod readers;
mod server;
mod slow_body;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use longhaul_fleet::protocol::{CHECK_PATH, ENROLL_PATH, SYNC_PATH};

pub(crate) use server::accept;

use crate::hub::Hub;

/// Returns all routes of a hub.
pub(crate) fn routes(hub: Arc<Hub>) -> Router {
    let readers = Router::new().merge(api::routes()).merge(pages::routes());
    let readers = readers
        .layer(from_fn(slow_body::limit_body))
        .layer(from_fn_with_state(hub.clone(), readers::with_place));
    Router::new()
        .route(ENROLL_PATH, post(agent::post_enrol))
        .route(CHECK_PATH, get(agent::get_check))
        .route(SYNC_PATH, post(agent::post_sync))
        .merge(api::live_routes())
        .merge(readers)
        .with_state(hub)
}
