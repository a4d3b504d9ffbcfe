use std::path::Path;

use rusqlite::Connection;

use super::write::failed;
use crate::LabError;

/// The database's name in an archive's directory.
pub const FILE_NAME: &str = "matrix.sqlite";

/// SQLite's `user_version` of what this version writes.
pub(super) const VERSION: i64 = 5;

/// `application_id`, by which file(1) can tell the database: "LHmx".
const APPLICATION_ID: i64 = 0x4c48_6d78;

/// The steps from nothing to [`VERSION`]; the first makes version 1. Never edited: a change is a
/// further step.
const STEPS: [&str; VERSION as usize] = [
    include_str!("schema-1.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
    include_str!("schema-5.sql"),
];

/// Makes the tables in a new database.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    advance(connection, 0)
}

/// The version of a database that this longhaul can read: its own, or an earlier one. Nothing is
/// written, whatever is found.
///
/// # Errors
/// A later version wrote it, it is none of ours, or it is damaged.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<i64, LabError> {
    let pragma = |name: &str| -> Result<i64, LabError> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(failed("read", path))
    };
    let (owner, found) = (pragma("application_id")?, pragma("user_version")?);
    if owner != APPLICATION_ID {
        return Err(LabError::NotAnArchive { path: path.to_owned() });
    }
    if found > VERSION {
        return Err(LabError::ArchiveVersion { path: path.to_owned(), found, known: VERSION });
    }
    if found < 1 {
        return Err(LabError::damaged(path, "it has no schema"));
    }
    // Walks every page and the order of every table, without the indexes' content.
    let said: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(failed("check", path))?;
    if said == "ok" { Ok(found) } else { Err(LabError::damaged(path, said.replace('\n', "; "))) }
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
