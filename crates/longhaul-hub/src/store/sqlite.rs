//! SQLite: one file in WAL mode, one writer that commits waiting transactions together, and readers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};

use super::worker::Link;
use super::{Lock, Row, Sql, StoreError, Value};

/// The time to wait for another process, for example `longhaul hub user`, that writes.
const BUSY: Duration = Duration::from_secs(20);

/// A connection to the file.
pub(super) struct Sqlite {
    connection: Connection,
    writes: bool,
}

impl Sqlite {
    /// Opens or creates the file `path`, which only this user can read.
    pub(super) fn open(path: &Path, writes: bool) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { path: PathBuf::from(path), source };
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(200);
        // FULL: an acknowledged result survives a power failure. The writer commits many together.
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -16384;
                 PRAGMA journal_size_limit = 67108864; PRAGMA foreign_keys = ON;",
            )
            .map_err(failed)?;
        if writes {
            // Each series has a page that its next block changes. A longer log writes it less often.
            connection
                .execute_batch("PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 4000;")
                .map_err(failed)?;
        }
        Ok(Sqlite { connection, writes })
    }
}

impl Link for Sqlite {
    fn begin(&mut self) -> Result<(), StoreError> {
        let begin = if self.writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        Ok(self.connection.execute_batch(begin)?)
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn rollback(&mut self) {
        // Fails only if an error has ended the transaction already.
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    fn savepoint(&mut self) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch("SAVEPOINT job")?)
    }

    fn release(&mut self, keep: bool) -> Result<(), StoreError> {
        let end = if keep { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
        Ok(self.connection.execute_batch(end)?)
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn sql(&mut self) -> &mut dyn Sql {
        self
    }
}

impl Sql for Sqlite {
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let mut statement = self.connection.prepare_cached(&numbered(sql))?;
        Ok(statement.execute(params_from_iter(values.iter().map(bound)))? as u64)
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        let mut statement = self.connection.prepare_cached(&numbered(sql))?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values.iter().map(bound)))?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|index| Ok(value(row.get_ref(index)?)));
            all.push(Row(values.collect::<Result<_, rusqlite::Error>>()?));
        }
        Ok(all)
    }

    fn lock(&mut self, _: Lock) -> Result<(), StoreError> {
        // BEGIN IMMEDIATE excludes every other writer.
        Ok(())
    }

    fn size_bytes(&mut self) -> Result<i64, StoreError> {
        let pages: i64 = self.connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        let size: i64 = self.connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        Ok(pages * size)
    }

    fn stored_bytes(&self, payload: f64, indexed: bool) -> f64 {
        // The key and the header of a row; pages that fill in the order of several series are split.
        (payload + 24.0) * 1.35 + if indexed { 30.0 } else { 0.0 }
    }

    fn definition(&self, sql: &str) -> String {
        sql.replace("BYTEA", "BLOB").replace("KEYED", "WITHOUT ROWID")
    }
}

/// SQLite numbers parameters with `?1`, and takes `$1` for a name.
fn numbered(sql: &str) -> String {
    sql.replace('$', "?")
}

fn bound(value: &Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as Bound;
    match value {
        Value::Null => Bound::Null,
        Value::Int(value) => Bound::Integer(*value),
        Value::Real(value) => Bound::Real(*value),
        Value::Text(value) => Bound::Text(value.clone()),
        Value::Bytes(value) => Bound::Blob(value.clone()),
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(value) => Value::Text(String::from_utf8_lossy(value).into_owned()),
        ValueRef::Blob(value) => Value::Bytes(value.to_vec()),
    }
}
