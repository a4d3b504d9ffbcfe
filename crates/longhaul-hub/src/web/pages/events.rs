//! The list of events with their acknowledgement, and the search.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use longhaul_fleet::api::UserRole;
use maud::{Markup, html};
use serde::Deserialize;

use super::PageViewer;
use super::layout::{badge, failure_page, page, segment, time};
use crate::clock::now_ms;
use crate::hub::{Hub, PageMessage};
use crate::records::events::{Event, EventFilter, acknowledge, events};
use crate::records::runs::run_of;
use crate::store::Sql;
use crate::web::access::Caller;
use crate::web::api::hosts_document;
use crate::web::failure::Failure;
use crate::words;

/// The choice of events.
#[derive(Debug, Default, Deserialize)]
pub(super) struct EventQuery {
    #[serde(default)]
    all: Option<String>,
    subject: Option<String>,
    before: Option<String>,
}

/// `GET /events`.
pub(super) async fn get_events(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Query(query): Query<EventQuery>,
) -> Result<Response, Failure> {
    let all = query.all.is_some();
    let filter = EventFilter {
        open: !all,
        subject: query.subject.clone(),
        before: query.before,
        ..EventFilter::default()
    };
    let subject = query.subject.as_deref().map(|text| format!("&subject={}", segment(text)));
    let kept = format!("{}{}", if all { "&all=1" } else { "" }, subject.unwrap_or_default());
    let found = hub.store.read(move |sql| events(sql, &filter, 100)).await?;
    let main = html! {
        h1 { "Events" }
        nav.tabs aria-label="Events" {
            a href="/events" aria-current=[(!all).then_some("true")] { "To acknowledge" }
            a href="/events?all=1" aria-current=[all.then_some("true")] { "All" }
        }
        div.scroll { table.small {
            thead { tr { @for name in ["Time", "Severity", "Subject", "Event", "Acknowledged"] { th scope="col" { (name) } } } }
            tbody {
                @if found.is_empty() { tr { td colspan="5" { "No events." } } }
                @for event in &found { (row(event, &caller)) }
            }
        } }
        @if let (100, Some(last)) = (found.len(), found.last()) {
            p { a href=(format!("/events?before={}{kept}", segment(&last.id))) { "Earlier events" } }
        }
    };
    Ok(page("Events", Some(&caller), true, &main))
}

fn row(event: &Event, caller: &Caller) -> Markup {
    let (word, glyph, class) = words::severity(event.severity);
    let may = caller.at_least(UserRole::Operator).is_ok();
    html! { tr {
        td { (time(event.at_ms)) }
        td { (badge(glyph, word, class)) }
        td { (subject(&event.subject)) }
        td.wrap { (event.message) @if event.repeats > 1 { " (" (event.repeats) " times)" } }
        td {
            @match (&event.acknowledged_by, event.acknowledged_ms) {
                (Some(person), Some(at)) => { (person) ", " (time(at)) }
                _ => {
                    @if let (true, Some(csrf)) = (may, &caller.csrf) {
                        form method="post" action=(format!("/events/{}/ack", segment(&event.id))) {
                            input type="hidden" name="csrf" value=(csrf);
                            button aria-label=(format!("Acknowledge: {}", event.message)) { "Acknowledge" }
                        }
                    }
                }
            }
        }
    } }
}

/// Returns the subject with links to its pages.
fn subject(text: &str) -> Markup {
    match text.split_once(" > ") {
        Some((source, destination)) => html! {
            a href=(format!("/pairs/{}/{}", segment(source), segment(destination))) { (text) }
        },
        None => html! { (text) },
    }
}

/// The fields of an acknowledgement.
#[derive(Deserialize)]
pub(super) struct AckForm {
    csrf: String,
}

/// `POST /events/ID/ack`.
pub(super) async fn post_acknowledge(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Path(id): Path<String>,
    Form(form): Form<AckForm>,
) -> Result<Response, Failure> {
    caller.sent_form(&form.csrf)?;
    caller.at_least(UserRole::Operator)?;
    let (name, now) = (caller.name.clone(), now_ms());
    let known = hub.store.write(move |sql| acknowledge(sql, &id, &name, now)).await?;
    let _ = hub.live.send(PageMessage::Changed);
    Ok(if known {
        Redirect::to("/events").into_response()
    } else {
        failure_page(StatusCode::NOT_FOUND, Some(&caller), "the hub has no such event")
    })
}

/// The text of a search.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
}

/// `GET /search`.
pub(super) async fn get_search(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Query(query): Query<SearchQuery>,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let text: String = query.q.trim().chars().take(128).collect();
    let (wanted, now, mesh) = (text.clone(), now_ms(), applied.clone());
    let read = move |sql: &mut dyn Sql| {
        let hosts = hosts_document(sql, mesh.as_deref().map(|mesh| &mesh.mesh), now)?.hosts;
        Ok((hosts, run_of(sql, &wanted)?))
    };
    let (hosts, run) = hub.store.read(read).await?;
    let has = |name: &str| !text.is_empty() && name.to_lowercase().contains(&text.to_lowercase());
    let tests = applied.as_deref().map(|applied| applied.mesh.tests.as_slice()).unwrap_or_default();
    let main = html! {
        h1 { "Search for " q { (text) } }
        ul {
            @if let Some(run) = &run { li { "Run " a href=(format!("/runs/{}", segment(&run.run))) { (run.run) } } }
            @for host in hosts.iter().filter(|host| has(&host.name)) {
                li { "Host " a href=(format!("/hosts/{}", segment(&host.name))) { (host.name) } }
            }
            @for test in tests.iter().filter(|test| has(&test.name)) {
                li { "Test " a href=(format!("/runs?test={}", segment(&test.name))) { (test.name) } }
            }
        }
    };
    Ok(page("Search", Some(&caller), false, &main))
}
