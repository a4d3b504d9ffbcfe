//! Reads the target of a copy as cp(1) and scp(1) do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{CopyKey, Top};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::outlet::Outlet;
use crate::copy::journal::Journal;
use crate::copy::names::{has_reserved, is_reserved, split_at_diagnosis};
use crate::copy::tree::{FileKind, Tree};

/// The destination of the entries, which is decided before the first byte.
#[derive(Debug, Clone)]
pub enum Destination {
    /// No destination: blocks are verified and dropped.
    Null,
    /// Into a directory.
    Directory {
        /// The directory tree that the copy may change.
        tree: Tree,
        /// The directory's path, for messages.
        path: PathBuf,
        /// The name that the top-level entry gets instead of its own.
        rename: Option<OsString>,
        /// True if the entry with that name has to be a directory: the target ends with a slash.
        only_dir: bool,
        /// True if the entries are the contents of a directory whose counterpart is this directory.
        contents: bool,
    },
    /// Standard output, in order.
    Outlet(Arc<Outlet>),
    /// A missing directory, in a dry run.
    Planned(PathBuf),
}

/// The reason why a target cannot take the entries.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Several files, or a directory's contents, need a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A name ends with a slash and there is no such directory.
    #[error("{}: no such directory; create it first", .0.display())]
    NoDirectory(PathBuf),
    /// The name is one that longhaul keeps for its own files.
    #[error("cannot write to {}: longhaul keeps such names for its own files", .0.display())]
    Reserved(PathBuf),
    /// The directory that should hold the target cannot be used.
    #[error("cannot use the directory {}: {}", .path.display(), .source)]
    Parent {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl Destination {
    /// Returns whether entries may have the owners, set-id bits and capabilities of the source.
    pub(super) fn may_own(&self) -> bool {
        !matches!(self, Destination::Directory { tree, .. } if !tree.may_own())
    }

    /// Returns the name that the only top-level entry gets instead of the source's name.
    pub(super) fn given_name(&self) -> Option<FilePath> {
        let Destination::Directory { rename: Some(name), .. } = self else { return None };
        FilePath::new(name.as_bytes())
    }

    /// Returns the directory that entries are created in.
    pub(super) fn base(&self) -> Option<OwnedFd> {
        let Destination::Directory { tree, .. } = self else { return None };
        tree.open_dir(Path::new(".")).ok()
    }

    /// Interprets `target` as cp and scp do: into it if it is a directory, else under its name in
    /// the directory above it.
    ///
    /// A directory that an earlier attempt of the copy `key` has made does not count as an existing
    /// one.
    ///
    /// # Errors
    /// The target cannot take `top`.
    pub fn place(
        tree: &Tree,
        target: &Path,
        top: Top,
        key: &CopyKey,
        options: &CopyOptions,
    ) -> Result<Self, PlaceError> {
        if target == Path::new("/dev/null") {
            return Ok(Destination::Null);
        }
        if is_kept_for_ours(tree, target) {
            return Err(PlaceError::Reserved(target.to_owned()));
        }
        let existing = match tree.metadata(target) {
            Ok(metadata) => Some(metadata.kind),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(parent_failed(target)(error)),
        };
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let slash = target.as_os_str().as_bytes().ends_with(b"/");
        let contents = top == Top::Contents;
        let into = |path: &Path, rename| Self::into_directory(tree, path, rename, slash, contents);
        // An earlier attempt of this copy has made the directory.
        let begun = |name: &OsStr| {
            let given = tree.open_dir(parent).ok().and_then(|dir| Journal::given_name(&dir, key));
            given.is_some_and(|given| given.as_bytes() == name.as_bytes())
        };
        match (existing, top) {
            (Some(FileKind::Directory), Top::One) if target.file_name().is_some_and(begun) => {
                into(parent, target.file_name().map(OsStr::to_owned))
            }
            (Some(FileKind::Directory), _) => into(target, None),
            (Some(_), Top::Several | Top::Contents) => {
                Err(PlaceError::NotADirectory(target.to_owned()))
            }
            (None, Top::Several) => Err(PlaceError::NoDirectory(target.to_owned())),
            (None, Top::Contents) if options.tree.dry_run && target.file_name().is_some() => {
                Ok(Destination::Planned(target.to_owned()))
            }
            (None, Top::Contents) => {
                make_directory(tree, parent, target, options.durable)?;
                into(target, None)
            }
            (_, Top::One) => {
                // cp(1) creates a directory for a name with a final slash only if the source is a
                // directory.
                let fits = !slash || existing.is_none() && options.recursive;
                match target.file_name() {
                    Some(name) if fits => into(parent, Some(name.to_owned())),
                    _ => Err(PlaceError::NoDirectory(target.to_owned())),
                }
            }
        }
    }

    /// Returns the directory `path` as destination.
    fn into_directory(
        tree: &Tree,
        path: &Path,
        rename: Option<OsString>,
        only_dir: bool,
        contents: bool,
    ) -> Result<Self, PlaceError> {
        let dir = tree.open_dir(path).map_err(parent_failed(path))?;
        let tree = Tree::from_dir(dir)
            .with_rights(tree.rights())
            .with_owners(tree.may_own())
            .with_min_free(tree.min_free())
            .with_quota(tree.quota().cloned());
        Ok(Destination::Directory { tree, path: path.to_owned(), rename, only_dir, contents })
    }
}

/// Creates the directory `target` in `parent`, and makes its name durable if `durable` is set.
fn make_directory(
    tree: &Tree,
    parent: &Path,
    target: &Path,
    durable: bool,
) -> Result<(), PlaceError> {
    let Some(name) = target.file_name() else {
        return Err(PlaceError::NoDirectory(target.to_owned()));
    };
    let above = tree.open_dir(parent).map_err(parent_failed(parent))?;
    rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777))
        .map_err(io::Error::from)
        .and_then(|()| if durable { sync_names(&above) } else { Ok(()) })
        .map_err(parent_failed(target))
}

