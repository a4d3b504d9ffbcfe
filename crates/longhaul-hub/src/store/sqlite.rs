//! SQLite: one file in WAL mode, one writer that commits waiting transactions together, and readers.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::hooks::Wal;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};

use super::worker::Link;
use super::{Growth, Lock, Row, Sql, StoreError, Value};

/// The time to wait for another process, for example `longhaul hub user`, that writes.
const BUSY: Duration = Duration::from_secs(20);

/// The interval at which the checkpoint thread checks the length of the log.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The number of pages from which the checkpoint thread copies the log to the database. Each series has a page that
/// its next block changes, so a longer log causes fewer writes of that page.
const LONG_LOG: i32 = 4000;
/// The number of pages from which the writer copies the log itself, because the thread falls behind.
const LONGEST_LOG: i32 = 16_000;
/// The maximum number of attempts of a checkpoint to copy all pages.
const MOST_ATTEMPTS: usize = 3;

/// The state of a write-ahead log that the writer and the checkpoint thread share.
#[derive(Debug, Default)]
pub(super) struct WriteAheadLog {
    /// The number of its pages after the latest commit.
    pages: AtomicI32,
    /// The latest failure of a checkpoint; `None` after [`take_failure`](Self::take_failure).
    failure: Mutex<Option<StoreError>>,
}

impl WriteAheadLog {
    /// Returns the latest failure of a checkpoint since the last call.
    pub(super) fn take_failure(&self) -> Option<StoreError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Starts a thread that copies the pages of the log to the database `path`, so that uploads do not wait for it. It
/// ends when nothing else holds `log`.
pub(super) fn checkpoints(path: &Path, log: &Arc<WriteAheadLog>) -> Result<(), StoreError> {
    let (link, log) = (Sqlite::open(path, false)?, Arc::downgrade(log));
    let work = move || {
        while let Some(log) = log.upgrade() {
            if log.pages.load(Ordering::Relaxed) >= LONG_LOG {
                link.checkpoint(&log);
            }
            drop(log);
            std::thread::sleep(CHECK_INTERVAL);
        }
    };
    let thread = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
    thread.map(drop).map_err(StoreError::Thread)
}

/// A connection to the file.
pub(super) struct Sqlite {
    connection: Connection,
    writes: bool,
    log: Arc<WriteAheadLog>,
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
            connection.execute_batch("PRAGMA cache_size = -65536;").map_err(failed)?;
        }
        Ok(Sqlite { connection, writes, log: Arc::default() })
    }

    /// Opens the file `path` to write, and notes the length of its log for [`checkpoints`].
    pub(super) fn open_writer(path: &Path, log: &Arc<WriteAheadLog>) -> Result<Self, StoreError> {
        let mut link = Self::open(path, true)?;
        link.log = log.clone();
        let note = log.clone();
        // The hook replaces the checkpoints of SQLite, which would delay the uploads of all agents.
        let hook = move |_: &mut Wal, pages: c_int| {
            note.pages.store(pages, Ordering::Relaxed);
            Ok(())
        };
        link.connection
            .wal_hook(Some(hook))
            .map_err(|source| StoreError::Open { path: PathBuf::from(path), source })?;
        Ok(link)
    }

    /// Copies the pages of `log` to the database, so that a later commit can restart the log from its beginning. A commit
    /// meanwhile adds pages, which the next attempt copies. While checkpoints fail, the log grows until the disk is
    /// full and a commit fails.
    fn checkpoint(&self, log: &WriteAheadLog) {
        for _ in 0..MOST_ATTEMPTS {
            let copied = self
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(2));
            match copied {
                Ok(pages) if pages < log.pages.load(Ordering::Relaxed).into() => {}
                Ok(_) => return,
                Err(error) => {
                    let failed = Some(error.into());
                    *log.failure.lock().unwrap_or_else(PoisonError::into_inner) = failed;
                    return;
                }
            }
        }
    }
}

