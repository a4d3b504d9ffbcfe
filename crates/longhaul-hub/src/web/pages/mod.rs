//! The pages: HTML that works without script, and a small script for live updates and zoom.

mod days;
mod document;
mod events;
mod findings;
mod grid;
mod host_load;
mod hosts;
mod layout;
mod login;
mod pair;
mod plot;
mod run;
mod runs;
mod schedule;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use crate::hub::Hub;
use crate::web::access::{Caller, PageCaller};
use crate::web::failure::{Cause, Refusal, Sentence};

/// The style of the pages: that of reports and charts, and that of the hub.
const HUB_STYLE: &str = include_str!("../assets/hub.css");
/// The script of the pages.
const SCRIPT: &str = include_str!("../assets/live.js");

/// A caller who may read the pages. Others are sent to the login.
pub(super) struct PageViewer(pub(super) Caller);

impl FromRequestParts<Arc<Hub>> for PageViewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Response> {
        match PageCaller::from_request_parts(parts, hub).await {
            Ok(PageCaller(Some(caller))) => Ok(PageViewer(caller)),
            Ok(PageCaller(None)) => Err(Redirect::to("/login").into_response()),
            Err(failure) => Err(failure.into_response()),
        }
    }
}

/// Returns the routes of the pages.
pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/", get(grid::get_grid))
        .route("/login", get(login::get_login).post(login::post_login))
        .route("/logout", post(login::post_logout))
        .route("/hosts", get(hosts::get_hosts))
        .route("/hosts/{name}", get(hosts::get_host))
        .route("/pairs/{source}/{destination}", get(pair::get_pair))
        .route("/runs", get(runs::get_runs))
        .route("/runs/{id}", get(run::get_run))
        .route("/schedule", get(schedule::get_schedule))
        .route("/events", get(events::get_events))
        .route("/events/{id}/ack", post(events::post_acknowledge))
        .route("/search", get(events::get_search))
        .route("/assets/style.css", get(get_style))
        .route("/assets/live.js", get(get_script))
        .fallback(get_nothing)
        .layer(map_response(as_page))
        .layer(DefaultBodyLimit::max(64 << 10))
}

/// Returns a page in place of the document of a failed request, which is for programs, and of the text about a
/// malformed one, which names parts of the hub's code.
async fn as_page(answer: Response) -> Response {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    let sentence = match answer.extensions().get() {
        Some(Sentence(sentence)) => sentence.as_str(),
        None if is_text && answer.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            "the form is too large"
        }
        None if is_text && answer.status().is_client_error() => {
            "the address or the form is malformed"
        }
        None => return answer,
    };
    let mut page = layout::failure_page(answer.status(), None, sentence);
    if let Some(cause) = answer.extensions().get::<Cause>() {
        page.extensions_mut().insert(cause.clone());
    }
    if let Some(refusal) = answer.extensions().get::<Refusal>() {
        page.extensions_mut().insert(*refusal);
    }
    page
}

async fn get_style() -> Response {
    let style = [longhaul_chart::PAGE_STYLE, longhaul_chart::STYLE, HUB_STYLE].concat();
    asset("text/css; charset=utf-8", style)
}

async fn get_script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT.to_owned())
}

fn asset(kind: &'static str, text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "max-age=300"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}

async fn get_nothing(caller: PageCaller) -> Response {
    layout::failure_page(StatusCode::NOT_FOUND, caller.0.as_ref(), "the hub has no such page")
}
