//! The log of the hub, for failures that the database cannot keep.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::StoreError;

/// The minimum time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// Prints lines, at most one per kind and ten seconds.
#[derive(Debug)]
pub(crate) struct Log {
    print: fn(&str),
    last: Mutex<HashMap<&'static str, Instant>>,
}

impl Log {
    /// Creates a log that prints by `print`, which escapes the text.
    pub(crate) fn new(print: fn(&str)) -> Self {
        Log { print, last: Mutex::default() }
    }

    /// Prints a line of a kind, unless one was printed shortly before.
    pub(crate) fn note(&self, kind: &'static str, text: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(kind).is_none_or(|at| at.elapsed() >= PAUSE) {
            last.insert(kind, Instant::now());
            (self.print)(text);
        }
    }

    /// Prints a failure of the database.
    pub(crate) fn store_failure(&self, error: &StoreError) {
        let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        self.note("database", &format!("the database failed: {error}{remedy}"));
    }
}
