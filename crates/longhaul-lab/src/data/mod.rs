//! The data that tools copy: the user's own data, or files of incompressible bytes that are created
//! once and reused. Also checks that disk and memory have space for the data and the copies.

mod make;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longhaul_core::plan::DataStore;
use longhaul_core::units::Bytes;
use tempfile::TempDir;

use crate::LabError;

pub(crate) use make::split_mix;
pub use source::{CacheEntry, CopyData, cache_entries, sources};

/// The space that a matrix needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceNeeds {
    /// The disk space in use at one time: created data and the largest copy.
    pub disk: Bytes,
    /// The memory in use at one time: created data and the largest copy.
    pub memory: Bytes,
    /// The disk space at the far end of a real path for the largest copy; zero for emulated paths.
    pub far: Bytes,
}

impl SpaceNeeds {
    /// Computes the space for `sources`, each with its number of simultaneous clients. With `real`
    /// the copies go to the far end of a real path, otherwise to this host.
    pub fn of<'a>(sources: impl IntoIterator<Item = (&'a CopyData, u32)>, real: bool) -> Self {
        let mut made: BTreeMap<&Path, (DataStore, u64)> = BTreeMap::new();
        let mut largest = [0_u64; 2];
        for (source, clients) in sources {
            made.insert(&source.path, (source.store, source.missing().get()));
            let copies = source.bytes.get().saturating_mul(u64::from(clients));
            let most = &mut largest[usize::from(source.to == DataStore::Memory)];
            *most = copies.max(*most);
        }
        let of = |store: DataStore, copies: u64| {
            let made: u64 = made.values().filter(|(at, _)| *at == store).map(|(_, b)| b).sum();
            Bytes::new(with_margin(made + copies))
        };
        let (here, far) = if real { ([0, 0], largest) } else { (largest, [0, 0]) };
        SpaceNeeds {
            disk: of(DataStore::Disk, here[0]),
            memory: of(DataStore::Memory, here[1]),
            far: Bytes::new(with_margin(far.iter().sum())),
        }
    }

    /// Returns the memory that the host can provide now: `MemAvailable` of proc_meminfo(5).
    pub fn available_memory() -> Option<Bytes> {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Bytes::kib(kib))
    }
}

/// Checks that the disks have space for the data still to be created and for the copies of the
/// largest source, plus 5 % for metadata and other writers. `scratch` is on the disk that receives
/// the copies; `None` if the copies go to another host.
///
/// # Errors
/// The space is insufficient or unknown.
pub fn check_room<'a>(
    sources: impl IntoIterator<Item = (&'a CopyData, u32)>,
    scratch: Option<&Path>,
) -> Result<(), LabError> {
    let mut data: BTreeMap<&Path, u64> = BTreeMap::new();
    let mut copies = 0;
    for (source, clients) in sources {
        if source.store == DataStore::Disk {
            data.insert(&source.path, source.missing().get());
        }
        if scratch.is_some() && source.to == DataStore::Disk {
            copies = source.bytes.get().saturating_mul(u64::from(clients)).max(copies);
        }
    }
    let missing = with_margin(data.values().sum());
    let copies = with_margin(copies);
    let to_make = data.iter().find(|(_, missing)| **missing > 0).map(|(path, _)| *path);
    if let Some(path) = to_make {
        let dir = path.parent().unwrap_or(path);
        if let Some(scratch) = scratch
            && device(dir)? == device(scratch)?
        {
            return room_for(scratch, copies + missing);
        }
        room_for(dir, missing)?;
    }
    scratch.filter(|_| copies > 0).map_or(Ok(()), |scratch| room_for(scratch, copies))
}

/// Returns `bytes` plus 5 %.
pub(crate) fn with_margin(bytes: u64) -> u64 {
    bytes + bytes / 20
}

fn device(path: &Path) -> Result<u64, LabError> {
    Ok(fs::metadata(path).map_err(LabError::file("read", path))?.dev())
}

fn room_for(path: &Path, needed: u64) -> Result<(), LabError> {
    let disk = rustix::fs::statvfs(path)
        .map_err(|error| LabError::file("get the free space on the disk of", path)(error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        let (free, needed) = (Bytes::new(free), Bytes::new(needed));
        return Err(LabError::NoRoom { path: path.to_owned(), free, needed });
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use longhaul_core::plan::PlannedWork;

    use super::*;

    fn source(json: &str, dir: &Path) -> CopyData {
        let work: PlannedWork = serde_json::from_str(json).unwrap();
        CopyData::of(&work, Some(dir)).unwrap().unwrap()
    }

    #[test]
    fn a_lack_of_space_states_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let large = source(r#"{"name": "w", "size": 1152921504606846976}"#, dir.path());
        let large = CopyData { path: dir.path().join("data.bin"), ..large };
        let error = check_room([(&large, 1)], Some(dir.path())).unwrap_err();
        let LabError::NoRoom { needed, free, .. } = &error else { panic!("{error}") };
        assert_eq!(needed.get(), 2 * ((1 << 60) + (1 << 60) / 20));
        assert!(error.to_string().contains(&free.to_string()), "{error}");
        let error = check_room([(&large, 1)], None).unwrap_err();
        let LabError::NoRoom { needed, .. } = &error else { panic!("{error}") };
        assert_eq!(needed.get(), (1 << 60) + (1 << 60) / 20, "the copies are elsewhere");
        assert!(SpaceNeeds::available_memory().unwrap() > Bytes::mib(1));
    }

    #[test]
    fn memory_and_disk_are_counted_apart_and_each_source_once() {
        let dir = tempfile::tempdir().unwrap();
        let memory = r#"{"name": "a", "size": 2000, "from": "memory"}"#;
        let both = r#"{"name": "b", "size": 4000, "from": "memory", "to": "memory"}"#;
        let (one, two) = (source(memory, dir.path()), source(both, dir.path()));
        let space = SpaceNeeds::of([(&one, 3), (&one, 1), (&two, 1)], false);
        assert_eq!(space.disk, Bytes::new(6000 + 300));
        assert_eq!(space.memory, Bytes::new(10_000 + 500));
        assert_eq!(space.far, Bytes::new(0));
        let space = SpaceNeeds::of([(&one, 3), (&one, 1), (&two, 1)], true);
        assert_eq!((space.disk, space.memory), (Bytes::new(0), Bytes::new(6000 + 300)));
        assert_eq!(space.far, Bytes::new(10_000 + 500));
    }
}
