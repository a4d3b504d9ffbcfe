//! The latest state of each host: its fastest connections and its cores.

use longhaul_fleet::protocol::HostSnapshot;

use super::packed::{pack_json, unpack_json};
use crate::store::{Sql, StoreError, first, values};

const MALFORMED: StoreError = StoreError::Malformed { what: "snapshot" };

/// Stores the snapshot of an agent's host in place of an earlier one. A time in the future counts as `now`.
///
/// # Errors
/// The database is unavailable.
pub fn set_snapshot(
    sql: &mut dyn Sql,
    agent: &str,
    snapshot: &HostSnapshot,
    now: i64,
) -> Result<(), StoreError> {
    let at_ms = snapshot.at_ms.min(now);
    let document = serde_json::to_value(HostSnapshot { at_ms, ..snapshot.clone() });
    let document = pack_json(&document.map_err(|_| MALFORMED)?)?;
    sql.execute(
        "INSERT INTO snapshot (agent, at_ms, document) VALUES ($1, $2, $3)
         ON CONFLICT (agent) DO UPDATE SET at_ms = excluded.at_ms, document = excluded.document",
        values![agent, at_ms, document],
    )?;
    Ok(())
}

/// Returns the latest snapshot of an agent's host. A damaged one, or one that a later version stored, counts as
/// none: the next upload replaces it.
///
/// # Errors
/// The database is unavailable.
pub fn snapshot(sql: &mut dyn Sql, agent: &str) -> Result<Option<HostSnapshot>, StoreError> {
    let row = first(sql, "SELECT document FROM snapshot WHERE agent = $1", values![agent])?;
    let Some(row) = row else { return Ok(None) };
    let document = unpack_json(&row.bytes(0)?).ok();
    Ok(document.and_then(|document| serde_json::from_value(document).ok()))
}

/// Removes the snapshots before `limit_ms`.
///
/// # Errors
/// The database is unavailable.
pub fn remove_snapshots(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM snapshot WHERE at_ms < $1", values![limit_ms])?;
    Ok(())
}
