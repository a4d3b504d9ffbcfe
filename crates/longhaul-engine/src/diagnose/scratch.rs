//! A temporary directory beside the target, for the steps that write. It is emptied between steps,
//! and removed even if the client is killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, MinFree};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstatvfs, mkdirat, openat, unlinkat,
};
use rustix::io::Errno;

use crate::copy::reserve_of;
use crate::copy::tree::{FileKind, list};
use crate::copy::{DIAGNOSIS_DIGITS as DIGITS, DIAGNOSIS_PREFIX as PREFIX, Tree};
use crate::error::{EngineError, Result};
use crate::session::random_keying_material;

/// The time for which a copy that was stopped may still create files in the directory.
const PATIENCE: Duration = Duration::from_secs(3);

/// A temporary directory, which is removed with its contents when dropped.
pub(super) struct Scratch {
    /// The directory above it.
    parent: OwnedFd,
    name: OsString,
    /// The directory itself. Its lock shows a later diagnosis that this one runs.
    own: OwnedFd,
    /// The path for the target of a copy.
    path: PathBuf,
    /// The number of the empty directory that the next step writes to.
    number: u32,
}

impl Scratch {
    /// Creates the directory where a copy to `target` would write.
    ///
    /// # Errors
    /// The directory above does not exist or cannot be written.
    pub(super) fn make(tree: &Tree, target: &Path) -> Result<Self> {
        let above = directory_of(tree, target);
        let failed = EngineError::file("make a directory to write to in", &above);
        Self::make_in(tree, &above).map_err(failed)
    }

    fn make_in(tree: &Tree, above: &Path) -> io::Result<Self> {
        if !tree.rights().may_create() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let parent = tree.open_dir(above)?;
        sweep(&parent);
        let token = random_keying_material();
        let token: String = token[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = OsString::from(format!("{PREFIX}{token}"));
        mkdirat(&parent, &name, Mode::from_raw_mode(0o700))?;
        let path = above.join(&name);
        let own = open(&parent, &name).inspect_err(|_| remove(&parent, &name))?;
        let _ = flock(&own, FlockOperation::NonBlockingLockExclusive);
        Ok(Scratch { parent, name, own, path, number: 0 })
    }

    /// Removes all contents, creates an empty directory, and returns its path for a copy.
    ///
    /// # Errors
    /// The file system refuses.
    pub(super) fn fresh(&mut self) -> Result<PathBuf> {
        remove_all(&self.own);
        self.number += 1;
        let name = self.number.to_string();
        let path = self.path.join(&name);
        mkdirat(&self.own, &name, Mode::from_raw_mode(0o700))
            .map_err(|error| EngineError::file("make", &path)(error.into()))?;
        Ok(path)
    }

    /// Opens the directory that [`fresh`](Self::fresh) created last.
    ///
    /// # Errors
    /// The directory is gone.
    pub(super) fn directory(&self) -> Result<(OwnedFd, PathBuf)> {
        let name = self.number.to_string();
        let path = self.path.join(&name);
        let fd = open(&self.own, OsStr::new(&name)).map_err(EngineError::file("open", &path))?;
        Ok((fd, path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A copy that was stopped with its session may still create a file.
        let until = Instant::now() + PATIENCE;
        loop {
            remove(&self.parent, &self.name);
            let gone = openat(&self.parent, &self.name, OFlags::PATH, Mode::empty());
            if matches!(gone, Err(Errno::NOENT)) || Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the directory that a copy to `target` writes to: the target or the directory above it.
pub(super) fn directory_of(tree: &Tree, target: &Path) -> PathBuf {
    match tree.metadata(target) {
        Ok(metadata) if metadata.kind == FileKind::Directory => target.to_owned(),
        _ => match target.parent() {
            Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
            _ => PathBuf::from("."),
        },
    }
}

/// Returns the bytes of an open directory's file system that are free for this user, without the
/// reserve.
pub(super) fn free_bytes(dir: impl AsFd, reserve: MinFree) -> Option<Bytes> {
    let disk = fstatvfs(dir).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Some(Bytes::new(free.saturating_sub(reserve_of(&disk, reserve))))
}

/// Removes the directories of diagnoses that were killed, whose locks are free.
fn sweep(parent: &OwnedFd) {
    let Ok(readable) = open(parent, OsStr::new(".")) else { return };
    for name in list(readable).unwrap_or_default() {
        if !name.as_os_str().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        if let Ok(dir) = open(parent, name.as_os_str())
            && flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            remove(parent, name.as_os_str());
        }
    }
}

fn open(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Removes the file or directory `name`, if possible, without following links.
fn remove(parent: &OwnedFd, name: &OsStr) {
    if unlinkat(parent, name, AtFlags::empty()).is_ok() {
        return;
    }
    if let Ok(dir) = open(parent, name) {
        remove_all(&dir);
    }
    let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
}

fn remove_all(dir: &OwnedFd) {
    // Reading the names moves the file position, so this is a separate descriptor.
    let Ok(readable) = open(dir, OsStr::new(".")) else { return };
    for name in list(File::from(readable)).unwrap_or_default() {
        remove(dir, name.as_os_str());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn dropping_removes_the_directory_and_creating_removes_abandoned_ones() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), "x").unwrap();
        let left = dir.path().join(format!("{PREFIX}left/1/deep"));
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("file"), "x").unwrap();
        let tree = Tree::anywhere();
        let names = || list(fs::File::open(dir.path()).unwrap()).unwrap();
        let mut first = Scratch::make(&tree, dir.path()).unwrap();
        assert_eq!(names().len(), 2, "{:?}", names());
        let one = first.fresh().unwrap();
        fs::create_dir(one.join("sub")).unwrap();
        fs::write(one.join("sub/file"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("mine"), one.join("link")).unwrap();
        // A second diagnosis removes only directories whose locks are free.
        let second = Scratch::make(&tree, &dir.path().join("new-name")).unwrap();
        assert_eq!(names().len(), 3);
        let two = first.fresh().unwrap();
        assert!(!one.exists() && two.is_dir());
        assert!(free_bytes(first.directory().unwrap().0, MinFree::NONE).unwrap().get() > 0);
        drop((first, second));
        assert_eq!(names(), [PathBuf::from("mine")]);
        assert!(Scratch::make(&tree, Path::new("/no/such/place/x")).is_err());
    }
}
