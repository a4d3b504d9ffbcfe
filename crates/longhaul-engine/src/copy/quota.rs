//! The quota of a key during an upload: counts the files below its root and claims bytes.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use super::tree::{Tree, list};
use crate::error::{EngineError, Result};
use crate::session::{CountError, KeyQuota, OverQuota};

/// A file takes a multiple of this, the block size of most file systems.
const UNIT: u64 = 4096;
/// Most time for a count: the client waits for it.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Most directories that wait to be counted.
const DIRS_LIMIT: usize = 1 << 20;

/// An upload that counts against a quota, until it is dropped.
#[derive(Debug)]
pub(crate) struct QuotaUse {
    quota: KeyQuota,
    root: Tree,
    claimed: AtomicU64,
}

impl QuotaUse {
    /// Begins an upload into `root`, the files of a key.
    ///
    /// # Errors
    /// The files could not be counted.
    pub(super) fn begin(
        quota: KeyQuota,
        root: &Tree,
    ) -> std::result::Result<Arc<Self>, CountError> {
        quota.begin(|| stored_bytes(root, Instant::now() + TIME_LIMIT))?;
        Ok(Arc::new(QuotaUse { quota, root: root.clone(), claimed: AtomicU64::new(0) }))
    }

    /// Claims `bytes` of a file.
    pub(super) fn claim(&self, bytes: u64) -> Result<()> {
        let bytes = occupied(bytes);
        self.quota.claim(bytes, || self.count()).map_err(refused)?;
        self.claimed.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Fails if files that [occupy](occupied) `bytes` do not fit.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        self.quota.check(bytes, || self.count()).map_err(refused)
    }

    fn count(&self) -> std::result::Result<u64, CountError> {
        stored_bytes(&self.root, Instant::now() + TIME_LIMIT)
    }
}

impl Drop for QuotaUse {
    fn drop(&mut self) {
        self.quota.end(self.claimed.load(Ordering::Relaxed));
    }
}

/// What a file of `bytes` takes on the disk.
pub(super) fn occupied(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX)
}

fn refused(over: OverQuota) -> EngineError {
    let OverQuota { needs, left, limit } = over;
    EngineError::OverQuota { needs, left, limit }
}

/// The bytes on the disk of the regular files below `root`, each counted once. No link is followed;
/// file systems that are mounted below it belong to it.
fn stored_bytes(root: &Tree, deadline: Instant) -> std::result::Result<u64, CountError> {
    let mut waiting = vec![PathBuf::new()];
    let mut linked = HashSet::new();
    let mut bytes = 0_u64;
    while let Some(path) = waiting.pop() {
        let unreadable = |error: io::Error| cannot_read(&path, &error);
        let Some(dir) = there(root.open_real_dir(&path)).map_err(unreadable)? else { continue };
        for name in list(&dir).map_err(unreadable)? {
            if Instant::now() >= deadline {
                let seconds = TIME_LIMIT.as_secs();
                return Err(CountError(format!("they are too many to count in {seconds} s")));
            }
            if waiting.len() >= DIRS_LIMIT {
                return Err(CountError(format!("more than {DIRS_LIMIT} directories wait")));
            }
            let found =
                look(&dir, &name).map_err(|error| cannot_read(&path.join(&name), &error))?;
            match found {
                Some((FileType::Directory, ..)) => waiting.push(path.join(name)),
                Some((FileType::RegularFile, found, names, id))
                    if names == 1 || linked.insert(id) =>
                {
                    bytes = bytes.saturating_add(found);
                }
                _ => {}
            }
        }
    }
    Ok(bytes)
}

/// The path is relative to the root, whose place is not for clients.
fn cannot_read(path: &Path, error: &io::Error) -> CountError {
    if path.as_os_str().is_empty() {
        return CountError(format!("their directory cannot be read: {error}"));
    }
    CountError(format!("{} cannot be read: {error}", path.display()))
}

/// The type of a file, its bytes on the disk, the number of its names, and its device and inode.
type DiskUse = (FileType, u64, u64, (u64, u64));

fn look(dir: &OwnedFd, name: &Path) -> io::Result<Option<DiskUse>> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
    Ok(there(stat)?.map(|stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let bytes = (stat.st_blocks as u64).saturating_mul(512);
        (kind, bytes, stat.st_nlink, (stat.st_dev, stat.st_ino))
    }))
}

/// Nothing where a name was removed, or replaced by a link, in the meantime.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if Errno::from_io_error(&error).is_some_and(|errno| gone.contains(&errno)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn every_file_below_the_root_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let (root, sub) = (dir.path(), dir.path().join("a/b"));
        fs::create_dir_all(&sub).unwrap();
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        fs::write(root.join("one"), vec![1; 10_000]).unwrap();
        fs::write(sub.join("two"), vec![1; 20_000]).unwrap();
        fs::hard_link(sub.join("two"), root.join("again")).unwrap();
        symlink(outside.path(), root.join("dir")).unwrap();
        symlink(outside.path().join("large"), root.join("file")).unwrap();
        fs::File::create(root.join("hole")).unwrap().set_len(1 << 30).unwrap();
        let tree = Tree::beneath(root).unwrap();
        let blocks = |path: PathBuf| fs::metadata(path).unwrap().blocks() * 512;
        let expected =
            blocks(root.join("one")) + blocks(sub.join("two")) + blocks(root.join("hole"));
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(stored_bytes(&tree, later).unwrap(), expected);
        assert!(expected >= 30_000);
        let late = stored_bytes(&tree, Instant::now()).unwrap_err();
        assert!(late.to_string().contains("too many to count in 10 s"), "{late}");
    }

    #[test]
    fn a_file_takes_whole_blocks() {
        assert_eq!([0, 1, 4096, 4097].map(occupied), [0, 4096, 4096, 8192]);
        assert_eq!(occupied(u64::MAX), u64::MAX);
    }
}
