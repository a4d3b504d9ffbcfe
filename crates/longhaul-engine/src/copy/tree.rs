//! The files that a copy may reach: all files that this user may reach, or only those beneath one
//! directory.
//!
//! Beneath a directory the kernel resolves every path with `RESOLVE_BENEATH` (openat2(2)), so that
//! neither `..` nor a symbolic link, even one that changes at the same time, leads out of it.
//! Paths from a peer are opened only in this way.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::units::MinFree;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::DeviceNumber;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;
use twox_hash::XxHash3_128;

use super::quota::QuotaUse;
use crate::session::Rights;

/// A view of the file system; cheap to clone.
#[derive(Debug, Clone)]
pub struct Tree {
    beneath: Option<Arc<OwnedFd>>,
    /// Symbolic links in the middle of a path are followed.
    links: bool,
    rights: Rights,
    third_party: bool,
    owners: bool,
    min_free: MinFree,
    quota: Option<Arc<QuotaUse>>,
}

/// The metadata of a file that a walk needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) kind: FileKind,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) mtime_seconds: i64,
    pub(super) mtime_ns: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Names that the file has.
    pub(super) names: u64,
    /// Change time, which no program can set: seconds and nanoseconds.
    pub(super) ctime: (i64, u64),
    /// The allocated size, in units of 512 bytes.
    pub(super) sectors: u64,
    /// Device and inode, which identify the file.
    pub(super) identity: (u64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice(DeviceNumber),
    BlockDevice(DeviceNumber),
}

/// Returns the number of hard links of a file.
#[allow(clippy::useless_conversion, reason = "the type depends on the architecture")]
pub(super) fn link_count(stat: &Stat) -> u64 {
    stat.st_nlink.into()
}

impl Metadata {
    pub(super) fn of(stat: &Stat) -> Self {
        let device = || DeviceNumber {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice => FileKind::CharDevice(device()),
            FileType::BlockDevice => FileKind::BlockDevice(device()),
            // Linux has no others.
            FileType::RegularFile | FileType::Unknown => FileKind::File,
        };
        Metadata {
            kind,
            size: stat.st_size as u64,
            mode: stat.st_mode & 0o7777,
            mtime_seconds: stat.st_mtime,
            mtime_ns: stat.st_mtime_nsec as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            names: link_count(stat),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
            sectors: stat.st_blocks as u64,
            identity: (stat.st_dev, stat.st_ino),
        }
    }

    /// Returns a number that changes with the identity, size and times of the file.
    pub(super) fn stamp(&self) -> u64 {
        let fields = [
            self.identity.0,
            self.identity.1,
            self.size,
            self.mtime_seconds as u64,
            self.mtime_ns.into(),
            self.ctime.0 as u64,
            self.ctime.1,
        ];
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()).collect();
        XxHash3_128::oneshot(&bytes) as u64
    }

    /// Returns whether the allocated size is less than the length.
    pub(super) fn is_sparse(&self) -> bool {
        self.sectors.saturating_mul(512) < self.size
    }
}

/// The kernel found a path that leads out of the directory of a tree.
#[derive(Debug, thiserror::Error)]
#[error("the path is outside the offered directory")]
struct LeadsOut;

/// openat2(2) fails with ENOSYS: the kernel is older than Linux 5.6, or a seccomp filter hides the call,
/// as systemd's does.
#[derive(Debug, thiserror::Error)]
#[error(
    "openat2(2), which keeps paths beneath a directory, is not available: it needs Linux 5.6 or later \
     and, under systemd, a unit without RestrictSUIDSGID= and DynamicUser="
)]
struct NoOpenat2;

/// Returns the error of a path in a directory. The kernel's text for a path that leads out of it is
/// about links between devices.
fn within(error: Errno) -> io::Error {
    match error {
        Errno::XDEV => io::Error::new(io::ErrorKind::PermissionDenied, LeadsOut),
        Errno::NOSYS => io::Error::new(io::ErrorKind::Unsupported, NoOpenat2),
        other => other.into(),
    }
}

impl Tree {
    /// Returns all files that this user may reach; relative paths begin at the working directory.
    pub fn anywhere() -> Self {
        Tree {
            beneath: None,
            links: true,
            rights: Rights::Full,
            third_party: true,
            owners: true,
            min_free: MinFree::NONE,
            quota: None,
        }
    }

    /// Returns the files beneath `root`.
    ///
    /// # Errors
    /// `root` is not a directory that can be opened, or paths cannot be kept beneath it.
    pub fn beneath(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tree = Tree::from_dir(openat(CWD, root, flags, Mode::empty())?);
        tree.open_dir(Path::new("."))?;
        Ok(tree)
    }

    /// Returns the files beneath an open directory.
    pub(super) fn from_dir(dir: OwnedFd) -> Self {
        Tree { beneath: Some(Arc::new(dir)), ..Tree::anywhere() }
    }

    /// Excludes files that are reached through symbolic links.
    pub(super) fn without_links(self) -> Self {
        Tree { links: false, ..self }
    }

    /// Returns whether the tree is only a part of the file system.
    pub(super) fn is_bounded(&self) -> bool {
        self.beneath.is_some()
    }

    /// Limits the files to `rights`.
    pub fn with_rights(self, rights: Rights) -> Self {
        Tree { rights, ..self }
    }