/// Returns a function that makes the error of the directory `path` from its source.
fn parent_failed(path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    let path = path.to_owned();
    move |source| PlaceError::Parent { path, source }
}

/// Makes the names in `dir` durable, if this user may read it. The sink syncs only directories of the
/// target.
fn sync_names(dir: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(dir, ".", flags, Mode::empty()) {
        Ok(dir) => Ok(rustix::fs::fsync(dir)?),
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether `target` is reserved. The directories above a path of this host's user may have
/// any name.
fn is_kept_for_ours(tree: &Tree, target: &Path) -> bool {
    if !tree.is_bounded() {
        return target.file_name().is_some_and(|name| is_reserved(name.as_bytes()));
    }
    match split_at_diagnosis(target) {
        Some((directory, below)) => {
            let above = directory.parent().is_some_and(has_reserved);
            above || has_reserved(below) || !is_held(tree, directory)
        }
        None => has_reserved(target),
    }
}

/// Returns whether a running diagnosis holds the lock of its `directory`. The answer is true on file
/// systems without locks, where the name is the only proof.
fn is_held(tree: &Tree, directory: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = tree.open_dir(directory).ok();
    let open = open.and_then(|path| openat(path, ".", flags, Mode::empty()).ok());
    let lock = open.map(|directory| flock(directory, FlockOperation::NonBlockingLockShared));
    matches!(lock, Some(Err(Errno::WOULDBLOCK | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(target: &Path, top: Top) -> Result<(PathBuf, Option<OsString>), PlaceError> {
        let (tree, key, options) = (Tree::anywhere(), CopyKey::new(1), CopyOptions::default());
        match Destination::place(&tree, target, top, &key, &options)? {
            Destination::Directory { path, rename, .. } => Ok((path, rename)),
            Destination::Planned(_) => panic!("this is no dry run"),
            Destination::Null => Ok(("null".into(), None)),
            Destination::Outlet(_) => panic!("no path leads to one"),
        }
    }

    #[test]
    fn targets_are_read_in_the_manner_of_cp() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(dir.join("file"), "x").unwrap();
        assert_eq!(place(dir, Top::One).unwrap(), (dir.into(), None));
        assert_eq!(place(dir, Top::Several).unwrap(), (dir.into(), None));
        let new = place(&dir.join("new"), Top::One).unwrap();
        assert_eq!(new, (dir.into(), Some("new".into())));
        let over = place(&dir.join("file"), Top::One).unwrap();
        assert_eq!(over, (dir.into(), Some("file".into())));
        let inside = place(&dir.join("made"), Top::Contents).unwrap();
        assert_eq!(inside, (dir.join("made"), None));
        assert!(dir.join("made").is_dir());
        assert_eq!(place(Path::new("/dev/null"), Top::Several).unwrap().0, Path::new("null"));
    }

    #[test]
    fn an_impossible_target_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(dir.join("file"), "x").unwrap();
        let failure = |target: &str, top| place(&dir.join(target), top).unwrap_err();
        assert!(matches!(failure("file", Top::Several), PlaceError::NotADirectory(_)));
        assert!(matches!(failure("file", Top::Contents), PlaceError::NotADirectory(_)));
        assert!(matches!(failure("new/", Top::One), PlaceError::NoDirectory(_)));
        assert!(matches!(failure("new", Top::Several), PlaceError::NoDirectory(_)));
        assert!(matches!(failure("none/new", Top::One), PlaceError::Parent { .. }));
        assert!(matches!(failure("file/new", Top::One), PlaceError::Parent { .. }));
    }
}
