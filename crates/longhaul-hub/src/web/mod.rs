//! HTTP: connections, authentication, the requests of agents, the API, the pages.

mod access;
mod agent;
mod api;
mod failure;
mod pages;
mod range;
mod server;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use longhaul_fleet::protocol::{ENROLL_PATH, SYNC_PATH};

pub(crate) use server::accept;

use crate::hub::Hub;

/// Returns all routes of a hub.
pub(crate) fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route(ENROLL_PATH, post(agent::post_enrol))
        .route(SYNC_PATH, post(agent::post_sync))
        .merge(api::routes())
        .merge(pages::routes())
        .with_state(hub)
}