    /// Sets whether the files may be sent to others than the client.
    pub fn with_third_party(self, third_party: bool) -> Self {
        Tree { third_party, ..self }
    }

    /// Sets whether a client may choose owners, set-id bits, capabilities and device nodes.
    pub fn with_owners(self, owners: bool) -> Self {
        Tree { owners, ..self }
    }

    /// Returns whether a client may choose owners, set-id bits, capabilities and devices.
    pub(super) fn may_own(&self) -> bool {
        self.owners
    }

    /// Sets the part of the file system that stays free.
    pub fn with_min_free(self, min_free: MinFree) -> Self {
        Tree { min_free, ..self }
    }

    /// Sets the quota that written bytes count against.
    pub(super) fn with_quota(self, quota: Option<Arc<QuotaUse>>) -> Self {
        Tree { quota, ..self }
    }

    /// Returns the quota that written bytes count against.
    pub(super) fn quota(&self) -> Option<&Arc<QuotaUse>> {
        self.quota.as_ref()
    }

    /// Returns the part of the file system that stays free.
    pub(crate) fn min_free(&self) -> MinFree {
        self.min_free
    }

    /// Returns whether these files may be sent to another host than the client.
    pub(super) fn may_go_elsewhere(&self) -> bool {
        self.third_party && self.rights.may_read()
    }

    /// Returns the rights on these files.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Opens `path` with `flags`.
    pub(super) fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let fd = match &self.beneath {
            None => openat(CWD, path, flags, mode)?,
            Some(dir) => {
                // A rooted path means the root of the tree, as it would in a URL.
                let path = path.strip_prefix("/").unwrap_or(path);
                let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
                let links = if self.links {
                    ResolveFlags::NO_MAGICLINKS
                } else {
                    ResolveFlags::NO_SYMLINKS
                };
                let resolve = ResolveFlags::BENEATH | links;
                openat2(&**dir, path, flags, mode, resolve).map_err(within)?
            }
        };
        Ok(fd)
    }

    /// Opens the directory `path` for reading if no part of it is a link.
    pub(super) fn open_real_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match &self.beneath {
            Some(dir) => Ok(openat2(&**dir, path, flags, Mode::empty(), resolve)?),
            None => Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?),
        }
    }

    /// Opens a directory to create entries in it.
    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    /// Returns the metadata of `path`; links are followed as far as the tree allows.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        Ok(self.lookup(path, true)?.1)
    }

    /// Returns a handle on `path` and its metadata. If `path` is a link, the handle is on the link
    /// unless links are to be followed.
    pub(super) fn lookup(&self, path: &Path, follow: bool) -> io::Result<(OwnedFd, Metadata)> {
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let fd = self.open(path, OFlags::PATH | nofollow, Mode::empty())?;
        let metadata = Metadata::of(&fstat(&fd)?);
        Ok((fd, metadata))
    }

    /// Opens a regular file for reading. Never waits for a pipe's writer.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        Ok(File::from(self.open(path, flags, Mode::empty())?))
    }

    /// Opens `path` for direct I/O; `None` if the file system does not support it, like some
    /// network and memory file systems.
    pub(super) fn open_direct(&self, path: &Path) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::DIRECT;
        Some(File::from(self.open(path, flags, Mode::empty()).ok()?))
    }

    /// Returns the names in the directory `path`, sorted, so that every copy of a tree has the same
    /// order.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        list(self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)
    }
}

/// Returns the names in the directory of `handle`, sorted; the handle need not be open for reading.
pub(super) fn list_at(handle: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    sorted(Dir::new(openat(handle, ".", flags, Mode::empty())?)?)
}

/// Returns the names in an open directory, sorted.
pub(crate) fn list(dir: impl AsFd) -> io::Result<Vec<PathBuf>> {
    sorted(Dir::read_from(dir.as_fd())?)
}

fn sorted(dir: Dir) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in dir {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    names.sort();
    Ok(names)
}

/// Returns `path` as it is sent.
pub(crate) fn wire_path(path: &Path) -> FilePath {
    // A path that the operating system accepted contains no NUL; one from a peer was checked.
    FilePath::new(path.as_os_str().as_bytes())
        .or_else(|| FilePath::new("?"))
        .expect("a question mark is a path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::write(root.join("sub/file"), "inside").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("up")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("absolute")).unwrap();
        std::os::unix::fs::symlink("sub/file", root.join("within")).unwrap();
        let tree = Tree::beneath(&root).unwrap();
        for inside in ["sub/file", "/sub/file", "sub/../sub/file", "within"] {
            assert_eq!(tree.metadata(Path::new(inside)).unwrap().size, 6, "{inside}");
        }
        for outside in ["../secret", "up", "absolute", "sub/../../secret"] {
            assert!(tree.metadata(Path::new(outside)).is_err(), "{outside}");
            assert!(tree.open_file(Path::new(outside)).is_err(), "{outside}");
        }
        assert_eq!(tree.list(Path::new("/")).unwrap().len(), 4);
    }

    #[test]
    fn a_pipe_does_not_block_the_walk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        let metadata = Tree::anywhere().metadata(&path).unwrap();
        assert_eq!(metadata.kind, FileKind::Fifo);
    }
}
