//! The journal: a database on disk with the leases that the agent has accepted, their fencing
//! numbers, and everything that the hub has not acknowledged.

mod outbox;
mod runs;

pub(crate) use outbox::{BatchLimits, samples_dropped};
pub(crate) use runs::Acceptance;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::{AgentError, Result};

/// The version of the schema, in `user_version`.
const SCHEMA_VERSION: i64 = 1;
const SCHEMA: &str = "
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE fences (resource TEXT PRIMARY KEY, fencing INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE runs (
        run TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL, lease TEXT NOT NULL,
        started_ms INTEGER, end_ms INTEGER NOT NULL, PRIMARY KEY (run, role)
    ) WITHOUT ROWID;
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, bytes INTEGER NOT NULL,
        rows INTEGER NOT NULL, body TEXT NOT NULL
    );
    CREATE INDEX outbox_kind ON outbox (kind, bytes);
    PRAGMA user_version = 1;";

/// The size of the reserve.
const RESERVE_BYTES: usize = 8 << 20;
/// The number of counters that one write of the journal reserves.
const COUNTERS: u64 = 1000;

/// The highest counter that the agent accepts from a hub: the counters above it are enough for all
/// requests.
const MOST_COUNTER: i64 = i64::MAX / 2;

/// The journal of an agent.
#[derive(Debug)]
pub(crate) struct Journal {
    connection: Mutex<Connection>,
    counter: Mutex<(u64, u64)>,
    reserve: Reserve,
    path: PathBuf,
    full: AtomicBool,
}

