//! What disk runs copy: the user's own data, or a file of incompressible bytes that is made once
//! and reused; and whether the disk has room for it and a copy.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_core::plan::{Entry, MatrixPlan, Workload};
use longhaul_core::units::Bytes;

use crate::LabError;

/// What is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Absolute.
    pub path: PathBuf,
    /// Whether it is a directory.
    pub tree: bool,
    /// Of all files together.
    pub bytes: Bytes,
    /// How many.
    pub files: u64,
}

impl Source {
    /// The user's own file or directory.
    ///
    /// # Errors
    /// It cannot be read, is neither file nor directory, or holds nothing.
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
        Ok(Source { path, tree, bytes: Bytes::new(bytes), files })
    }

    /// The file of incompressible bytes of this size; it may not exist yet.
    ///
    /// # Errors
    /// The cache's directory cannot be found or made.
    pub fn cached(size: Bytes) -> Result<Self, LabError> {
        let dir = cache_dir();
        fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
        let path = dir.join(format!("data-{}.bin", size.get()));
        Ok(Source { path, tree: false, bytes: size, files: 1 })
    }

    /// Bytes that [`Source::make`] would write.
    pub fn missing(&self) -> Bytes {
        let there = fs::metadata(&self.path)
            .is_ok_and(|data| data.is_dir() || data.len() == self.bytes.get());
        Bytes::new(if self.tree || there { 0 } else { self.bytes.get() })
    }

    /// Writes the file where it is missing, under its name only when it is whole.
    ///
    /// # Errors
    /// The disk's.
    pub fn make(&self) -> Result<(), LabError> {
        if self.missing().get() == 0 {
            return Ok(());
        }
        let part = self.path.with_extension("part");
        let written = File::create(&part).and_then(|file| {
            fill(&file, self.bytes.get())?;
            file.sync_all()?;
            fs::rename(&part, &self.path)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&part);
            LabError::file("write the data file", &self.path)(error)
        })
    }
}

fn cache_dir() -> PathBuf {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(home)
        .unwrap_or_else(env::temp_dir)
        .join("longhaul")
}

/// Bytes and number of all files in `path`. Symbolic links are not followed and count nothing.
fn measure(path: &Path) -> Result<(u64, u64), LabError> {
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

/// Writes `size` bytes of SplitMix64 (Steele, Lea and Flood, 2014): passes for noise with every
/// compressor, and the same on every machine.
fn fill(mut file: &File, size: u64) -> io::Result<()> {
    let mut state: u64 = 0x10_9a01; // any number; fixed, so that data of one size is the same data
    let mut block = vec![0_u8; 1 << 20];
    let mut left = size;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&split_mix(&mut state).to_le_bytes());
        }
        let now = left.min(block.len() as u64);
        file.write_all(&block[..now as usize])?;
        left -= now;
    }
    Ok(())
}

/// One step of SplitMix64.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What each entry of a plan copies; `None` for memory entries.
///
/// # Errors
/// The user's data cannot be read, or the cache's directory cannot be made.
pub fn sources(plan: &MatrixPlan) -> Result<Vec<Option<Source>>, LabError> {
    let own = match &plan.disk.data {
        Some(data) if plan.has(Workload::Disk) => Some(Source::own(Path::new(data))?),
        _ => None,
    };
    let of = |entry: &Entry| match (entry.workload, &own) {
        (Workload::Memory, _) => Ok(None),
        (Workload::Disk, Some(own)) => Ok(Some(own.clone())),
        (Workload::Disk, None) => Source::cached(plan.size_for(entry)).map(Some),
    };
    plan.entries.iter().map(of).collect()
}

/// Checks that the disks have room for the data that is still to be made and one copy of the
/// largest, with 5 % to spare for metadata and for what else the machine writes.
///
/// # Errors
/// They have not, or cannot be asked.
pub fn check_room<'a>(
    sources: impl IntoIterator<Item = &'a Source>,
    scratch: &Path,
) -> Result<(), LabError> {
    let all: BTreeMap<&Path, &Source> =
        sources.into_iter().map(|source| (source.path.as_path(), source)).collect();
    let Some(largest) = all.values().max_by_key(|source| source.bytes) else { return Ok(()) };
    let copy = with_margin(largest.bytes.get());
    let data = with_margin(all.values().map(|source| source.missing().get()).sum());
    let source_dir = largest.path.parent().unwrap_or(&largest.path);
    if data > 0 && device(source_dir)? == device(scratch)? {
        return room_for(scratch, copy + data);
    }
    room_for(source_dir, data)?;
    room_for(scratch, copy)
}

fn with_margin(bytes: u64) -> u64 {
    bytes + bytes / 20
}

fn device(path: &Path) -> Result<u64, LabError> {
    Ok(fs::metadata(path).map_err(LabError::file("read", path))?.dev())
}

fn room_for(path: &Path, needed: u64) -> Result<(), LabError> {
    let disk = rustix::fs::statvfs(path)
        .map_err(|error| LabError::file("ask for the room on the disk of", path)(error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        let (free, needed) = (Bytes::new(free), Bytes::new(needed));
        return Err(LabError::NoRoom { path: path.to_owned(), free, needed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_once_and_is_the_same_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Source {
            path: dir.path().join(name),
            tree: false,
            bytes: Bytes::new((1 << 20) + 5),
            files: 1,
        };
        let (one, two) = (at("one.bin"), at("two.bin"));
        assert_eq!(one.missing(), one.bytes);
        one.make().unwrap();
        two.make().unwrap();
        assert_eq!(one.missing(), Bytes::new(0));
        assert_eq!(fs::read(&one.path).unwrap(), fs::read(&two.path).unwrap());
        assert!(!dir.path().join("one.part").exists());

        // A file of another size under that name is not taken for the data.
        fs::write(&one.path, b"short").unwrap();
        assert_eq!(one.missing(), one.bytes);
    }

    #[test]
    fn a_tree_counts_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("a"), b"12345").unwrap();
        fs::write(dir.path().join("in/b"), b"123").unwrap();
        let source = Source::own(dir.path()).unwrap();
        assert_eq!((source.tree, source.bytes, source.files), (true, Bytes::new(8), 2));
        assert_eq!(source.missing(), Bytes::new(0));
    }

    #[test]
    fn no_room_is_said_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source {
            path: dir.path().join("data.bin"),
            tree: false,
            bytes: Bytes::new(1 << 60),
            files: 1,
        };
        let error = check_room([&source], dir.path()).unwrap_err();
        let LabError::NoRoom { needed, free, .. } = &error else { panic!("{error}") };
        assert_eq!(needed.get(), 2 * ((1 << 60) + (1 << 60) / 20));
        assert!(error.to_string().contains(&free.to_string()), "{error}");
    }
}
