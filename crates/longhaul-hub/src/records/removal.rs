//! The trust in the clock before old data are removed by it.
//!
//! A host can start with a wrong clock: an empty battery, a mistyped date. If the clock shows a year too
//! much, everything looks older than the hub keeps it. So the hub removes data by a clock that is ahead
//! of the last removal only after the clock has run steadily for some days.

use super::numbers;
use crate::clock::{DAY, HOUR};
use crate::store::{Sql, StoreError};

/// The time in ms after the last removal up to which the clock is believed at once.
const BELIEVED_MS: i64 = DAY;
/// The time in ms for which a clock that is ahead must run steadily.
pub const DOUBT_MS: i64 = 3 * DAY;
/// The longest time between two readings of a steady clock, in ms.
const PAUSE_MS: i64 = HOUR;

/// The trust in the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalClock {
    /// Data may be removed.
    Believed,
    /// The clock can be wrong, so no data may be removed.
    Ahead {
        /// The time since the last removal by this clock, in ms.
        by_ms: i64,
        /// True at the first reading.
        is_new: bool,
    },
}

/// Reads a clock that shows `now`.
///
/// # Errors
/// The database is unavailable.
pub fn removal_clock(sql: &mut dyn Sql, now: i64) -> Result<RemovalClock, StoreError> {
    let [last, read, doubted] =
        ["last", "read", "doubted"].map(|part| format!("removal/{part}_ms"));
    let before = numbers::get(sql, &last)?.unwrap_or(now);
    let by_ms = now.saturating_sub(before);
    if by_ms > BELIEVED_MS {
        let steady = numbers::get(sql, &read)?
            .is_some_and(|read| (0..=PAUSE_MS).contains(&now.saturating_sub(read)));
        let since = numbers::get(sql, &doubted)?.filter(|_| steady);
        numbers::set(sql, &read, now)?;
        numbers::set(sql, &doubted, since.unwrap_or(now))?;
        if since.is_none_or(|since| now.saturating_sub(since) < DOUBT_MS) {
            return Ok(RemovalClock::Ahead { by_ms, is_new: since.is_none() });
        }
    }
    // A later step ahead begins another doubt.
    numbers::set(sql, &read, i64::MIN)?;
    numbers::set(sql, &last, now)?;
    Ok(RemovalClock::Believed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn a_clock_that_is_ahead_is_believed_after_days() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        let start = 1_800_000_000_000;
        let work = move |sql: &mut dyn Sql| {
            let mut read = |now| removal_clock(sql, now);
            let is_ahead =
                |clock: RemovalClock| matches!(clock, RemovalClock::Ahead { is_new: true, .. });
            assert_eq!(read(start)?, RemovalClock::Believed, "a new database");
            assert_eq!(read(start + DAY)?, RemovalClock::Believed, "a day without a hub");
            let decade = start + 3660 * DAY;
            assert!(is_ahead(read(decade)?));
            assert!(!is_ahead(read(decade + HOUR)?), "one event");
            assert_eq!(read(start + DAY + HOUR)?, RemovalClock::Believed, "corrected");
            assert!(is_ahead(read(decade + 2 * HOUR)?), "ahead again");
            // The hub was away for a month, and runs for days.
            let month = start + 31 * DAY;
            assert!(is_ahead(read(month)?));
            for hours in 1..DOUBT_MS / HOUR {
                assert_ne!(read(month + hours * HOUR)?, RemovalClock::Believed, "{hours} h");
            }
            assert_eq!(read(month + DOUBT_MS)?, RemovalClock::Believed);
            // An empty battery: 1970, and the time of the network.
            assert_eq!(read(DAY)?, RemovalClock::Believed);
            assert!(is_ahead(read(month + 4 * DAY)?));
            Ok(())
        };
        store.write(work).await.unwrap();
    }
}
