//! The stored states of the grid.

use longhaul_fleet::api::CellDocument;

use super::runs::{name_of, named};
use crate::store::{Sql, StoreError, Value, values};

/// Returns all cells, by source, destination and metric.
///
/// # Errors
/// The database is unavailable.
pub fn cells(sql: &mut dyn Sql) -> Result<Vec<CellDocument>, StoreError> {
    read(sql, "", &[])
}

/// Returns the cells of a directed pair, by metric.
///
/// # Errors
/// The database is unavailable.
pub fn cells_of(
    sql: &mut dyn Sql,
    (source, destination): (&str, &str),
) -> Result<Vec<CellDocument>, StoreError> {
    read(sql, "WHERE source = $1 AND destination = $2", values![source, destination])
}

fn read(sql: &mut dyn Sql, choice: &str, bound: &[Value]) -> Result<Vec<CellDocument>, StoreError> {
    let query = format!(
        "SELECT source, destination, metric, state, value, expected, at_ms FROM cell {choice}
         ORDER BY source, destination, metric"
    );
    let read = |row: &crate::store::Row| {
        Ok(CellDocument {
            source: row.text(0)?,
            destination: row.text(1)?,
            metric: named(&row.text(2)?)?,
            state: named(&row.text(3)?)?,
            value: row.opt_real(4)?,
            expected: row.opt_real(5)?,
            at_ms: row.opt_int(6)?,
        })
    };
    sql.query(&query, bound)?.iter().map(read).collect()
}

/// Stores a cell. `now` is the time of a change of its state.
///
/// # Errors
/// The database is unavailable.
pub fn set_cell(sql: &mut dyn Sql, cell: &CellDocument, now: i64) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO cell (source, destination, metric, state, value, expected, at_ms, since_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (source, destination, metric) DO UPDATE SET
         since_ms = CASE WHEN cell.state = excluded.state THEN cell.since_ms ELSE excluded.since_ms END,
         state = excluded.state, value = excluded.value, expected = excluded.expected,
         at_ms = excluded.at_ms",
        values![
            &cell.source,
            &cell.destination,
            name_of(&cell.metric).as_str(),
            name_of(&cell.state).as_str(),
            cell.value,
            cell.expected,
            cell.at_ms,
            now
        ],
    )?;
    Ok(())
}

/// Removes the cells of a pair that is no longer tested.
///
/// # Errors
/// The database is unavailable.
pub fn remove_cell(sql: &mut dyn Sql, cell: &CellDocument) -> Result<(), StoreError> {
    sql.execute(
        "DELETE FROM cell WHERE source = $1 AND destination = $2 AND metric = $3",
        values![&cell.source, &cell.destination, name_of(&cell.metric).as_str()],
    )?;
    Ok(())
}
