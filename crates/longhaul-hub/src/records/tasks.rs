//! The progress of tasks, between two rounds of planning.

use std::collections::BTreeMap;

use longhaul_fleet::schedule::TaskState;

use crate::store::{Sql, StoreError, values};

/// Returns the states of all tasks by id.
///
/// # Errors
/// The database is unavailable.
pub fn task_states(sql: &mut dyn Sql) -> Result<BTreeMap<String, TaskState>, StoreError> {
    let rows = sql.query("SELECT id, due_ms, ready_ms, misses, noted_ms FROM task", &[])?;
    let read = |row: &crate::store::Row| {
        let state = TaskState {
            due_ms: row.int(1)?,
            ready_ms: row.int(2)?,
            misses: u32::try_from(row.int(3)?).unwrap_or(u32::MAX),
            noted_ms: row.opt_int(4)?,
        };
        Ok((row.text(0)?, state))
    };
    rows.iter().map(read).collect()
}

/// Stores the state of a task.
///
/// # Errors
/// The database is unavailable.
pub fn set_task_state(sql: &mut dyn Sql, id: &str, state: &TaskState) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO task (id, due_ms, ready_ms, misses, noted_ms) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (id) DO UPDATE SET due_ms = excluded.due_ms, ready_ms = excluded.ready_ms,
         misses = excluded.misses, noted_ms = excluded.noted_ms",
        values![id, state.due_ms, state.ready_ms, i64::from(state.misses), state.noted_ms],
    )?;
    Ok(())
}

/// Removes the state of a task that is no longer in the mesh.
///
/// # Errors
/// The database is unavailable.
pub fn remove_task(sql: &mut dyn Sql, id: &str) -> Result<(), StoreError> {
    sql.execute("DELETE FROM task WHERE id = $1", values![id])?;
    Ok(())
}
