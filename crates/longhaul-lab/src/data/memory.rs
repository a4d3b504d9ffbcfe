//! A directory in memory for workloads that read or write there.

use std::path::Path;

use tempfile::TempDir;

use crate::LabError;

/// The mount point of a memory file system that every user can write (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";

/// A directory in memory for workloads that read or write there. It is removed on drop.
#[derive(Debug)]
pub struct MemoryStore {
    dir: TempDir,
}

impl MemoryStore {
    /// Creates the directory.
    ///
    /// # Errors
    /// The host has no memory file system, or the user may not write there.
    pub fn create() -> Result<Self, LabError> {
        let dir = tempfile::Builder::new().prefix("longhaul-").tempdir_in(SHARED_MEMORY);
        let dir = dir.map_err(LabError::file("create a directory in", SHARED_MEMORY))?;
        Ok(MemoryStore { dir })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
