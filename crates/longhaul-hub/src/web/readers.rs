//! The places of readers: an answer stays in memory until its reader has taken it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};

use super::connection::{Client, Taking};
use super::failure::Failure;
use crate::guard::Place;
use crate::hub::Hub;

/// The longest wait for a place.
const WAIT: Duration = Duration::from_secs(20);

/// Answers a request when there is a place for its answer, which keeps the place until it is taken.
pub(super) async fn with_place(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    Extension(taking): Extension<Taking>,
    request: Request,
    next: Next,
) -> Response {
    if is_small(&request) {
        return next.run(request).await;
    }
    let Some(place) = hub.readers.take(client.0.ip(), WAIT).await else {
        return Failure::busy("too many pages are being read; try again in a minute")
            .into_response();
    };
    let answer = next.run(request).await;
    taking.set(Some(Instant::now()));
    let ended = TakenOnDrop(taking);
    holding(answer, (place, ended))
}

/// Returns whether the answer needs no place: it is small, and anybody may ask for it. A place must not
/// wait for the body of a request, which anybody can send slowly. The hub makes the whole answer to HEAD, as to GET.
fn is_small(request: &Request) -> bool {
    let path = request.uri().path();
    ![Method::GET, Method::HEAD].contains(request.method())
        || path.starts_with("/assets/")
        || ["/login", "/api/v1/openapi.json"].contains(&path)
}

/// Notes the end of the answer of a connection.
struct TakenOnDrop(Taking);

impl Drop for TakenOnDrop {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Returns an answer that keeps a value until its reader has taken the bytes.
pub(super) fn holding<T: Send + Unpin + 'static>(answer: Response, held: T) -> Response {
    answer.map(|body| Body::new(Held { body, _held: held }))
}

struct Held<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    /// Returns false: the connection drops a body at its end, before the reader has the last bytes.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A place of a reader, for answers with a limit of their own.
pub(super) fn keeping(answer: Response, place: Option<Place>) -> Response {
    match place {
        Some(place) => holding(answer, place),
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::guard::Places;

    #[test]
    fn answers_that_are_made_from_the_store_need_a_place() {
        let small = |method: Method, path: &str| {
            is_small(&Request::builder().method(method).uri(path).body(Body::empty()).unwrap())
        };
        for method in [Method::GET, Method::HEAD] {
            assert!(!small(method.clone(), "/runs") && !small(method.clone(), "/metrics"));
            assert!(small(method.clone(), "/login") && small(method, "/assets/style.css"));
        }
        assert!(small(Method::POST, "/api/v1/mesh/plan"));
    }

    #[tokio::test]
    async fn an_answer_keeps_its_place_and_its_length() {
        let places = Places::new(1, 1);
        let take = || places.take(IpAddr::V4(Ipv4Addr::LOCALHOST), Duration::ZERO);
        let answer = keeping("runs".into_response(), take().await);
        assert!(take().await.is_none());
        assert_eq!(answer.body().size_hint().exact(), Some(4));
        let body = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
        assert_eq!(&body[..], b"runs");
        assert!(take().await.is_some());
    }
}
