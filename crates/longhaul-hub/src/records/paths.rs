//! The routes of the paths, one record per change.

use crate::figures::Route;
use crate::store::{Sql, StoreError, first, values};

/// A route that differs from the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChange {
    /// The start of the run that found it, in ms since 1970.
    pub at_ms: i64,
    /// The run.
    pub run: String,
    /// The new route.
    pub route: Route,
}

fn change(row: &crate::store::Row) -> Result<PathChange, StoreError> {
    let route =
        serde_json::from_str(&row.text(2)?).map_err(|_| StoreError::Malformed { what: "route" })?;
    Ok(PathChange { at_ms: row.int(0)?, run: row.text(1)?, route })
}

/// Returns the route of a pair at a time.
///
/// # Errors
/// The database is unavailable.
pub fn route_at(
    sql: &mut dyn Sql,
    (source, destination): (&str, &str),
    at_ms: i64,
) -> Result<Option<PathChange>, StoreError> {
    let query = "SELECT at_ms, run, route FROM path_change WHERE source = $1 AND destination = $2
                 AND at_ms <= $3 ORDER BY at_ms DESC LIMIT 1";
    first(sql, query, values![source, destination, at_ms])?.as_ref().map(change).transpose()
}

/// Stores a route, if it differs from the one before. Returns the differences, or `None` if there
/// are none or the route is the first of the pair.
///
/// # Errors
/// The database is unavailable.
pub fn note_route(
    sql: &mut dyn Sql,
    (source, destination): (&str, &str),
    new: &PathChange,
) -> Result<Option<Vec<String>>, StoreError> {
    let before = route_at(sql, (source, destination), new.at_ms)?;
    let changes = before.as_ref().map(|before| before.route.changes(&new.route));
    if changes.as_ref().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let route =
        serde_json::to_string(&new.route).map_err(|_| StoreError::Malformed { what: "route" })?;
    sql.execute(
        "INSERT INTO path_change (source, destination, at_ms, run, route)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (source, destination, at_ms) DO NOTHING",
        values![source, destination, new.at_ms, &new.run, &route],
    )?;
    Ok(changes)
}

/// Returns the latest changes of a pair between two times, the latest first, at most `limit`, and
/// the route before them.
///
/// # Errors
/// The database is unavailable.
pub fn path_changes(
    sql: &mut dyn Sql,
    (source, destination): (&str, &str),
    (from_ms, to_ms): (i64, i64),
    limit: i64,
) -> Result<Vec<PathChange>, StoreError> {
    let rows = sql.query(
        "SELECT at_ms, run, route FROM path_change WHERE source = $1 AND destination = $2
         AND at_ms >= $3 AND at_ms < $4 ORDER BY at_ms DESC LIMIT $5",
        values![source, destination, from_ms, to_ms, limit],
    )?;
    let mut all = rows.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    let earliest = all.last().map_or(to_ms, |change| change.at_ms);
    all.extend(route_at(sql, (source, destination), earliest - 1)?);
    Ok(all)
}

/// Removes the changes before `limit_ms`, except the present route of each pair.
///
/// # Errors
/// The database is unavailable.
pub fn remove_path_changes(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute(
        "DELETE FROM path_change WHERE at_ms < $1 AND at_ms < (SELECT max(other.at_ms)
         FROM path_change other WHERE other.source = path_change.source
         AND other.destination = path_change.destination)",
        values![limit_ms],
    )?;
    Ok(())
}