impl Journal {
    /// Opens the journal at `path`, and creates it at the first use.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged, or has the schema of a newer version.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // A record survives a power failure once its transaction returns.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -1024)?;
        let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match found {
            0 => {
                let transaction =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                transaction.execute_batch(SCHEMA)?;
                transaction.commit()?;
            }
            SCHEMA_VERSION => {}
            found => return Err(AgentError::NewerJournal { found, known: SCHEMA_VERSION }),
        }
        let journal = Journal::of(connection, path);
        journal.check_space();
        Ok(journal)
    }

    /// Opens an existing journal that no agent uses, to read it; writes nothing. A log that the last
    /// agent has left (`journal.db-wal`) is not read; `None` if everything is in it.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged, or has another schema.
    pub(crate) fn look(path: &Path) -> Result<Option<Self>> {
        use rusqlite::OpenFlags;
        // SQLite creates files beside a database unless the database is immutable (sqlite.org/uri.html).
        let mut uri = "file:".to_owned();
        for byte in path.as_os_str().as_encoded_bytes() {
            let _ = write!(uri, "%{byte:02x}");
        }
        uri.push_str("?immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(uri, flags)?;
        match connection.pragma_query_value(None, "user_version", |row| row.get(0))? {
            0 => Ok(None),
            SCHEMA_VERSION => Ok(Some(Journal::of(connection, path))),
            found => Err(AgentError::NewerJournal { found, known: SCHEMA_VERSION }),
        }
    }

    fn of(connection: Connection, path: &Path) -> Self {
        Journal {
            connection: Mutex::new(connection),
            counter: Mutex::new((0, 0)),
            reserve: Reserve::at(path.with_extension("reserve")),
            path: path.to_owned(),
            full: AtomicBool::new(false),
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs `work` in one transaction. If the disk is full, the reserve is released for one more
    /// attempt.
    fn write<T>(
        &self,
        mut work: impl FnMut(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut connection = self.connection();
        let mut attempt = || {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        let first = attempt().map_err(AgentError::Journal);
        match first {
            Err(error) if error.is_full_disk() => {
                self.full.store(true, Ordering::Release);
                if self.reserve.release() {
                    attempt().map_err(AgentError::Journal)
                } else {
                    Err(error)
                }
            }
            other => other,
        }
    }

    /// Creates the reserve if there is space for it. Returns whether the disk has space.
    pub(crate) fn check_space(&self) -> bool {
        let full = self.reserve.create().is_err();
        self.full.store(full, Ordering::Release);
        !full
    }

    /// Returns whether the last write found the disk full.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Returns the size of the journal's file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let size = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        size(&self.path) + size(&self.path.with_extension("db-wal"))
    }

    /// Returns the next counter of a request. It is above all earlier ones, also after a crash.
    pub(crate) fn next_counter(&self) -> Result<u64> {
        let mut range = self.counter.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if range.0 == range.1 {
            range.0 = self.reserve_counters(0)?;
            range.1 = range.0 + COUNTERS;
        }
        range.0 += 1;
        Ok(range.0)
    }

    /// Continues above `counter`, the highest that the hub has accepted.
    pub(crate) fn skip_counter(&self, counter: u64) -> Result<()> {
        let mut range = self.counter.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if counter >= range.0 {
            let start = self.reserve_counters(counter)?;
            *range = (start, start + COUNTERS);
        }
        Ok(())
    }

    fn reserve_counters(&self, least: u64) -> Result<u64> {
        self.write(|transaction| {
            let sql = "SELECT value FROM counters WHERE name = 'request'";
            let stored: Option<i64> = rusqlite::OptionalExtension::optional(
                transaction.query_row(sql, (), |row| row.get(0)),
            )?;
            // A hub can send any number.
            let least = i64::try_from(least).unwrap_or(i64::MAX).min(MOST_COUNTER);
            let start = stored.unwrap_or(0).max(least);
            let sql = "INSERT OR REPLACE INTO counters VALUES ('request', ?1)";
            transaction.execute(sql, [start + COUNTERS as i64])?;
            Ok(start as u64)
        })
    }
}

/// A file whose only purpose is its size. It is removed when the disk is full, so that the results of
/// running tests find space.
#[derive(Debug)]
struct Reserve(PathBuf);

impl Reserve {
    fn at(path: PathBuf) -> Self {
        Reserve(path)
    }

    /// Creates the file if it does not exist in full size.
    fn create(&self) -> io::Result<()> {
        if fs::metadata(&self.0).is_ok_and(|found| found.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        let made = options.open(&self.0).and_then(|mut file| {
            // Written, because some file systems do not reserve the space of a hole.
            let piece = vec![0; 1 << 20];
            (0..RESERVE_BYTES / piece.len()).try_for_each(|_| file.write_all(&piece))?;
            file.sync_all()
        });
        if made.is_err() {
            let _ = fs::remove_file(&self.0);
        }
        made
    }

    /// Removes the file. Returns whether it existed.
    fn release(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_increase_over_restarts_and_skips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let journal = Journal::open(&path).unwrap();
        let first = journal.next_counter().unwrap();
        assert_eq!(journal.next_counter().unwrap(), first + 1);
        journal.skip_counter(first + 5000).unwrap();
        let skipped = journal.next_counter().unwrap();
        assert!(skipped > first + 5000);
        drop(journal);
        assert!(Journal::open(&path).unwrap().next_counter().unwrap() > skipped);
    }

    #[test]
    fn counters_increase_after_any_number_of_a_hub() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let journal = Journal::open(&path).unwrap();
        let mut last = 0;
        for counter in [u64::MAX, i64::MAX.unsigned_abs(), MOST_COUNTER.unsigned_abs(), 0] {
            journal.skip_counter(counter).unwrap();
            let next = journal.next_counter().unwrap();
            assert!(next > last && i64::try_from(next).is_ok(), "{counter}: {next}");
            last = next;
        }
        drop(journal);
        assert!(Journal::open(&path).unwrap().next_counter().unwrap() > last);
    }

    #[test]
    fn a_damaged_journal_is_an_error_and_left_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        fs::write(&path, "not a database ".repeat(1000)).unwrap();
        let damaged = Journal::open(&path).unwrap_err();
        assert!(damaged.is_damaged_journal(), "{damaged:?}");
        assert!(fs::read_to_string(&path).unwrap().starts_with("not a database"));
    }

    #[test]
    fn a_newer_journal_is_left_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        drop(Journal::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
        let newer = Journal::open(&path);
        assert!(matches!(newer, Err(AgentError::NewerJournal { found: 2, known: 1 })));
    }
}
