use std::path::Path;

use rusqlite::Connection;

use crate::LabError;

/// The database's name in an archive's directory.
pub const FILE_NAME: &str = "matrix.sqlite";

/// SQLite's `user_version` of what this version writes.
pub(super) const VERSION: i64 = 3;

/// `application_id`, by which file(1) can tell the database: "LHmx".
const APPLICATION_ID: i64 = 0x4c48_6d78;

/// The steps from nothing to [`VERSION`]; the first makes version 1. Never edited: a change is a
/// further step.
const STEPS: [&str; VERSION as usize] =
    [include_str!("schema-1.sql"), include_str!("schema-2.sql"), include_str!("schema-3.sql")];

/// Makes the tables in a new database.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    advance(connection, 0)
}

/// The version of a database that this longhaul can read: its own, or an earlier one.
///
/// # Errors
/// A later version wrote it, it is none of ours, or it is damaged.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<i64, LabError> {
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(super::write::failed("read", path))?;
    if (1..=VERSION).contains(&found) {
        return Ok(found);
    }
    Err(LabError::ArchiveVersion { path: path.to_owned(), found, known: VERSION })
}

/// Takes the steps that follow version `from`, all or none.
pub(super) fn advance(connection: &Connection, from: i64) -> rusqlite::Result<()> {
    let Some(steps) = STEPS.get(from as usize..).filter(|steps| !steps.is_empty()) else {
        return Ok(());
    };
    let steps = steps.concat();
    let all = format!("BEGIN IMMEDIATE;\n{steps}\nPRAGMA user_version = {VERSION};\nCOMMIT;");
    connection.execute_batch(&all).inspect_err(|_| {
        // The error that is told is the step's.
        let _ = connection.execute_batch("ROLLBACK");
    })
}
