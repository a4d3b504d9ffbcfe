//! The schema of the database and its migrations.

use std::path::Path;

use rusqlite::Connection;

use crate::WatchError;

/// The `user_version` of the databases that this program writes.
pub(super) const VERSION: i64 = 1;

/// The `application_id` by which file(1) recognises the database: "LHwa" in ASCII.
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
