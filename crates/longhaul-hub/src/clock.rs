//! The clock of the hub.

use std::time::{SystemTime, UNIX_EPOCH};

/// A second in milliseconds.
pub(crate) const SECOND: i64 = 1000;
/// A minute in milliseconds.
pub(crate) const MINUTE: i64 = 60 * SECOND;
/// An hour in milliseconds.
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// A day in milliseconds.
pub(crate) const DAY: i64 = 24 * HOUR;

/// Returns the present time in ms since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
