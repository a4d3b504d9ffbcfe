//! The limit on the time in which a request sends its body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Frame;
use tokio::time::Sleep;

/// The limit. Anybody can send the body of a login, and holds a connection with it.
const BODY: Duration = Duration::from_secs(20);

/// Refuses the request if its body does not end in time.
pub(super) async fn limit_body(request: Request, next: Next) -> Response {
    next.run(request.map(|body| Body::new(TimedBody::new(body, BODY)))).await
}

/// A body that fails after a time.
struct TimedBody {
    body: Body,
    end: Pin<Box<Sleep>>,
}

impl TimedBody {
    fn new(body: Body, limit: Duration) -> Self {
        TimedBody { body, end: Box::pin(tokio::time::sleep(limit)) }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.end.as_mut().poll(context).is_ready() {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_end_fails() {
        // A byte every 5 ms, without end.
        let drip = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
        });
        let body = Body::new(TimedBody::new(Body::from_stream(drip), Duration::from_millis(100)));
        assert!(axum::body::to_bytes(body, 1 << 20).await.is_err());
        let body = Body::new(TimedBody::new(Body::from("login"), Duration::from_secs(60)));
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(axum::body::to_bytes(body, 100).await.unwrap(), "login");
    }
}
