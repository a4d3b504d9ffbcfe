//! The common subset of SQLite and PostgreSQL: statements with numbered parameters, values and
//! rows.

use super::StoreError;

/// A value of a parameter or a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A double.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Int(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        // PostgreSQL cannot store a NUL in a text.
        Value::Text(value.replace('\0', "\u{fffd}"))
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        value.as_str().into()
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Value::Bytes(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Returns an array of [`Value`]s from expressions.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::store::Value::from($value)),*] };
}
pub(crate) use values;

/// A row of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(pub(super) Vec<Value>);

impl Row {
    fn column(&self, index: usize) -> Result<&Value, StoreError> {
        self.0.get(index).ok_or(StoreError::Column { index, expected: "a column" })
    }

    /// Returns an integer column.
    ///
    /// # Errors
    /// The column is not an integer.
    pub fn int(&self, index: usize) -> Result<i64, StoreError> {
        self.opt_int(index)?.ok_or(StoreError::Column { index, expected: "an integer" })
    }

    /// Returns an integer column that can be NULL.
    ///
    /// # Errors
    /// The column has another type.
    pub fn opt_int(&self, index: usize) -> Result<Option<i64>, StoreError> {
        match self.column(index)? {
            Value::Null => Ok(None),
            Value::Int(value) => Ok(Some(*value)),
            _ => Err(StoreError::Column { index, expected: "an integer" }),
        }
    }

    /// Returns a floating-point column that can be NULL.
    ///
    /// # Errors
    /// The column has another type.
    pub fn opt_real(&self, index: usize) -> Result<Option<f64>, StoreError> {
        match self.column(index)? {
            Value::Null => Ok(None),
            Value::Real(value) => Ok(Some(*value)),
            #[allow(clippy::cast_precision_loss)]
            Value::Int(value) => Ok(Some(*value as f64)),
            _ => Err(StoreError::Column { index, expected: "a number" }),
        }
    }

    /// Returns a text column.
    ///
    /// # Errors
    /// The column is not a text.
    pub fn text(&self, index: usize) -> Result<String, StoreError> {
        self.opt_text(index)?.ok_or(StoreError::Column { index, expected: "a text" })
    }

    /// Returns a text column that can be NULL.
    ///
    /// # Errors
    /// The column has another type.
    pub fn opt_text(&self, index: usize) -> Result<Option<String>, StoreError> {
        match self.column(index)? {
            Value::Null => Ok(None),
            Value::Text(value) => Ok(Some(value.clone())),
            _ => Err(StoreError::Column { index, expected: "a text" }),
        }
    }

    /// Returns a column of bytes.
    ///
    /// # Errors
    /// The column has another type.
    pub fn bytes(&self, index: usize) -> Result<Vec<u8>, StoreError> {
        match self.column(index)? {
            Value::Bytes(value) => Ok(value.clone()),
            _ => Err(StoreError::Column { index, expected: "bytes" }),
        }
    }
}

/// A lock that one transaction of all hubs over a database holds at a time, until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum Lock {
    /// Creation and migration of the schema.
    Schema = 0x6c6f_6e67_0001,
    /// Planning of runs.
    Planning,
    /// Consolidation and removal of old data.
    Retention,
    /// States of the grid, and notifications.
    States,
}

/// The order in which the rows of a table or index arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// In the order of the key: pages are filled one after the other.
    Appended,
    /// At many places of the order, such as the ends of many series: full pages are split.
    Scattered,
}

/// A transaction. Parameters are `$1`, `$2` and so on.
pub trait Sql {
    /// Runs a statement and returns the number of changed rows.
    ///
    /// # Errors
    /// The database refuses the statement or is unavailable.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError>;

    /// Runs a query and returns all of its rows.
    ///
    /// # Errors
    /// The database refuses the query or is unavailable.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError>;

    /// Runs [`query`](Self::query) for rows that were inserted at different times. A database that stores rows in
    /// the order of insertion has them on many pages.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    fn query_scattered(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        self.query(sql, values)
    }

    /// Waits for a lock and holds it until the transaction ends.
    ///
    /// # Errors
    /// The lock is not free within the database's timeout.
    fn lock(&mut self, lock: Lock) -> Result<(), StoreError>;

    /// Returns the size of the database in bytes.
    ///
    /// # Errors
    /// The database is unavailable.
    fn size_bytes(&mut self) -> Result<i64, StoreError>;

    /// Returns the mean space in bytes of a row in a table in the order of arrival, with the free
    /// space of pages and without indexes.
    fn row_bytes(&self, payload: f64) -> f64;

    /// Returns the mean space in bytes of a row of a table that is `KEYED`, with the free space of
    /// pages and the index of the key.
    fn keyed_bytes(&self, key: f64, payload: f64, growth: Growth) -> f64;

    /// Returns the mean space in bytes of an entry of an index, with the free space of pages.
    fn index_bytes(&self, key: f64, growth: Growth) -> f64;

    /// Translates the types of a table's definition to the database's.
    fn definition(&self, sql: &str) -> String;
}

/// Returns the only row of a query, if any.
///
/// # Errors
/// As for [`Sql::query`].
pub fn first(sql: &mut dyn Sql, query: &str, values: &[Value]) -> Result<Option<Row>, StoreError> {
    Ok(sql.query(query, values)?.into_iter().next())
}

/// The numbers of rows of one statement of [`insert_rows`]. They are few, so that databases keep the
/// prepared statements.
const GROUPS: [usize; 3] = [64, 8, 1];

/// Inserts rows with few statements: `HEAD VALUES (...), (...) TAIL`. All rows have one length.
///
/// # Errors
/// As for [`Sql::execute`].
pub fn insert_rows(
    sql: &mut dyn Sql,
    (head, tail): (&str, &str),
    rows: &[Vec<Value>],
) -> Result<(), StoreError> {
    for group in groups(rows) {
        sql.execute(&insertion(head, group, tail), &group.concat())?;
    }
    Ok(())
}

/// Inserts rows as [`insert_rows`] does, and returns the rows that `TAIL`, which ends with
/// `RETURNING`, names.
///
/// # Errors
/// As for [`Sql::query`].
pub fn insert_returning(
    sql: &mut dyn Sql,
    (head, tail): (&str, &str),
    rows: &[Vec<Value>],
) -> Result<Vec<Row>, StoreError> {
    let mut new = Vec::new();
    for group in groups(rows) {
        new.extend(sql.query(&insertion(head, group, tail), &group.concat())?);
    }
    Ok(new)
}

/// Returns the statement that inserts `rows`.
fn insertion(head: &str, rows: &[Vec<Value>], tail: &str) -> String {
    let width = rows.first().map_or(0, Vec::len);
    let tuples: Vec<String> =
        (0..rows.len()).map(|at| format!("({})", parameters(at * width + 1, width))).collect();
    format!("{head} VALUES {} {tail}", tuples.join(", "))
}

/// Returns the parts of `all` whose sizes few prepared statements serve, as for [`insert_rows`].
pub fn groups<T>(all: &[T]) -> impl Iterator<Item = &[T]> {
    let mut rest = all;
    std::iter::from_fn(move || {
        let group = GROUPS.iter().find(|group| **group <= rest.len())?;
        let (now, later) = rest.split_at(*group);
        rest = later;
        Some(now)
    })
}

/// Returns the parameters `$FIRST` to `$LAST` of a list.
pub fn parameters(first: usize, count: usize) -> String {
    (first..first + count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}
