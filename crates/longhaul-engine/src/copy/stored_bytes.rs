//! Counts the bytes of the files below a root, for a quota.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use super::quota::UNIT;
use super::tree::{Tree, link_count, list};
use crate::session::CountError;

/// The time limit of a count, because the client waits for it.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of directories that wait to be counted.
const DIRS_LIMIT: usize = 1 << 20;

/// Counts the files below `root`, within a limit of time.
pub(super) fn stored_bytes(root: &Tree) -> Result<u64, CountError> {
    stored_until(root, Instant::now() + TIME_LIMIT)
}

/// Returns the bytes on the disk of the regular files below `root`, each counted once, and at least
/// [`UNIT`] per name. No link is followed; file systems that are mounted below `root` are included.
fn stored_until(root: &Tree, deadline: Instant) -> Result<u64, CountError> {
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
                lookup_name(&dir, &name).map_err(|error| cannot_read(&path.join(&name), &error))?;
            let found = match found {
                Some((FileType::Directory, ..)) => {
                    waiting.push(path.join(name));
                    UNIT
                }
                Some((FileType::RegularFile, found, names, id))
                    if names == 1 || linked.insert(id) =>
                {
                    found.max(UNIT)
                }
                Some(_) => UNIT,
                None => 0,
            };
            bytes = bytes.saturating_add(found);
        }
    }
    Ok(bytes)
}

/// Returns the error for `path`, which is relative to the root: clients do not learn its location.
fn cannot_read(path: &Path, error: &io::Error) -> CountError {
    if path.as_os_str().is_empty() {
        return CountError(format!("their directory cannot be read: {error}"));
    }
    CountError(format!("{} cannot be read: {error}", path.display()))
}

/// The type of a file, its bytes on the disk, the number of its names, and its device and inode.
type FoundName = (FileType, u64, u64, (u64, u64));

fn lookup_name(dir: &OwnedFd, name: &Path) -> io::Result<Option<FoundName>> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
    Ok(there(stat)?.map(|stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let bytes = (stat.st_blocks as u64).saturating_mul(512);
        (kind, bytes, link_count(&stat), (stat.st_dev, stat.st_ino))
    }))
}

/// Returns `None` if a name was removed, or replaced by a link, in the meantime.
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
        // A name takes 4 KiB at least: two directories, two links, a second name, an empty file.
        let expected = blocks(root.join("one")) + blocks(sub.join("two")) + 6 * UNIT;
        assert_eq!(blocks(root.join("hole")), 0);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(stored_until(&tree, later).unwrap(), expected);
        assert!(expected >= 30_000);
        let late = stored_until(&tree, Instant::now()).unwrap_err();
        assert!(late.to_string().contains("too many to count in 10 s"), "{late}");
    }
}
