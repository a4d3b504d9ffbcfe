//! Rows of bins: reading, writing, and the layout of their numbers.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::consolidate::{SeriesBin, Spread};
use crate::series::Channel;

/// The size of `spreads`: three numbers of eight bytes per channel.
const BYTES: usize = Channel::COUNT * 3 * 8;

const COLUMNS: &str = "start_seconds, covered_ms, intervals, spreads";

/// Returns the bin of an interface that starts at `start`.
pub(super) fn bin_at(
    connection: &Connection,
    (interface, step): (i64, i64),
    start: i64,
) -> rusqlite::Result<Option<SeriesBin>> {
    let query = format!(
        "SELECT {COLUMNS} FROM bin WHERE interface = ?1 AND step_seconds = ?2 AND start_seconds = ?3"
    );
    let mut query = connection.prepare_cached(&query)?;
    query.query_row(params![interface, step, start], bin_of).optional()
}

/// Returns the bins of an interface that start from `from` up to and without `to`, in order.
pub(super) fn bins_between(
    connection: &Connection,
    (interface, step): (i64, i64),
    (from, to): (i64, i64),
) -> rusqlite::Result<Vec<SeriesBin>> {
    let query = format!(
        "SELECT {COLUMNS} FROM bin WHERE interface = ?1 AND step_seconds = ?2 AND start_seconds >= ?3 \
         AND start_seconds < ?4 ORDER BY start_seconds"
    );
    let mut query = connection.prepare_cached(&query)?;
    query.query_map(params![interface, step, from, to], bin_of)?.collect()
}

/// Writes a bin over the stored one with the same start.
pub(super) fn put_bin(
    connection: &Connection,
    (interface, step): (i64, i64),
    bin: &SeriesBin,
) -> rusqlite::Result<()> {
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO bin VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    let numbers = bin.channels.iter().flat_map(|one| [one.average, one.minimum, one.maximum]);
    let spreads: Vec<u8> = numbers.flat_map(f64::to_le_bytes).collect();
    let (covered, intervals) = (count(bin.covered_ms), count(bin.intervals));
    statement.execute(params![interface, step, bin.start, covered, intervals, spreads])?;
    Ok(())
}

fn bin_of(row: &Row<'_>) -> rusqlite::Result<SeriesBin> {
    let bytes: Vec<u8> = row.get(3)?;
    let invalid =
        || rusqlite::Error::InvalidColumnType(3, "spreads".into(), rusqlite::types::Type::Blob);
    if bytes.len() != BYTES {
        return Err(invalid());
    }
    let mut numbers = bytes.chunks_exact(8).map(|chunk| {
        let mut number = [0; 8];
        number.copy_from_slice(chunk);
        // A rate is a finite number that is not negative; a damaged one counts as zero.
        Some(f64::from_le_bytes(number))
            .filter(|rate| rate.is_finite() && *rate >= 0.0)
            .unwrap_or(0.0)
    });
    let mut next = || numbers.next().unwrap_or(0.0);
    let channels =
        [(); Channel::COUNT].map(|()| Spread { average: next(), minimum: next(), maximum: next() });
    let count = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, i64>(at)?.max(1) as u64) };
    Ok(SeriesBin { start: row.get(0)?, covered_ms: count(1)?, intervals: count(2)?, channels })
}