impl Link for Sqlite {
    fn begin(&mut self) -> Result<(), StoreError> {
        let begin = if self.writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        Ok(self.connection.execute_batch(begin)?)
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.connection.execute_batch("COMMIT")?;
        if self.writes && self.log.pages.load(Ordering::Relaxed) >= LONGEST_LOG {
            self.checkpoint(&self.log);
        }
        Ok(())
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

    fn row_bytes(&self, payload: f64) -> f64 {
        let local = in_page(payload, MOST_OF_TABLE);
        local / fill(Growth::Appended) + overflow(payload, MOST_OF_TABLE)
    }

    fn keyed_bytes(&self, key: f64, payload: f64, growth: Growth) -> f64 {
        let record = key + payload;
        let local = in_page(record, MOST_OF_INDEX);
        local / fill(growth) + overflow(record, MOST_OF_INDEX)
    }

    fn index_bytes(&self, key: f64, growth: Growth) -> f64 {
        in_page(key, MOST_OF_INDEX) / fill(growth)
    }

    fn definition(&self, sql: &str) -> String {
        sql.replace("BYTEA", "BLOB").replace("KEYED", "WITHOUT ROWID")
    }
}

/// The usable bytes of a page, and of one of a chain that continues a long record.
const PAGE: f64 = 4096.0;
const CHAIN: f64 = PAGE - 4.0;
/// The maximum number of bytes of a record that are in the page of a table with row ids, and of an
/// index or a table without row ids; and the bytes that stay of a longer one
/// (sqlite.org/fileformat2.html, 1.6).
const MOST_OF_TABLE: f64 = PAGE - 35.0;
const MOST_OF_INDEX: f64 = 1002.0;
const LEAST: f64 = 489.0;

/// Returns the bytes of a record in its page. The estimate assumes that the headers of a record and
/// of its cell take the bytes that are saved by numbers of fewer than eight bytes.
fn in_page(record: f64, most: f64) -> f64 {
    if record <= most {
        return record;
    }
    let fitting = LEAST + (record - LEAST) % CHAIN;
    if fitting <= most { fitting } else { LEAST }
}

/// Returns the bytes of the pages that continue a record.
fn overflow(record: f64, most: f64) -> f64 {
    let rest = record - in_page(record, most);
    (rest / CHAIN).ceil() * PAGE
}

/// Returns the used share of pages. SQLite distributes the records of a full page over three pages,
/// so even a table that grows at many positions has nearly full pages (measured: 0.87 to 0.89).
fn fill(growth: Growth) -> f64 {
    match growth {
        Growth::Appended => 0.95,
        Growth::Scattered => 0.88,
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Sqlite, WriteAheadLog};
    use crate::store::{Store, values};

    #[test]
    fn the_failure_of_a_checkpoint_can_be_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let link = Sqlite::open(&dir.path().join("hub.db"), true).unwrap();
        let log = WriteAheadLog::default();
        link.checkpoint(&log);
        assert!(log.take_failure().is_none());
        // SQLite refuses a checkpoint within a transaction that has written.
        link.connection.execute_batch("BEGIN IMMEDIATE; CREATE TABLE t (a)").unwrap();
        link.checkpoint(&log);
        let failure = log.take_failure().unwrap();
        assert!(failure.to_string().contains("locked"), "{failure}");
        assert!(log.take_failure().is_none());
    }

    #[tokio::test]
    async fn a_thread_copies_a_long_log_to_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.db");
        let store = Store::sqlite(&path).await.unwrap();
        // More pages than the thread waits for, and fewer than the writer copies.
        let fill = |sql: &mut dyn crate::store::Sql| {
            sql.execute("CREATE TABLE large (data BLOB)", &[])?;
            for _ in 0..20 {
                sql.execute("INSERT INTO large VALUES ($1)", values![vec![1_u8; 1 << 20]])?;
            }
            Ok(())
        };
        store.write(fill).await.unwrap();
        let deadline = Instant::now() + super::BUSY;
        while std::fs::metadata(&path).unwrap().len() < 20 << 20 {
            assert!(Instant::now() < deadline, "the database has the pages in time");
            tokio::time::sleep(super::CHECK_INTERVAL / 10).await;
        }
    }
}
