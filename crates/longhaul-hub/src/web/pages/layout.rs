//! The frame of a page: head, navigation, range, footer, and the security headers.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_core::text::escape_lines;
use maud::{DOCTYPE, Markup, html};

use crate::clock::now_ms;
use crate::web::access::Caller;
use crate::web::range::Range;
use crate::words;

/// The policy of pages: only files of this hub, no inline script or style, no frames.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns a page. `live` pages reload when something changes.
pub(super) fn page(title: &str, caller: Option<&Caller>, live: bool, main: &Markup) -> Response {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " \u{2013} longhaul hub" }
                link rel="stylesheet" href="/assets/style.css";
                link rel="icon" href="data:,";
                script src="/assets/live.js" defer {}
            }
            body data-live[live] {
                a.skip href="#main" { "Skip to the content" }
                (top(caller))
                main #main { (main) }
                footer {
                    p { "Updated " (time(now_ms())) ". longhaul " (env!("CARGO_PKG_VERSION")) " \u{00B7} "
                        a href="/api/v1/openapi.json" { "API" } }
                    p #announce role="status" aria-live="polite" {}
                }
            }
        }
    };
    // Maud escapes markup, but not characters that hide or reorder text.
    let text = escape_lines(&document.into_string()).into_owned();
    let fixed = HeaderValue::from_static;
    let headers = [
        (header::CONTENT_TYPE, fixed("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (header::CACHE_CONTROL, fixed("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::REFERRER_POLICY, fixed("same-origin")),
        (HeaderName::from_static("cross-origin-opener-policy"), fixed("same-origin")),
    ];
    (headers, text).into_response()
}

/// Returns the top of a page: the links to the pages, the search, and the user.
fn top(caller: Option<&Caller>) -> Markup {
    let name = caller.map(|caller| caller.name.as_str()).filter(|name| !name.is_empty());
    html! {
        header.top {
            a.brand href="/" { "longhaul hub" }
            @if caller.is_some() {
                nav aria-label="Pages" {
                    @for (path, text) in [("/", "Grid"), ("/hosts", "Hosts"), ("/runs", "Runs"),
                        ("/schedule", "Schedule"), ("/events", "Events")] {
                        a href=(path) { (text) }
                    }
                }
                form.search role="search" action="/search" {
                    label.hidden for="q" { "Search for hosts, tests and runs" }
                    input #q type="search" name="q" placeholder="Host, test or run";
                }
            }
            @match (name, caller.and_then(|caller| caller.csrf.as_deref())) {
                (Some(name), Some(csrf)) => {
                    form.session method="post" action="/logout" {
                        input type="hidden" name="csrf" value=(csrf);
                        span.soft { (name) } " "
                        button { "Log out" }
                    }
                }
                (Some(name), None) => { span.session.soft { (name) } }
                (None, _) => { a.session href="/login" { "Log in" } }
            }
        }
    }
}

/// Returns a page that states a failure.
pub(super) fn failure_page(
    status: StatusCode,
    caller: Option<&Caller>,
    sentence: &str,
) -> Response {
    let main = html! {
        h1 { (status.canonical_reason().unwrap_or("Failed")) }
        p { (sentence) "." }
        p { a href="/" { "To the grid" } }
    };
    let mut response = page("Failed", caller, false, &main);
    *response.status_mut() = status;
    response
}

/// Returns a time in UTC; the script adds the local time as its title.
pub(super) fn time(ms: i64) -> Markup {
    html! { time datetime=(words::rfc3339(ms)) { (words::utc(ms)) } }
}

/// Returns the links and the form that choose the range of a page at `path`. The links work without a
/// pointer and without script, and keep the other fields of the page's query.
pub(super) fn range_form(
    path: &str,
    range: &Range,
    window_ms: (i64, i64),
    others: &[(&str, String)],
) -> Markup {
    let link = |times: &str| {
        let others = query(others);
        let separator = if others.is_empty() { "" } else { "&" };
        format!("{path}?{times}{separator}{others}")
    };
    let present = range.from.as_deref().unwrap_or("now-24h");
    let choices = [
        ("now-1h", "1 h"),
        ("now-24h", "24 h"),
        ("now-7d", "7 d"),
        ("now-30d", "30 d"),
        ("now-1y", "1 y"),
    ];
    html! {
        form.range action=(path) aria-label="Range of times" {
            @for (from, text) in choices {
                @let here = present == from && range.to.as_deref().unwrap_or("now") == "now";
                a href=(link(&format!("from={from}&to=now"))) aria-current=[here.then_some("true")] { (text) }
            }
            @for (word, query) in range.steps(window_ms) { a href=(link(&query)) { (word) } }
            label { "From " input name="from" value=(present) size="22"; }
            label { "to " input name="to" value=(range.to.as_deref().unwrap_or("now")) size="22"; }
            @for (name, value) in others { input type="hidden" name=(name) value=(value); }
            button { "Show" }
        }
    }
}

/// Returns the query of a URL with these fields.
pub(super) fn query(fields: &[(&str, String)]) -> String {
    let each = fields.iter().map(|(name, value)| format!("{name}={}", segment(value)));
    each.collect::<Vec<_>>().join("&")
}

/// Returns a state as its glyph and word.
pub(super) fn badge(glyph: &str, word: &str, class: &str) -> Markup {
    html! { span class=(format!("badge {class}")) { span aria-hidden="true" { (glyph) } " " (word) } }
}

/// Returns a text for a segment of a URL.
pub(super) fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let encode =
        |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(segment("a/../b?c#d\"<"), "a%2F..%2Fb%3Fc%23d%22%3C");
        assert_eq!(segment("par-1.example"), "par-1.example");
    }
}
