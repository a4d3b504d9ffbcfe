//! Failed requests: their status, and one sentence as JSON.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::store::StoreError;

/// The body of a failed request of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ErrorDocument {
    /// `longhaul.fleet-error/1`.
    pub(crate) schema: &'static str,
    /// The reason as a word.
    pub(crate) code: &'static str,
    /// The reason as a sentence.
    pub(crate) message: String,
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The failure of the database, for the log only.
    cause: Option<Arc<StoreError>>,
}

/// The sentence of a failed request, from which a page is made.
#[derive(Debug, Clone)]
pub(super) struct Sentence(pub(super) String);

/// The cause of a failed request, which the server logs and does not send.
#[derive(Debug, Clone)]
pub(super) struct Cause(pub(super) Arc<StoreError>);

/// The sentence about a refused request that an attacker may have sent, which the server logs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal(pub(super) &'static str);

/// Returns the sentence for the log about a failure with a code; `None` if it happens to everybody.
fn refusal(code: &str) -> Option<&'static str> {
    match code {
        "forbidden" => Some("the role of the user does not permit it"),
        "csrf" => Some("it does not have the token of the session"),
        "too_many_logins" => Some("too many logins failed"),
        _ => None,
    }
}

impl Failure {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Failure { status, code, message: message.into(), cause: None }
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Failure::new(StatusCode::NOT_FOUND, "not_found", format!("the hub has no such {what}"))
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn login() -> Self {
        let message = "log in, or send a valid token in the authorization header";
        Failure::new(StatusCode::UNAUTHORIZED, "login_required", message)
    }

    pub(crate) fn forbidden() -> Self {
        Failure::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "the role of this user does not permit this",
        )
    }

    /// Returns the refusal of a request for which a limited resource is exhausted.
    pub(crate) fn busy(message: &str) -> Self {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    pub(crate) fn csrf() -> Self {
        let message = "the request does not have the session's token; reload the page";
        Failure::new(StatusCode::FORBIDDEN, "csrf", message)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        // The text can have parts of a statement and names of hosts, and anyone can send the
        // request.
        let message = if error.is_full_disk() {
            "the disk of the hub is full; free space on the file system of its database"
        } else {
            "the database of the hub failed; the log of the hub has the cause"
        };
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "database", message);
        Failure { cause: Some(Arc::new(error)), ..failure }
    }
}

impl From<crate::secret::NoRandom> for Failure {
    fn from(error: crate::secret::NoRandom) -> Self {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "no_random", error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let schema = "longhaul.fleet-error/1";
        let sentence = Sentence(self.message.clone());
        let body = ErrorDocument { schema, code: self.code, message: self.message };
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(sentence);
        if let Some(reason) = refusal(self.code) {
            response.extensions_mut().insert(Refusal(reason));
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(Cause(cause));
        }
        response
    }
}
