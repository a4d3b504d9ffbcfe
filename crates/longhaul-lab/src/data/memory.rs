use std::path::Path;

use tempfile::TempDir;

use crate::LabError;

/// Where Linux keeps a file system in memory that every user may write (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";

/// A directory in memory for workloads that read or write there; gone when it is dropped.
#[derive(Debug)]
pub struct MemoryStore {
    dir: TempDir,
}

impl MemoryStore {
    /// Makes it.
    ///
    /// # Errors
    /// The host has no file system in memory, or lets this user make nothing there.
    pub fn create() -> Result<Self, LabError> {
        let dir = tempfile::Builder::new().prefix("longhaul-").tempdir_in(SHARED_MEMORY);
        let dir = dir.map_err(LabError::file("make a directory in memory at", SHARED_MEMORY))?;
        Ok(MemoryStore { dir })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
