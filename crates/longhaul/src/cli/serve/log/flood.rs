//! Rate limits for log lines that clients without an authorized key cause.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::serve::ServeEvent;

/// The time between two records of the number of suppressed lines.
const SUMMARY: Duration = Duration::from_secs(10);

/// The kinds of events, each with a separate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A connection whose client is not known.
    Unknown,
    /// A client that was refused.
    Refused,
    /// A session of a client without an authorized key.
    Anonymous,
    /// Everything else; not limited.
    Authorized,
}

/// The rate limits of all kinds.
#[derive(Debug, Default)]
pub(super) struct Flood(Mutex<[Bucket; 3]>);

/// A token bucket.
#[derive(Debug, Default)]
struct Bucket {
    /// Lines used of the burst, as of `at`.
    used: f64,
    at: Option<Instant>,
    suppressed: u64,
    /// The start of the present period of suppressed lines.
    summed: Option<Instant>,
}

impl Kind {
    pub(super) fn of(event: &ServeEvent) -> Self {
        match event {
            ServeEvent::Dropped { .. }
            | ServeEvent::NoHandshake { .. }
            | ServeEvent::KeyDenied { .. } => Kind::Unknown,
            ServeEvent::Ended(report) if report.client.authorized => Kind::Authorized,
            ServeEvent::Ended(report) if !report.began => Kind::Refused,
            ServeEvent::Began(start) if start.client.authorized => Kind::Authorized,
            ServeEvent::Guest(report) if !report.began => Kind::Refused,
            ServeEvent::Began(_) | ServeEvent::Ended(_) | ServeEvent::Guest(_) => Kind::Anonymous,
            ServeEvent::KeysRead { .. } | ServeEvent::KeysKept { .. } => Kind::Authorized,
        }
    }

    /// Returns the burst and the lines per second after it. All three kinds together write at most
    /// 300 MB per day.
    fn limit(self) -> Option<(f64, f64)> {
        match self {
            Kind::Unknown | Kind::Refused => Some((50.0, 1.0)),
            Kind::Anonymous => Some((1000.0, 10.0)),
            Kind::Authorized => None,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Kind::Unknown => "connections of unknown clients",
            Kind::Refused => "refused clients",
            Kind::Anonymous => "sessions without an authorized key",
            Kind::Authorized => "sessions",
        }
    }
}

impl Flood {
    /// Returns whether a line of `kind` may be written at `now`, and counts it if not.
    pub(super) fn admit(&self, kind: Kind, now: Instant) -> bool {
        let Some((burst, rate)) = kind.limit() else { return true };
        let bucket = &mut self.lock()[kind as usize];
        let gone = bucket.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        bucket.used = (bucket.used - gone.as_secs_f64() * rate).max(0.0);
        bucket.at = Some(now);
        if bucket.used + 1.0 > burst {
            bucket.suppressed += 1;
            bucket.summed.get_or_insert(now);
            return false;
        }
        bucket.used += 1.0;
        true
    }

    /// Returns the number of suppressed lines per kind since the last call: of kinds whose period
    /// has ended, or of `all` kinds.
    pub(super) fn suppressed(&self, now: Instant, all: bool) -> Vec<(&'static str, u64)> {
        let mut found = Vec::new();
        for kind in [Kind::Unknown, Kind::Refused, Kind::Anonymous] {
            let bucket = &mut self.lock()[kind as usize];
            let due = bucket.summed.is_some_and(|at| now.saturating_duration_since(at) >= SUMMARY);
            if bucket.suppressed > 0 && (due || all) {
                found.push((kind.words(), std::mem::take(&mut bucket.suppressed)));
                bucket.summed = None;
            }
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, [Bucket; 3]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_and_other_kinds_are_admitted() {
        let (flood, start) = (Flood::default(), Instant::now());
        let admitted = (0..10_000).filter(|_| flood.admit(Kind::Unknown, start)).count();
        assert_eq!(admitted, 50);
        assert!(flood.admit(Kind::Authorized, start) && flood.admit(Kind::Refused, start));
        assert_eq!(flood.suppressed(start, false), []);
        let later = start + SUMMARY;
        assert_eq!(flood.suppressed(later, false), [("connections of unknown clients", 9950)]);
        assert_eq!(flood.suppressed(later, true), []);
        let again = (0..100).filter(|_| flood.admit(Kind::Unknown, later)).count();
        assert_eq!(again, 10, "a line per second");
        assert_eq!(flood.suppressed(later, true), [("connections of unknown clients", 90)]);
    }
}
