//! Events: list, acknowledgement, and the stream of new ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use longhaul_fleet::api::UserRole;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use crate::clock::now_ms;
use crate::hub::{Hub, PageMessage};
use crate::records::events::{Event, EventFilter, acknowledge, events};
use crate::records::runs::named;
use crate::web::access::ApiCaller;
use crate::web::failure::Failure;

/// The choice of events.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
pub(crate) struct EventQuery {
    /// The kind.
    kind: Option<String>,
    /// The host or pair.
    subject: Option<String>,
    /// `info`, `warning` or `error`.
    severity: Option<String>,
    /// True for events that nobody acknowledged, except infos.
    #[serde(default)]
    open: bool,
    /// The id of the last event of the page before.
    before: Option<String>,
    /// The number of events; 1 to 1000.
    limit: Option<i64>,
}

/// A list of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct EventsDocument {
    /// `longhaul.fleet-events/1`.
    schema: &'static str,
    /// The events, the latest first.
    events: Vec<Event>,
}

/// Returns events, the latest first.
#[utoipa::path(get, path = "/api/v1/events", params(EventQuery),
    responses((status = 200, body = EventsDocument)))]
pub(crate) async fn get_events(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
    Query(query): Query<EventQuery>,
) -> Result<Json<EventsDocument>, Failure> {
    let severity = query.severity.filter(|text| !text.is_empty()).map(|text| named(&text));
    let severity = severity.transpose().map_err(|_| Failure::bad("no such severity"))?;
    let filter = EventFilter {
        kind: query.kind.filter(|text| !text.is_empty()),
        subject: query.subject.filter(|text| !text.is_empty()),
        severity,
        open: query.open,
        from_ms: None,
        before: query.before.filter(|text| !text.is_empty()),
    };
    let limit = query.limit.unwrap_or(100).clamp(1, 1000);
    let events = hub.store.read(move |sql| events(sql, &filter, limit)).await?;
    Ok(Json(EventsDocument { schema: "longhaul.fleet-events/1", events }))
}

/// Acknowledges an event.
#[utoipa::path(post, path = "/api/v1/events/{id}/ack", params(("id" = String, Path)),
    responses((status = 204), (status = 403), (status = 404)))]
pub(crate) async fn post_acknowledge(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    caller.at_least(UserRole::Operator)?;
    let now = now_ms();
    let known = hub.store.write(move |sql| acknowledge(sql, &id, &caller.name, now)).await?;
    let _ = hub.live.send(PageMessage::Changed);
    if known { Ok(StatusCode::NO_CONTENT) } else { Err(Failure::not_found("event")) }
}

/// Streams new events (`event`), and notices that runs or cells changed (`changed`).
#[utoipa::path(get, path = "/api/v1/events/stream",
    responses((status = 200, content_type = "text/event-stream")))]
pub(crate) async fn get_stream(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
) -> Sse<impl Stream<Item = Result<Message, Infallible>>> {
    let stream = stream::unfold(hub.live.subscribe(), async |mut live| {
        let message = match live.recv().await {
            Ok(PageMessage::Event(event)) => {
                let text = serde_json::to_string(&*event).unwrap_or_default();
                Message::default().event("event").id(event.id.clone()).data(text)
            }
            // A slow reader missed messages; it reads the page again.
            Ok(PageMessage::Changed) | Err(RecvError::Lagged(_)) => {
                Message::default().event("changed").data("{}")
            }
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(message), live))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}
