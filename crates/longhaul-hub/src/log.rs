//! The log of the hub, for failures that the database cannot store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::now_ms;
use crate::store::StoreError;

/// The minimum time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// Prints lines, at most one per kind and ten seconds.
#[derive(Debug)]
pub(crate) struct Log {
    print: fn(&str),
    last: Mutex<HashMap<&'static str, Instant>>,
    /// The time in ms since 1970 from which on the disk of the database is full; 0 while it has space.
    full_since_ms: AtomicI64,
}

impl Log {
    /// Creates a log that prints by `print`, which escapes the text.
    pub(crate) fn new(print: fn(&str)) -> Self {
        Log { print, last: Mutex::default(), full_since_ms: AtomicI64::new(0) }
    }

    /// Prints a line of a kind, unless one was printed shortly before.
    pub(crate) fn note(&self, kind: &'static str, text: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(kind).is_none_or(|at| at.elapsed() >= PAUSE) {
            last.insert(kind, Instant::now());
            (self.print)(text);
        }
    }

    /// Prints a failure of the database, and notes the time of a full disk.
    pub(crate) fn store_failure(&self, error: &StoreError) {
        if error.is_full_disk() {
            // The first failure counts.
            let (has_space, since) = (0, now_ms());
            let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.full_since_ms.compare_exchange(has_space, since, done, failed);
        }
        let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        self.note("database", &format!("the database failed: {error}{remedy}"));
    }

    /// Returns the time from which on the disk of the database is full, for the event about it. The database
    /// cannot store the event meanwhile.
    pub(crate) fn full_since_ms(&self) -> Option<i64> {
        Some(self.full_since_ms.load(Ordering::Acquire)).filter(|since| *since != 0)
    }

    /// Notes that the disk has space and that the event is stored.
    pub(crate) fn clear_full_disk(&self) {
        self.full_since_ms.store(0, Ordering::Release);
    }
}
