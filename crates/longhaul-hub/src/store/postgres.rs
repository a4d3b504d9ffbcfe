//! PostgreSQL: a connection per worker thread, with a limit on every wait.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use bytes::BytesMut;
use tokio::runtime::Handle;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Statement};

use super::postgres_tls::Address;
use super::worker::Link;
use super::{Growth, Lock, Row, Sql, StoreError, Value};

/// The limit on one statement at the client; the server ends it earlier.
const ANSWER: Duration = Duration::from_secs(40);

/// The maximum number of prepared statements of a connection: more than the hub has, with all
/// combinations of filters that are in use at a time.
const STATEMENTS: usize = 500;

/// Lets the server read pages of a bitmap scan ahead of their use, if its system supports this.
const PREFETCH: &str = "SELECT set_config('effective_io_concurrency', '64', false) FROM pg_settings
     WHERE CASE name WHEN 'effective_io_concurrency' THEN max_val::bigint >= 64 ELSE false END";

/// A connection to a server.
pub(super) struct Postgres {
    client: Client,
    runtime: Handle,
    statements: HashMap<String, Statement>,
    lost: bool,
}

impl Postgres {
    /// Connects to the server at `address`. The thread must not be one of the runtime's.
    pub(super) fn connect(address: &Address, runtime: &Handle) -> Result<Self, StoreError> {
        let Address { mut config, tls } = address.clone();
        config.connect_timeout(Duration::from_secs(10)).application_name("longhaul-hub");
        let client = runtime.block_on(limited(async {
            let (client, connection) = config.connect(tls).await?;
            tokio::spawn(connection);
            client
                .batch_execute(
                    "SET statement_timeout = '30s'; SET lock_timeout = '20s';
                     SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = warning",
                )
                .await?;
            client.batch_execute(PREFETCH).await?;
            Ok(client)
        }))?;
        Ok(Postgres { client, runtime: runtime.clone(), statements: HashMap::new(), lost: false })
    }

    fn wait<T>(
        &mut self,
        run: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        let done = self.runtime.block_on(limited(run(&self.client)));
        // After a timeout the state of the connection is unknown.
        self.lost |= matches!(done, Err(StoreError::Timeout { .. })) || self.client.is_closed();
        done
    }

    fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        self.wait(async |client| client.batch_execute(sql).await)
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.wait(async |client| client.prepare(sql).await)?;
        if self.statements.len() >= STATEMENTS {
            // The drop of the last copy closes a statement at the server, too.
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

async fn limited<T>(
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    let done = tokio::time::timeout(ANSWER, work).await;
    Ok(done.map_err(|_| StoreError::Timeout { seconds: ANSWER.as_secs() })??)
}

impl Link for Postgres {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.batch("BEGIN")
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.batch("COMMIT")
    }

    fn rollback(&mut self) {
        if !self.lost && self.batch("ROLLBACK").is_err() {
            self.lost = true;
        }
    }

    fn savepoint(&mut self) -> Result<(), StoreError> {
        self.batch("SAVEPOINT job")
    }

    fn release(&mut self, keep: bool) -> Result<(), StoreError> {
        self.batch(if keep { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" })
    }

    fn is_broken(&self) -> bool {
        self.lost || self.client.is_closed()
    }

    fn sql(&mut self) -> &mut dyn Sql {
        self
    }
}

impl Sql for Postgres {
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let statement = self.prepared(sql)?;
        self.wait(async |client| client.execute_raw(&statement, values).await)
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        let statement = self.prepared(sql)?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| v as _).collect();
        let rows = self.wait(async |client| client.query(&statement, &values).await)?;
        let read = |row: &tokio_postgres::Row| {
            let cells = (0..row.len()).map(|index| row.try_get::<_, Value>(index));
            cells.collect::<Result<_, _>>().map(Row)
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    fn query_scattered(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        // The planner estimates the order of rows only from the first column of the key, and can expect the rows of
        // a series on neighboring pages. An index scan then waits for each page; a bitmap scan reads them ahead.
        // Without statistics the planner would read the whole table.
        self.batch("SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = off")?;
        let rows = self.query(sql, values)?;
        self.batch("SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = on")?;
        Ok(rows)
    }

    fn lock(&mut self, lock: Lock) -> Result<(), StoreError> {
        self.query("SELECT pg_advisory_xact_lock($1)", &[Value::Int(lock as i64)])?;
        Ok(())
    }

    fn size_bytes(&mut self) -> Result<i64, StoreError> {
        let rows = self.query("SELECT pg_database_size(current_database())", &[])?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    fn row_bytes(&self, payload: f64) -> f64 {
        // Longer values are in parts of 1996 bytes in another table (TOAST_MAX_CHUNK_SIZE), which
        // has an index.
        let parts = if payload > 2000.0 { (payload / 1996.0).ceil() } else { 0.0 };
        let inline = if parts > 0.0 { 60.0 } else { payload };
        let toast = if parts > 0.0 { payload + parts * (ROW + 12.0 + 24.0) } else { 0.0 };
        (inline + ROW + toast) / HEAP_FILL
    }

    fn keyed_bytes(&self, key: f64, payload: f64, growth: Growth) -> f64 {
        self.row_bytes(key + payload) + self.index_bytes(key, growth)
    }

    fn index_bytes(&self, key: f64, growth: Growth) -> f64 {
        // The header of an entry and its pointer; a page is split in halves except at the end
        // (BTREE_DEFAULT_FILLFACTOR).
        let fill = match growth {
            Growth::Appended => 0.9,
            Growth::Scattered => 0.7,
        };
        (key + 14.0) / fill
    }

    fn definition(&self, sql: &str) -> String {
        sql.replace("KEYED", "")
    }
}

/// The header of a row, its pointer in the page, and its alignment.
const ROW: f64 = 32.0;
/// The used share of the pages of a table: rows are updated, and their old versions removed later.
const HEAP_FILL: f64 = 0.85;

type Fault = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(value) if *ty == Type::INT4 => i32::try_from(*value)?.to_sql(ty, out),
            #[allow(clippy::cast_precision_loss)]
            Value::Int(value) if *ty == Type::FLOAT8 => (*value as f64).to_sql(ty, out),
            Value::Int(value) => value.to_sql_checked(ty, out),
            Value::Real(value) => value.to_sql_checked(ty, out),
            Value::Text(value) => value.to_sql_checked(ty, out),
            Value::Bytes(value) => value.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        Ok(match *ty {
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Value::Int(i32::from_sql(ty, raw)?.into()),
            Type::BOOL => Value::Int(bool::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Value::Real(f64::from_sql(ty, raw)?),
            Type::BYTEA => Value::Bytes(<&[u8]>::from_sql(ty, raw)?.to_vec()),
            // The only query with a column of type void waits for a lock.
            Type::VOID => Value::Null,
            _ => Value::Text(String::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Fault> {
        Ok(Value::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
