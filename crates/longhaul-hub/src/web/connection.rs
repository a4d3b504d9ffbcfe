//! The facts about a connection that its requests need: the client, and the answer that it takes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time in which a reader takes an answer. A large export has some hundred megabytes.
const TAKE: Duration = Duration::from_secs(900);

/// The address of the client of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// The start of the answer that a connection takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Taking(Arc<Mutex<Option<Instant>>>);

impl Taking {
    pub(super) fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Returns whether the reader takes the answer for too long.
    pub(super) fn is_late(&self) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() > TAKE)
    }
}
