//! The applied meshes, and the progress of their tasks between two rounds of planning.

use std::collections::BTreeMap;

use longhaul_fleet::schedule::TaskState;

use crate::store::{Sql, StoreError, first, values};

/// An applied mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMesh {
    /// The revision, from 1.
    pub revision: i64,
    /// The name.
    pub name: String,
    /// The text of `mesh.toml`.
    pub text: String,
    /// The time of the application in ms since 1970.
    pub applied_ms: i64,
    /// The user.
    pub person: String,
}

/// Returns the latest mesh.
///
/// # Errors
/// The database is unavailable.
pub fn latest_mesh(sql: &mut dyn Sql) -> Result<Option<StoredMesh>, StoreError> {
    let row = first(
        sql,
        "SELECT revision, name, text, applied_ms, person FROM mesh ORDER BY revision DESC LIMIT 1",
        &[],
    )?;
    let read = |row: crate::store::Row| {
        Ok(StoredMesh {
            revision: row.int(0)?,
            name: row.text(1)?,
            text: row.text(2)?,
            applied_ms: row.int(3)?,
            person: row.text(4)?,
        })
    };
    row.map(read).transpose()
}

/// Returns the latest revision; 0 if no mesh is applied.
///
/// # Errors
/// The database is unavailable.
pub fn latest_revision(sql: &mut dyn Sql) -> Result<i64, StoreError> {
    let row = first(sql, "SELECT max(revision) FROM mesh", &[])?;
    Ok(row.map(|row| row.opt_int(0)).transpose()?.flatten().unwrap_or(0))
}

/// Adds a mesh.
///
/// # Errors
/// The database is unavailable or has the revision.
pub fn add_mesh(sql: &mut dyn Sql, mesh: &StoredMesh) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO mesh (revision, name, text, applied_ms, person) VALUES ($1, $2, $3, $4, $5)",
        values![mesh.revision, &mesh.name, &mesh.text, mesh.applied_ms, &mesh.person],
    )?;
    Ok(())
}

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
