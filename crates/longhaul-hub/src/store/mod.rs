//! The store: transactions over SQLite or PostgreSQL.
//!
//! [`Sql`] is the trait that both databases implement; everything above it exists once. A
//! [`Store`] runs closures as transactions on worker threads, so that no thread of the async
//! runtime waits for a disk. `records/` has the queries.

mod error;
mod postgres;
mod postgres_tls;
mod schema;
mod sql;
mod sqlite;
mod worker;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;

pub use error::StoreError;
pub use schema::SCHEMA;
pub(crate) use sql::values;
pub use sql::{
    Growth, Lock, Row, Sql, Value, first, groups, insert_returning, insert_rows, parameters,
};

use self::postgres::Postgres;
use self::sqlite::{Sqlite, WriteAheadLog, checkpoints};
use self::worker::{Work, Workers};

/// The number of connections for reading SQLite, and of all connections to PostgreSQL for each of
/// reading and writing.
const CONNECTIONS: usize = 3;
/// The maximum number of transactions that SQLite commits with one sync of the disk.
const TOGETHER: usize = 64;

/// A handle to the database. Clones share the connections.
#[derive(Clone)]
pub struct Store {
    readers: Workers,
    writers: Workers,
    /// The state of the write-ahead log of SQLite.
    log: Option<Arc<WriteAheadLog>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens or creates the SQLite database `path`.
    ///
    /// # Errors
    /// The file is inaccessible or no database, or a later version wrote it.
    pub async fn sqlite(path: &Path) -> Result<Self, StoreError> {
        // Creates the file with WAL before readers open it.
        drop(Sqlite::open(path, true)?);
        let (writer, reader, log) = (path.to_owned(), path.to_owned(), Arc::default());
        checkpoints(path, &log)?;
        let writer_log = log.clone();
        let store = Store {
            log: Some(log),
            writers: Workers::start(1, TOGETHER, move || {
                Sqlite::open_writer(&writer, &writer_log)
            })?,
            readers: Workers::start(CONNECTIONS, 1, move || Sqlite::open(&reader, false))?,
        };
        store.write(schema::prepare).await?;
        Ok(store)
    }

    /// Connects to the PostgreSQL database at `address`, a URL or a list of `key=value`, with the
    /// settings `sslmode` and `sslrootcert`.
    ///
    /// # Errors
    /// The address is invalid, the database is unavailable or its certificate is not accepted, or a
    /// later version wrote it.
    pub async fn postgres(address: &str) -> Result<Self, StoreError> {
        let runtime = Handle::current();
        let address = postgres_tls::Address::parse(address)?;
        let open = move || Postgres::connect(&address, &runtime);
        let store = Store {
            log: None,
            readers: Workers::start(CONNECTIONS, 1, open.clone())?,
            writers: Workers::start(CONNECTIONS, 1, open)?,
        };
        store.write(schema::prepare).await?;
        Ok(store)
    }

    /// Returns the numbers of transactions that wait for a reader and for a writer.
    pub fn waiting(&self) -> (usize, usize) {
        (self.readers.waiting(), self.writers.waiting())
    }

    /// Returns the latest failure to move the log of SQLite into the database, once. No transaction reports it.
    pub(crate) fn take_checkpoint_failure(&self) -> Option<StoreError> {
        self.log.as_ref()?.take_failure()
    }

    /// Runs a transaction that reads.
    ///
    /// # Errors
    /// `work` fails, or the database is unavailable.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Sql) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        run(&self.readers, work).await
    }

    /// Runs a transaction that writes. It is repeated after a deadlock.
    ///
    /// # Errors
    /// `work` fails, and nothing is written, or the database is unavailable.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Sql) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        run(&self.writers, work).await
    }
}

async fn run<T: Send + 'static>(
    workers: &Workers,
    mut work: impl FnMut(&mut dyn Sql) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let slot = Arc::new(Mutex::new(None));
    let work: Work = Box::new({
        let slot = slot.clone();
        move |sql| {
            let value = work(sql)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        }
    });
    workers.run(work).await?;
    slot.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
}
