//! The schema of an archive, and the seals: digests of documents, stored beside the documents.
//!
//! SQLite detects a page with a broken structure, but not a changed digit in a text.

use std::hash::Hasher;
use std::path::Path;

use longhaul_core::result::RunSample;
use rusqlite::{Connection, ErrorCode};
use twox_hash::XxHash3_64;

use crate::LabError;

/// The file name of the database in an archive's directory.
pub const FILE_NAME: &str = "matrix.sqlite";

/// The `user_version` of the databases that this program writes.
pub(super) const VERSION: i64 = 5;

/// The `application_id` by which file(1) recognizes the database: "LHmx" in ASCII.
const APPLICATION_ID: i64 = 0x4c48_6d78;

/// The migrations up to [`VERSION`]; the first one creates version 1. A published migration is
/// never edited: each change adds a migration.
const STEPS: [&str; VERSION as usize] = [
    include_str!("schema-1.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
    include_str!("schema-5.sql"),
];

/// Creates the tables in a new database.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    advance(connection, 0)
}

/// Returns the schema version of the database if this program can read it: the current or an
/// earlier version. Writes nothing.
///
/// # Errors
/// A later version or another program wrote the database, or it is damaged.
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
    // quick_check reads every page and checks the order of rows, but not the contents of indexes.
    let said: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(failed("check", path))?;
    if said == "ok" { Ok(found) } else { Err(LabError::damaged(path, said.replace('\n', "; "))) }
}

/// Runs the migrations after version `from` in one transaction.
pub(super) fn advance(connection: &Connection, from: i64) -> rusqlite::Result<()> {
    let Some(steps) = STEPS.get(from as usize..).filter(|steps| !steps.is_empty()) else {
        return Ok(());
    };
    let steps = steps.concat();
    let all = format!("BEGIN IMMEDIATE;\n{steps}\nPRAGMA user_version = {VERSION};\nCOMMIT;");
    connection.execute_batch(&all).inspect_err(|_| {
        // The error of the migration is returned; an error of the rollback adds nothing.
        let _ = connection.execute_batch("ROLLBACK");
    })
}

/// Wraps an SQLite error with the operation and the file, and marks a damaged file as damaged.
pub(super) fn failed(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(rusqlite::Error) -> LabError {
    let path = path.to_owned();
    move |source| match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            LabError::damaged(path, source.to_string())
        }
        _ => LabError::Archive { operation, path, source },
    }
}

/// Returns the seal of a document.
pub(super) fn of_text(text: &str) -> String {
    of_run(text, &[])
}

/// Returns the seal of a run: a digest of its document in the database and of its samples.
pub(super) fn of_run(json: &str, samples: &[RunSample]) -> String {
    let mut hasher = XxHash3_64::with_seed(0);
    hasher.write(json.as_bytes());
    for sample in samples {
        hasher.write(&sample.seconds.to_bits().to_le_bytes());
        hasher.write(&sample.throughput_bps.bps().to_le_bytes());
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    #[test]
    fn any_change_changes_the_seal() {
        let sample = |bps| RunSample { seconds: 0.5, throughput_bps: Rate::from_bps(bps) };
        let seal = of_run("{\"a\": 1}", &[sample(10)]);
        assert_eq!(seal, of_run("{\"a\": 1}", &[sample(10)]));
        for other in [of_run("{\"a\": 2}", &[sample(10)]), of_run("{\"a\": 1}", &[sample(11)])] {
            assert_ne!(seal, other);
        }
        // Archives store this digest; with another function all archives would appear damaged. The
        // specification of XXH3 gives 2d06800538d394c2 for the empty text.
        assert_eq!(of_text(""), "2d06800538d394c2");
    }
}
