//! The cache: the data that plans create once and use again.

use std::fs;
use std::path::PathBuf;

use longhaul_core::units::Bytes;

use super::source::{cache_dir, measure};
use crate::LabError;

/// A file or directory of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// The path.
    pub path: PathBuf,
    /// The bytes of its files.
    pub bytes: Bytes,
}

/// Returns the contents of the cache in order of their names.
///
/// # Errors
/// The cache cannot be read.
pub fn cache_entries() -> Result<Vec<CacheEntry>, LabError> {
    let dir = cache_dir()?;
    let failed = |error| LabError::file("list", &dir)(error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Other programs may have files there.
        if entry.file_name().to_string_lossy().starts_with(DATA) {
            let path = entry.path();
            let (bytes, _) = measure(&path)?;
            entries.push(CacheEntry { path, bytes: Bytes::new(bytes) });
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// The beginning of the names of created data.
const DATA: &str = "data-";

impl CacheEntry {
    /// Removes the entry from the disk.
    ///
    /// # Errors
    /// The entry cannot be removed.
    pub fn remove(&self) -> Result<(), LabError> {
        let kind = fs::symlink_metadata(&self.path).map_err(LabError::file("read", &self.path))?;
        let removed = match kind.is_dir() {
            true => fs::remove_dir_all(&self.path),
            false => fs::remove_file(&self.path),
        };
        removed.map_err(LabError::file("remove", &self.path))
    }
}
