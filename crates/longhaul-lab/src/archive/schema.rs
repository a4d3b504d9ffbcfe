use std::path::Path;

use rusqlite::Connection;

use crate::LabError;

/// The database's name in an archive's directory.
pub const FILE_NAME: &str = "matrix.sqlite";

/// SQLite's `user_version` of what this version writes.
pub(super) const VERSION: i64 = 1;

/// `application_id`, by which file(1) can tell the database: "LHmx".
const APPLICATION_ID: i64 = 0x4c48_6d78;

/// Version 1. Never edited: a change is a new version with a step that leads to it.
const V1: &str = include_str!("schema-1.sql");

/// Makes the tables in a new database.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN")?;
    connection.execute_batch(V1)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.execute_batch("COMMIT")
}

/// Refuses a database that a later version wrote, or that is none of ours.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), LabError> {
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(super::write::failed("read", path))?;
    if found == VERSION {
        return Ok(());
    }
    Err(LabError::ArchiveVersion { path: path.to_owned(), found, known: VERSION })
}
