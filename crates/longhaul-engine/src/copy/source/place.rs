//! The descriptors of a walk: the directories from which the files of a root are opened, and the
//! directories above the present one.
//!
//! A walk opens every name relative to the descriptor of the directory in which it was listed. If
//! another process replaces a directory by a symbolic link, the walk stays in the directory. If
//! links are kept, files are opened relative to the descriptor of their root, and no link is
//! followed.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, readlinkat, statat};

use crate::copy::tree::{FileKind, Metadata, Tree};

/// The number of directories above the present one that are kept open. A directory farther above is
/// opened again when the walk returns to it.
const OPEN_LEVELS: usize = 64;

/// The directory from which the files of one root are opened.
#[derive(Debug, Clone)]
pub(super) struct SourcePlace {
    tree: Tree,
    /// Bytes at the front of a path that lead to the root.
    skip: usize,
}

impl SourcePlace {
    /// Creates the place of paths as `tree` reads them.
    pub(super) fn of(tree: &Tree) -> Self {
        SourcePlace { tree: tree.clone(), skip: 0 }
    }

    /// Creates the place of paths that begin with `root`, whose directory is `dir`; no link is
    /// followed beneath it.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(super) fn beneath(dir: &OwnedFd, root: &Path) -> io::Result<Self> {
        let tree = Tree::from_dir(dir.try_clone()?).without_links();
        Ok(SourcePlace { tree, skip: root.join("").as_os_str().len() })
    }

    /// Returns a handle on `path` and its metadata.
    pub(super) fn lookup(&self, path: &Path, follow: bool) -> io::Result<(OwnedFd, Metadata)> {
        self.tree.lookup(self.relative(path), follow)
    }

    /// Opens a regular file to be read through the page cache.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<File> {
        self.tree.open_file(self.relative(path))
    }

    /// Opens `path` for direct I/O, if the file system supports it.
    pub(super) fn open_direct(&self, path: &Path) -> Option<File> {
        self.tree.open_direct(self.relative(path))
    }

    fn relative<'p>(&self, path: &'p Path) -> &'p Path {
        let bytes = path.as_os_str().as_bytes();
        Path::new(OsStr::from_bytes(bytes.get(self.skip..).unwrap_or_default()))
    }
}

/// The directories from a root down to the present one.
#[derive(Default)]
pub(super) struct ParentDirs(Vec<Level>);

struct Level {
    identity: (u64, u64),
    handle: Option<OwnedFd>,
}

impl ParentDirs {
    /// Returns whether the directory of this identity is one of them.
    pub(super) fn contains(&self, identity: (u64, u64)) -> bool {
        self.0.iter().any(|level| level.identity == identity)
    }

    /// Enters a directory.
    pub(super) fn push(&mut self, identity: (u64, u64), handle: OwnedFd) {
        self.0.push(Level { identity, handle: Some(handle) });
        if let Some(far) = self.0.len().checked_sub(OPEN_LEVELS + 1) {
            self.0[far].handle = None;
        }
    }

    /// Leaves it.
    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns the present directory; `reopen` opens it again.
    ///
    /// # Errors
    /// It cannot be opened again, or another directory has its name now.
    pub(super) fn present(
        &mut self,
        reopen: impl FnOnce() -> io::Result<(OwnedFd, Metadata)>,
    ) -> io::Result<&OwnedFd> {
        let level = self.0.last_mut().ok_or(io::ErrorKind::NotFound)?;
        let handle = match level.handle.take() {
            Some(handle) => handle,
            None => {
                let (handle, metadata) = reopen()?;
                if metadata.identity != level.identity {
                    return Err(io::Error::other("a directory above it was replaced"));
                }
                handle
            }
        };
        Ok(level.handle.insert(handle))
    }
}

/// Returns the metadata of `name` in the directory `dir`, or of the link of that name, and a handle on
/// it. A regular file has a handle only `with_files`, which saves two system calls: whoever opens the
/// file compares it with the metadata.
pub(super) fn lookup_in(
    dir: &OwnedFd,
    name: &Path,
    with_files: bool,
) -> io::Result<(Option<OwnedFd>, Metadata)> {
    if !with_files {
        let metadata = Metadata::of(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
        if metadata.kind == FileKind::File {
            return Ok((None, metadata));
        }
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(dir, name, flags, Mode::empty())?;
    let metadata = Metadata::of(&fstat(&handle)?);
    Ok((Some(handle), metadata))
}

/// Returns the target of the symbolic link of `handle`.
pub(super) fn link_target(handle: &OwnedFd) -> io::Result<CString> {
    Ok(readlinkat(handle, "", Vec::new())?)
}
