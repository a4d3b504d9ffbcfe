//! The journal of new data for remote write: the new entries, and the position of the sent ones.
//!
//! The position of an entry comes from a counter whose row stays locked until the transaction ends,
//! so positions become visible in their order.

use super::numbers;
use crate::clock::MINUTE;
use crate::samples::{Kind, Point, point, unpack};
use crate::store::{Lock, Row, Sql, StoreError, first, values};

/// The counter of positions.
const COUNTER: &str = "shipment";

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipment {
    /// The position; later entries have higher positions.
    pub position: i64,
    /// The new data.
    pub item: Item,
}

/// New data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A block of samples.
    Block {
        /// The number of the series.
        series: i64,
        /// The start in ms since 1970.
        start_ms: i64,
    },
    /// A run with a result.
    Run {
        /// The id.
        run: String,
    },
}

/// The samples of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBlock {
    /// The kind of the series.
    pub kind: Kind,
    /// The host that measures.
    pub host: String,
    /// The interface or the peer.
    pub name: String,
    /// The samples.
    pub points: Vec<Point>,
}

/// Adds blocks of samples, as series and start, and runs to the journal.
///
/// # Errors
/// The database is unavailable.
pub fn ship(
    sql: &mut dyn Sql,
    blocks: &[(i64, i64)],
    runs: &[String],
    now: i64,
) -> Result<(), StoreError> {
    let count = blocks.len() + runs.len();
    if count == 0 {
        return Ok(());
    }
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let mut position = numbers::advance(sql, COUNTER, count)? - count;
    let statement = "INSERT INTO shipment (position, at_ms, series, start_ms, run)
                     VALUES ($1, $2, $3, $4, $5)";
    for (series, start_ms) in blocks {
        position += 1;
        sql.execute(statement, values![position, now, *series, *start_ms, None::<&str>])?;
    }
    for run in runs {
        position += 1;
        sql.execute(statement, values![position, now, None::<i64>, None::<i64>, run])?;
    }
    Ok(())
}

/// The answer to a hub that wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The hub may send the entries after a position.
    Granted {
        /// The position of the last entry that was sent.
        position: i64,
    },
    /// Another hub sends.
    Taken,
}

/// Reserves the stream `name` for the hub `owner` from `now` until `until_ms`. A new stream begins
/// with the data that arrive later.
///
/// # Errors
/// The database is unavailable.
pub fn claim(
    sql: &mut dyn Sql,
    name: &str,
    (owner, now, until_ms): (i64, i64, i64),
) -> Result<Claim, StoreError> {
    sql.lock(Lock::States)?;
    let [position, holder, until] =
        ["position", "owner", "until"].map(|part| format!("remote_write/{name}/{part}"));
    let held = numbers::get(sql, &holder)?.is_some_and(|other| other != owner)
        // A later end was set by a clock that was ahead.
        && numbers::get(sql, &until)?.is_some_and(|end| end > now && end <= until_ms + MINUTE);
    if held {
        return Ok(Claim::Taken);
    }
    numbers::set(sql, &holder, owner)?;
    numbers::set(sql, &until, until_ms)?;
    let known = numbers::get(sql, &position)?;
    let at = match known {
        Some(at) => at,
        None => {
            let present = numbers::get(sql, COUNTER)?.unwrap_or(0);
            numbers::set(sql, &position, present)?;
            present
        }
    };
    Ok(Claim::Granted { position: at })
}

/// Notes that the entries of stream `name` up to a position were sent.
///
/// # Errors
/// The database is unavailable.
pub fn advance(sql: &mut dyn Sql, name: &str, position: i64) -> Result<(), StoreError> {
    numbers::set(sql, &format!("remote_write/{name}/position"), position)
}

/// Returns the entries after a position, the earliest first, at most `limit`.
///
/// # Errors
/// The database is unavailable.
pub fn waiting(sql: &mut dyn Sql, position: i64, limit: i64) -> Result<Vec<Shipment>, StoreError> {
    let rows = sql.query(
        "SELECT position, series, start_ms, run FROM shipment WHERE position > $1
         ORDER BY position LIMIT $2",
        values![position, limit],
    )?;
    let read = |row: &Row| {
        let item = match (row.opt_int(1)?, row.opt_int(2)?, row.opt_text(3)?) {
            (Some(series), Some(start_ms), _) => Item::Block { series, start_ms },
            (_, _, Some(run)) => Item::Run { run },
            _ => return Err(StoreError::Malformed { what: "journal of new data" }),
        };
        Ok(Shipment { position: row.int(0)?, item })
    };
    rows.iter().map(read).collect()
}

/// Returns the block of a series that starts at a time; `None` if it was removed.
///
/// # Errors
/// The database is unavailable or the block is damaged.
pub fn block(
    sql: &mut dyn Sql,
    series: i64,
    start_ms: i64,
) -> Result<Option<StoredBlock>, StoreError> {
    let query = "SELECT s.kind, s.host, s.name, c.data FROM series s
                 JOIN chunk c ON c.series = s.id WHERE s.id = $1 AND c.start_ms = $2";
    let Some(row) = first(sql, query, values![series, start_ms])? else { return Ok(None) };
    let kind = Kind::named(&row.text(0)?);
    let kind = kind.ok_or(StoreError::Malformed { what: "kind of a series" })?;
    let malformed = |_| StoreError::Malformed { what: "block of samples" };
    let rows = unpack(kind.width(), &row.bytes(3)?).map_err(malformed)?;
    let points = rows.iter().filter_map(|row| point(kind, row)).collect();
    Ok(Some(StoredBlock { kind, host: row.text(1)?, name: row.text(2)?, points }))
}

/// Removes the entries before `limit_ms`, also those that were not sent.
///
/// # Errors
/// The database is unavailable.
pub fn remove_shipments(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM shipment WHERE at_ms < $1", values![limit_ms])?;
    Ok(())
}
