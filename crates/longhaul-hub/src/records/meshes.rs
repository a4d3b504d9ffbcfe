//! The applied meshes.

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
