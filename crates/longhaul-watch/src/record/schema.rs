//! The layout of the database: its schema and migrations, and the rows of bins.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::WatchError;
use crate::consolidate::{BinValues, SeriesBin};
use crate::series::Quantity;

/// The `user_version` of the databases that this program writes.
pub(super) const VERSION: i64 = 1;

/// The `application_id` by which file(1) recognizes the database: "LHwa" in ASCII.
const APPLICATION_ID: i64 = 0x4c48_7761;

/// The migrations up to [`VERSION`]; the first one creates version 1. A published migration is never
/// edited: each change adds a migration.
const STEPS: [&str; VERSION as usize] = [include_str!("schema-1.sql")];

/// Creates the tables in a new database, in one transaction.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let steps = STEPS.concat();
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE;\n{steps}\nPRAGMA application_id = {APPLICATION_ID};\n\
         PRAGMA user_version = {VERSION};\nCOMMIT;"
    ))
}

/// Checks that this program wrote the database. Returns false for an empty one, which a process created
/// that was killed before its first commit.
///
/// # Errors
/// A later version or another program wrote the database, or it is damaged.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<bool, WatchError> {
    let pragma = |name: &str| -> Result<i64, WatchError> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(failed("read", path))
    };
    let (owner, found) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed("read", path))?;
    match (owner, found, tables) {
        (0, 0, 0) => Ok(false),
        (APPLICATION_ID, found, _) if found > VERSION => {
            Err(WatchError::RecordVersion { path: path.to_owned(), found, known: VERSION })
        }
        (APPLICATION_ID, VERSION, _) => Ok(true),
        _ => Err(WatchError::NotARecord(path.to_owned())),
    }
}

/// Wraps an SQLite error with the operation and the file.
pub(super) fn failed(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(rusqlite::Error) -> WatchError {
    let path = path.to_owned();
    move |source| match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => WatchError::NotARecord(path),
        _ => WatchError::Record { operation, path, source },
    }
}

/// The size of `spreads`: three numbers of eight bytes per channel.
const BYTES: usize = Quantity::COUNT * 3 * 8;

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
    let channels = [(); Quantity::COUNT].map(|()| BinValues {
        average: next(),
        minimum: next(),
        maximum: next(),
    });
    let count = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, i64>(at)?.max(1) as u64) };
    Ok(SeriesBin { start: row.get(0)?, covered_ms: count(1)?, intervals: count(2)?, channels })
}
