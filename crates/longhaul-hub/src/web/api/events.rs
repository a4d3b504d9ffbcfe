//! Events: list, acknowledgement, and the stream of new ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use longhaul_fleet::api::UserRole;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::now_ms;
use crate::guard::Place;
use crate::hub::{Hub, PageMessage};
use crate::records::events::{Event, EventFilter, acknowledge, events};
use crate::records::runs::named;
use crate::web::access::{ApiCaller, caller};
use crate::web::connection::Client;
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

/// The longest time for which a stream lasts after the end of its session or token.
const STILL_VALID: Duration = Duration::from_secs(10);

/// Streams new events (`event`), and notices that runs or cells changed (`changed`). The stream ends soon
/// after its session or token.
#[utoipa::path(get, path = "/api/v1/events/stream",
    responses((status = 200, content_type = "text/event-stream"), (status = 503)))]
pub(crate) async fn get_stream(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    _: ApiCaller,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Message, Infallible>>>, Failure> {
    let place = hub.streams.take(client.0.ip(), Duration::ZERO).await;
    let place = place.ok_or_else(|| Failure::busy("too many pages receive live updates"))?;
    let live = hub.live.subscribe();
    let open = OpenStream { hub, live, headers, checked: Instant::now(), _place: place };
    let stream = stream::unfold(open, async |mut open| {
        let message = open.next().await?;
        Some((Ok(message), open))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

/// A page that receives live updates.
struct OpenStream {
    hub: Arc<Hub>,
    live: Receiver<PageMessage>,
    /// The headers of the request, with the session or token.
    headers: HeaderMap,
    checked: Instant,
    _place: Place,
}

impl OpenStream {
    /// Returns the next message; `None` if the reader may not read any longer, or the hub ends.
    async fn next(&mut self) -> Option<Message> {
        loop {
            let left = STILL_VALID.saturating_sub(self.checked.elapsed());
            if left.is_zero() {
                // A failure of the database ends the stream, too: the browser opens another one.
                caller(&self.hub, &self.headers).await.ok().flatten()?;
                self.checked = Instant::now();
                continue;
            }
            let Ok(received) = tokio::time::timeout(left, self.live.recv()).await else { continue };
            return match received {
                Ok(PageMessage::Event(event)) => {
                    let text = serde_json::to_string(&*event).unwrap_or_default();
                    Some(Message::default().event("event").id(event.id.clone()).data(text))
                }
                // A slow reader missed messages; it reads the page again.
                Ok(PageMessage::Changed) | Err(RecvError::Lagged(_)) => {
                    Some(Message::default().event("changed").data("{}"))
                }
                Err(RecvError::Closed) => None,
            };
        }
    }
}
