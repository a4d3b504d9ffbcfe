//! The progress of tasks, between two rounds of planning.

use std::collections::BTreeMap;

use longhaul_fleet::schedule::TaskState;

use crate::store::{Sql, StoreError, first, values};

/// Returns the states of all tasks by id.
///
/// # Errors
/// The database is unavailable or a state is malformed.
pub fn task_states(sql: &mut dyn Sql) -> Result<BTreeMap<String, TaskState>, StoreError> {
    let rows = sql.query("SELECT id, state FROM task", &[])?;
    rows.iter().map(|row| Ok((row.text(0)?, parsed(&row.text(1)?)?))).collect()
}

/// Returns the state of a task.
///
/// # Errors
/// The database is unavailable or the state is malformed.
pub fn task_state(sql: &mut dyn Sql, id: &str) -> Result<Option<TaskState>, StoreError> {
    let row = first(sql, "SELECT state FROM task WHERE id = $1", values![id])?;
    row.map(|row| parsed(&row.text(0)?)).transpose()
}

fn parsed(text: &str) -> Result<TaskState, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::Malformed { what: "state of a task" })
}

/// Stores the state of a task.
///
/// # Errors
/// The database is unavailable.
pub fn set_task_state(sql: &mut dyn Sql, id: &str, state: &TaskState) -> Result<(), StoreError> {
    let text = serde_json::to_string(state)
        .map_err(|_| StoreError::Malformed { what: "state of a task" })?;
    sql.execute(
        "INSERT INTO task (id, state) VALUES ($1, $2)
         ON CONFLICT (id) DO UPDATE SET state = excluded.state",
        values![id, &text],
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
