//! The source of a copy: the user's data or created files.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use longhaul_core::plan::{Content, DataStore, MatrixPlan, Mixed, PlannedWork};
use longhaul_core::units::Bytes;
use twox_hash::XxHash3_64;

use super::make;
use crate::LabError;

/// The data that a row copies.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyData {
    /// The absolute path.
    pub path: PathBuf,
    /// True if the source is a directory.
    pub tree: bool,
    /// The size of all files together.
    pub bytes: Bytes,
    /// The number of files.
    pub files: u64,
    /// The size of each file, if all files have the same size.
    pub file_bytes: Option<Bytes>,
    /// The storage that holds the source: disk or memory.
    pub store: DataStore,
    /// The storage that receives the copies: disk or memory.
    pub to: DataStore,
    pub(super) origin: Origin,
}

/// The origin of a source.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Origin {
    /// Existing data of the user.
    Own,
    /// The user's data, copied into memory.
    CopyOf(PathBuf),
    /// Created files of one size.
    Alike,
    /// Created files of different sizes.
    Mixed(Mixed),
}

impl CopyData {
    /// Describes the user's file or directory, copied from disk to disk.
    ///
    /// # Errors
    /// The path cannot be read, is neither a file nor a directory, or is empty.
    pub fn own(path: &Path) -> Result<Self, LabError> {
        let path = fs::canonicalize(path).map_err(LabError::file("read the data", path))?;
        let tree = path.is_dir();
        if !tree && !path.is_file() {
            return Err(LabError::NotCopyable { path });
        }
        let (bytes, files) = measure(&path)?;
        if bytes == 0 {
            return Err(LabError::EmptyData { path });
        }
        Ok(CopyData {
            path,
            tree,
            bytes: Bytes::new(bytes),
            files,
            file_bytes: (!tree).then_some(Bytes::new(bytes)),
            store: DataStore::Disk,
            to: DataStore::Disk,
            origin: Origin::Own,
        })
    }

    /// Describes the data that a workload copies; `None` for a timed workload. Created files may
    /// not exist yet. `memory` is the directory for files in memory.
    ///
    /// # Errors
    /// The user's data cannot be read, or the cache directory cannot be created.
    pub fn of(work: &PlannedWork, memory: Option<&Path>) -> Result<Option<Self>, LabError> {
        let source = match &work.content {
            Content::Timed { .. } => return Ok(None),
            Content::Data { path } => CopyData::own(Path::new(path))?,
            Content::Files { files, size } => CopyData::alike(*files, *size)?,
            Content::Volume { .. } => return CopyData::of(&work.scaled(1.0), memory),
            Content::Mixed { volume, sizes } => CopyData::mixed(*volume, *sizes)?,
        };
        let source = CopyData { to: work.to, ..source };
        Ok(Some(match (work.from, memory) {
            (DataStore::Memory, Some(dir)) => source.in_memory(dir),
            _ => source,
        }))
    }

    fn alike(files: u64, size: Bytes) -> Result<Self, LabError> {
        let name = match files {
            1 => format!("data-{}.bin", size.get()),
            _ => format!("data-{files}x{}", size.get()),
        };
        Ok(CopyData {
            path: cache_dir()?.join(name),
            tree: files > 1,
            bytes: Bytes::new(size.get() * files),
            files,
            file_bytes: Some(size),
            store: DataStore::Disk,
            to: DataStore::Disk,
            origin: Origin::Alike,
        })
    }

    fn mixed(volume: Bytes, sizes: Mixed) -> Result<Self, LabError> {
        let Mixed { median, sigma, smallest, largest, seed } = sizes;
        let text = format!("{} {sigma} {} {} {seed}", median.get(), smallest.get(), largest.get());
        let digest = XxHash3_64::oneshot(text.as_bytes());
        let all = sizes.sizes(volume);
        Ok(CopyData {
            path: cache_dir()?.join(format!("data-mixed-{}-{digest:016x}", volume.get())),
            tree: true,
            bytes: all.iter().fold(Bytes::new(0), |sum, size| Bytes::new(sum.get() + size.get())),
            files: all.len() as u64,
            file_bytes: None,
            store: DataStore::Disk,
            to: DataStore::Disk,
            origin: Origin::Mixed(sizes),
        })
    }

    fn in_memory(self, dir: &Path) -> Self {
        let path = dir.join(self.path.file_name().unwrap_or_default());
        let origin = match self.origin {
            Origin::Own => Origin::CopyOf(self.path),
            other => other,
        };
        CopyData { path, store: DataStore::Memory, origin, ..self }
    }

    /// Returns the number of bytes that [`CopyData::make`] would write.
    pub fn missing(&self) -> Bytes {
        let there = fs::metadata(&self.path)
            .is_ok_and(|data| data.is_dir() || data.len() == self.bytes.get());
        Bytes::new(if self.origin == Origin::Own || there { 0 } else { self.bytes.get() })
    }

