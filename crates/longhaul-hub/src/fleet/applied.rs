//! The applied mesh with its schedule, as the hub keeps it in memory.

use std::sync::Arc;

use longhaul_fleet::mesh::{self, Mesh};
use longhaul_fleet::schedule::Schedule;

use crate::records::meshes::{StoredMesh, latest_mesh, latest_revision};
use crate::store::{Sql, StoreError};

/// An applied mesh.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The revision.
    pub(crate) revision: i64,
    /// The time of the application in ms since 1970.
    pub(crate) applied_ms: i64,
    /// The text of the file.
    pub(crate) text: String,
    /// The mesh.
    pub(crate) mesh: Mesh,
    /// The schedule of its tests.
    pub(crate) schedule: Schedule,
}

impl Applied {
    /// Returns the mesh that the store keeps. Its text was valid when it was applied.
    pub(crate) fn of(stored: StoredMesh) -> Result<Self, StoreError> {
        let mesh = mesh::parse(&stored.text).map_err(|_| StoreError::Malformed { what: "mesh" })?;
        let schedule = Schedule::new(&mesh);
        Ok(Applied {
            revision: stored.revision,
            applied_ms: stored.applied_ms,
            text: stored.text,
            mesh,
            schedule,
        })
    }
}

/// Returns the latest mesh: `known` if it is the latest.
pub(crate) fn refreshed(
    sql: &mut dyn Sql,
    known: Option<&Arc<Applied>>,
) -> Result<Option<Arc<Applied>>, StoreError> {
    let revision = latest_revision(sql)?;
    match known {
        Some(known) if known.revision == revision => Ok(Some(known.clone())),
        _ => latest_mesh(sql)?.map(|stored| Applied::of(stored).map(Arc::new)).transpose(),
    }
}
