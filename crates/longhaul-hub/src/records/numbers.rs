//! Named numbers: counters, and times that are kept after the process ends.

use crate::store::{Sql, StoreError, first, values};

/// Increments a counter by `count` and returns its new value.
///
/// # Errors
/// The database is unavailable.
pub fn advance(sql: &mut dyn Sql, name: &str, count: i64) -> Result<i64, StoreError> {
    let rows = sql.query(
        "INSERT INTO number (name, value) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET value = number.value + $2 RETURNING value",
        values![name, count],
    )?;
    rows.first().ok_or(StoreError::Malformed { what: "number" })?.int(0)
}

/// Increments a counter, at least to `least`, and returns its new value.
///
/// # Errors
/// The database is unavailable.
pub fn next(sql: &mut dyn Sql, name: &str, least: i64) -> Result<i64, StoreError> {
    let rows = sql.query(
        "INSERT INTO number (name, value) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE
         SET value = CASE WHEN number.value < $2 THEN $2 ELSE number.value + 1 END RETURNING value",
        values![name, least],
    )?;
    rows.first().ok_or(StoreError::Malformed { what: "number" })?.int(0)
}

/// Sets a number.
///
/// # Errors
/// The database is unavailable.
pub fn set(sql: &mut dyn Sql, name: &str, value: i64) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO number (name, value) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        values![name, value],
    )?;
    Ok(())
}

/// Returns a number, if it was set.
///
/// # Errors
/// The database is unavailable.
pub fn get(sql: &mut dyn Sql, name: &str) -> Result<Option<i64>, StoreError> {
    first(sql, "SELECT value FROM number WHERE name = $1", values![name])?
        .map(|row| row.int(0))
        .transpose()
}