    /// Creates the data if they are missing. They get their final name when they are complete.
    ///
    /// # Errors
    /// The disk or memory is full or cannot be written.
    pub fn make(&self) -> Result<(), LabError> {
        if self.missing().get() == 0 {
            return Ok(());
        }
        // The name of the partial file contains the process id, so that two matrices can create the
        // same data at the same time.
        let part = self.path.with_extension(format!("part-{}", std::process::id()));
        let written = match &self.origin {
            Origin::Own => Ok(()),
            Origin::CopyOf(own) => make::copy(own, &part),
            Origin::Alike if self.tree => {
                let size = self.file_bytes.unwrap_or_default();
                make::tree(&part, (0..self.files).map(|_| size))
            }
            Origin::Alike => make::file(&part, self.bytes, 0),
            Origin::Mixed(sizes) => make::tree(&part, sizes.sizes(self.bytes).into_iter()),
        };
        written.and_then(|()| fs::rename(&part, &self.path)).map_err(|error| {
            let _ = if part.is_dir() { fs::remove_dir_all(&part) } else { fs::remove_file(&part) };
            LabError::file("write the data", &self.path)(error)
        })
    }
}

/// Returns the source of each row of a plan; `None` for timed rows.
///
/// # Errors
/// The user's data cannot be read, or the cache directory cannot be created.
pub fn sources(
    plan: &MatrixPlan,
    memory: Option<&Path>,
) -> Result<Vec<Option<CopyData>>, LabError> {
    let mut known: Vec<(PlannedWork, Option<CopyData>)> = Vec::new();
    let mut all = Vec::new();
    for row in plan.rows() {
        let source = match known.iter().find(|(work, _)| *work == row.work) {
            Some((_, source)) => source.clone(),
            None => CopyData::of(&row.work, memory)?,
        };
        known.push((row.work, source.clone()));
        all.push(source);
    }
    Ok(all)
}

/// Returns the directory of the data that plans create, and creates it.
pub(super) fn cache_dir() -> Result<PathBuf, LabError> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let dir = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(home)
        .unwrap_or_else(env::temp_dir)
        .join("longhaul");
    fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
    Ok(dir)
}

/// Returns the bytes and the number of all files in `path`. Symbolic links are neither followed nor
/// counted.
pub(super) fn measure(path: &Path) -> Result<(u64, u64), LabError> {
    let failed = |error| LabError::file("read the data", path)(error);
    let data = fs::symlink_metadata(path).map_err(failed)?;
    if data.is_file() {
        File::open(path).map_err(failed)?;
        return Ok((data.len(), 1));
    }
    if !data.is_dir() {
        return Ok((0, 0));
    }
    let mut sum = (0, 0);
    for entry in fs::read_dir(path).map_err(failed)? {
        let (bytes, files) = measure(&entry.map_err(failed)?.path())?;
        sum = (sum.0 + bytes, sum.1 + files);
    }
    Ok(sum)
}

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
        let removed = if kind.is_dir() {
            fs::remove_dir_all(&self.path)
        } else {
            fs::remove_file(&self.path)
        };
        removed.map_err(LabError::file("remove", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(json: &str) -> PlannedWork {
        serde_json::from_str(json).unwrap()
    }

    fn at(json: &str, dir: &Path) -> CopyData {
        CopyData::of(&work(json), Some(dir)).unwrap().unwrap()
    }

    #[test]
    fn a_file_is_made_once_and_is_the_same_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let one = at(r#"{"name": "w", "size": 1048581, "from": "memory"}"#, dir.path());
        let two = CopyData { path: dir.path().join("two.bin"), ..one.clone() };
        assert_eq!((one.missing(), one.tree), (one.bytes, false));
        one.make().unwrap();
        two.make().unwrap();
        assert_eq!(one.missing(), Bytes::new(0));
        assert_eq!(fs::read(&one.path).unwrap(), fs::read(&two.path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a part is left");

        // A file of another size under that name is not used as data.
        fs::write(&one.path, b"short").unwrap();
        assert_eq!(one.missing(), one.bytes);
    }

    #[test]
    fn trees_have_the_files_of_the_workload() {
        let dir = tempfile::tempdir().unwrap();
        for (json, files) in [
            (r#"{"name": "w", "files": 7, "size": 1000, "from": "memory"}"#, 7),
            (r#"{"name": "w", "volume": 10000, "size": 1000, "from": "memory"}"#, 10),
        ] {
            let source = at(json, dir.path());
            source.make().unwrap();
            assert_eq!((source.files, source.tree), (files, true));
            assert_eq!(measure(&source.path).unwrap(), (source.bytes.get(), files));
        }
        let mixed = r#"{"name": "w", "volume": "1MiB", "from": "memory",
                        "mixed": {"median": "4KiB", "sigma": 1.5}}"#;
        let source = at(mixed, dir.path());
        source.make().unwrap();
        assert!(source.files > 20 && source.file_bytes.is_none());
        assert_eq!(measure(&source.path).unwrap(), (1 << 20, source.files));
    }

    #[test]
    fn own_data_counts_its_files_and_is_copied_into_memory() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        fs::create_dir_all(own.join("in")).unwrap();
        fs::write(own.join("a"), b"12345").unwrap();
        fs::write(own.join("in/b"), b"123").unwrap();
        let source = CopyData::own(&own).unwrap();
        assert_eq!((source.tree, source.bytes, source.files), (true, Bytes::new(8), 2));
        assert_eq!(source.missing(), Bytes::new(0));

        let memory = tempfile::tempdir().unwrap();
        let json = format!(r#"{{"name": "w", "data": "{}", "from": "memory"}}"#, own.display());
        let copy = at(&json, memory.path());
        copy.make().unwrap();
        assert_eq!(copy.path, memory.path().join("own"));
        assert_eq!(fs::read(copy.path.join("in/b")).unwrap(), b"123");
    }
}
