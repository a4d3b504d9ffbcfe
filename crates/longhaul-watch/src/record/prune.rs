//! Removes the old rows of a record.

use rusqlite::{Transaction, params};

use crate::consolidate::{KEEP_INTERVALS_SECONDS, LEVELS};

/// The maximum number of rows of each table that one removal deletes, so that it stays short.
const PRUNED: i64 = 2000;
/// The time for which the record must have rows before old ones are removed, and the time in which a
/// row shows that, both in seconds.
const STEADY_SECONDS: i64 = 3 * 86_400;
const SHOWN_SECONDS: i64 = 86_400;

/// Removes some of the rows that are older than their retention at `now` (Unix seconds).
///
/// A clock that is ahead by years makes all rows look old. So nothing is removed unless the record has
/// a row of three to four days ago by the same clock.
pub(super) fn prune(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<()> {
    let until = now.saturating_sub(STEADY_SECONDS);
    let steady: bool = transaction
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM interface AS f JOIN bin AS b ON b.interface = f.id \
             WHERE b.step_seconds = ?1 AND b.start_seconds >= ?2 AND b.start_seconds < ?3)",
        )?
        .query_row([LEVELS[0].step_seconds, until.saturating_sub(SHOWN_SECONDS), until], |row| {
            row.get(0)
        })?;
    if !steady {
        return Ok(());
    }
    let oldest_ms = now.saturating_sub(KEEP_INTERVALS_SECONDS).saturating_mul(1000);
    transaction
        .prepare_cached(
            "DELETE FROM interval WHERE (interface, end_ms) IN (SELECT i.interface, i.end_ms FROM \
             interface AS f JOIN interval AS i ON i.interface = f.id WHERE i.end_ms < ?1 LIMIT ?2)",
        )?
        .execute([oldest_ms, PRUNED])?;
    for level in LEVELS {
        let oldest = now.saturating_sub(level.keep_seconds);
        transaction
            .prepare_cached(
                "DELETE FROM bin WHERE (interface, step_seconds, start_seconds) IN (SELECT b.interface, \
                 b.step_seconds, b.start_seconds FROM interface AS f JOIN bin AS b ON b.interface = f.id \
                 WHERE b.step_seconds = ?1 AND b.start_seconds < ?2 LIMIT ?3)",
            )?
            .execute(params![level.step_seconds, oldest, PRUNED])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_sys::traffic::LinkCounters;

    use super::super::{Record, Recorder};
    use crate::series::TrafficInterval;

    const START_MS: i64 = 1_800_000_000_000;
    const DAY: i64 = 86_400;

    fn push(recorder: &mut Recorder, second: i64) {
        let counts = LinkCounters { in_bytes: 10, ..LinkCounters::default() };
        let interval = TrafficInterval { end_ms: START_MS + second * 1000, span_ms: 1000, counts };
        recorder.push_interval("eth0", None, interval);
        recorder.pruned = None;
        recorder.commit().unwrap();
    }

    /// Returns the numbers of the intervals, and of the bins of 5 minutes and 2 hours.
    fn counts(dir: &Path) -> [usize; 3] {
        let record = Record::open(dir).unwrap();
        let interface = &record.interfaces().unwrap()[0];
        let bins = |step| record.bins(interface, step, (0, i64::MAX)).unwrap().len();
        [record.intervals(interface, (0, i64::MAX)).unwrap().len(), bins(300), bins(7200)]
    }

    #[test]
    fn old_rows_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::open(dir.path()).unwrap();
        push(&mut recorder, 0);
        push(&mut recorder, 51 * DAY - 7 * DAY / 2);
        push(&mut recorder, 51 * DAY);
        assert_eq!(counts(dir.path()), [1, 2, 3]);
    }

    #[test]
    fn a_clock_that_is_ahead_removes_nothing_for_days() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::open(dir.path()).unwrap();
        push(&mut recorder, 0);
        let year = 800 * DAY;
        // Another process continues, which does not know that the clock stepped.
        drop(recorder);
        let mut recorder = Recorder::open(dir.path()).unwrap();
        push(&mut recorder, year);
        push(&mut recorder, year + 2 * DAY);
        assert_eq!(counts(dir.path()), [3, 3, 3]);
        // The clock is right again.
        push(&mut recorder, 1);
        assert_eq!(counts(dir.path())[0], 4);
        // It shows the later time for days.
        push(&mut recorder, year + 3 * DAY + 600);
        assert_eq!(counts(dir.path()), [2, 3, 3]);
    }
}
