//! Links and special files: created under a temporary name, given their attributes, and renamed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_core::plan::{SyncLevel, TreeOptions};
use longhaul_core::result::ActionKind;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{DeviceNumber, EntryKind};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, linkat, makedev, mknodat, openat, readlinkat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::open_dir::{OpenDir, existing_mode};
use super::partial::Temporary;
use super::placement::Destination;
use super::store::Store;
use crate::copy::digest::whole_digest;
use crate::copy::metadata::{Attributes, NO_OWNERS};
use crate::copy::tree::{FileKind, Metadata, wire_path};

/// Refuses links and special files if nothing may be replaced: in a drop box they could deceive the
/// owner of the files.
fn only_with_replacing(dir: &OpenDir) -> io::Result<()> {
    if dir.replaces {
        Ok(())
    } else {
        Err(io::Error::other("this target accepts only files and directories"))
    }
}

/// Returns whether both names are names of one file.
fn is_same_file(one: (&OpenDir, &OsStr), other: (&OpenDir, &OsStr)) -> bool {
    let identity = |(dir, name): (&OpenDir, &OsStr)| {
        let stat = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    identity(one).is_some_and(|first| identity(other) == Some(first))
}

impl Store {
    /// Makes a link or special file of this kind at `path`.
    pub(super) fn make_node(
        &self,
        id: u64,
        path: &Path,
        kind: &EntryKind,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let Some((_, dir, name)) = self.locate(path)? else { return Ok(()) };
        only_with_replacing(&dir)?;
        if matches!(kind, EntryKind::CharDevice(_) | EntryKind::BlockDevice(_))
            && !self.destination.may_own()
        {
            return Err(io::Error::other(format!("it is a device, and {NO_OWNERS}")));
        }
        existing_mode(&dir, name)?;
        let ((), temporary) = self.make_new((&dir.fd, name, id), |temporary| {
            let mode = Mode::from_raw_mode(0o600);
            let node = |kind, device| mknodat(&dir.fd, temporary, kind, mode, device);
            let number = |device: &DeviceNumber| makedev(device.major, device.minor);
            match kind {
                EntryKind::Symlink { target } => {
                    symlinkat(OsStr::from_bytes(target.as_bytes()), &dir.fd, temporary)
                }
                EntryKind::Fifo => node(FileType::Fifo, 0),
                EntryKind::Socket => node(FileType::Socket, 0),
                EntryKind::CharDevice(device) => node(FileType::CharacterDevice, number(device)),
                EntryKind::BlockDevice(device) => node(FileType::BlockDevice, number(device)),
                EntryKind::File { .. }
                | EntryKind::Stream
                | EntryKind::Directory
                | EntryKind::HardLink { .. } => Err(Errno::INVAL),
            }
        })?;
        let temporary = Temporary::new(dir, temporary, name.to_owned());
        let is_link = matches!(kind, EntryKind::Symlink { .. });
        let (dir, made) = (&temporary.dir.fd, &temporary.temporary);
        self.keeper.apply_to_node((dir, made), is_link, attributes, &self.display(path))?;
        temporary.rename()
    }

    /// Makes `path` another name of the file at `first`.
    pub(super) fn make_hard_link(&self, id: u64, path: &Path, first: &Path) -> io::Result<()> {
        let (Some((_, from, from_name)), Some((_, dir, name))) =
            (self.locate(first)?, self.locate(path)?)
        else {
            return Ok(());
        };
        only_with_replacing(&from)?;
        only_with_replacing(&dir)?;
        if is_same_file((&from, from_name), (&dir, name)) {
            return Ok(());
        }
        existing_mode(&dir, name)?;
        let ((), temporary) = self.make_new((&dir.fd, name, id), |temporary| {
            linkat(&from.fd, from_name, &dir.fd, temporary, AtFlags::empty())
        })?;
        Temporary::new(dir.clone(), temporary.clone(), name.to_owned()).rename()?;
        // If another process made the same link meanwhile, rename(2) leaves both names.
        let _ = unlinkat(&dir.fd, &temporary, AtFlags::empty());
        Ok(())
    }

    /// Returns the action of an entry at `path`; `None` if the existing file stays. With `update` a
    /// file stays if it is newer, or has the same time and size.
    pub(super) fn compare(
        &self,
        path: &Path,
        kind: &EntryKind,
        attributes: &Attributes,
        level: (&TreeOptions, Option<[u8; 32]>),
    ) -> Option<ActionKind> {
        let there = match self.locate(path) {
            Ok(Some((_, dir, name))) => statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .ok()
                .map(|stat| (Metadata::of(&stat), readlinkat(&dir.fd, name, Vec::new()).ok())),
            _ => None,
        };
        let Some((there, target)) = there else { return Some(ActionKind::Create) };
        let stays = match (kind, there.kind) {
            (EntryKind::File { size_bytes }, FileKind::File) => {
                let theirs = (attributes.mtime_seconds, attributes.mtime_ns);
                let ours = (there.mtime_seconds, there.mtime_ns);
                // A file system that keeps whole seconds has cut the rest off.
                let same = ours == theirs || ours == (theirs.0, 0);
                let same_size = there.size == size_bytes.get();
                let (options, digest) = level;
                match options.sync_level {
                    None => options.update && (ours > theirs || same && same_size),
                    Some(SyncLevel::Exists) => true,
                    Some(SyncLevel::Size) => same_size,
                    Some(SyncLevel::Mtime) => same_size && (ours > theirs || same),
                    Some(SyncLevel::Checksum) => same_size && self.has_digest(path, digest),
                }
            }
            (EntryKind::Directory, FileKind::Directory) => true,
            // A link to a directory is taken for one, as cp does.
            (EntryKind::Directory, FileKind::Symlink) => match &self.destination {
                Destination::Directory { tree, .. } => tree.open_dir(path).is_ok(),
                _ => false,
            },
            (EntryKind::Symlink { target: wanted }, FileKind::Symlink) => {
                target.is_some_and(|target| target.as_bytes() == wanted.as_bytes())
            }
            (EntryKind::HardLink { path: first, .. }, _) => {
                let first = self.path(first.as_bytes());
                let identity = |stat| Metadata::of(&stat).identity;
                self.locate(&first).ok().flatten().is_some_and(|(_, dir, name)| {
                    statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|stat| identity(stat) == there.identity)
                })
            }
            (EntryKind::Fifo, FileKind::Fifo) | (EntryKind::Socket, FileKind::Socket) => true,
            (EntryKind::CharDevice(wanted), FileKind::CharDevice(there))
            | (EntryKind::BlockDevice(wanted), FileKind::BlockDevice(there)) => *wanted == there,
            _ => false,
        };
        (!stays).then_some(ActionKind::Replace)
    }

    /// Returns whether the file at `path` has this digest. A client that may not read the file gets
    /// no answer: its file is copied.
    fn has_digest(&self, path: &Path, digest: Option<[u8; 32]>) -> bool {
        let Ok(Some((tree, dir, name))) = self.locate(path) else { return false };
        let Some(digest) = digest.filter(|_| tree.rights().may_read()) else { return false };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(&dir.fd, name, flags, Mode::empty()) else { return false };
        let found = whole_digest(&mut File::from(file), |got| self.count_checked(got));
        found.is_ok_and(|(found, _)| found == digest)
    }

    /// Returns a path at the sink, for a list of actions.
    pub(super) fn shown(&self, path: &Path, is_dir: bool) -> FilePath {
        let mut path = self.display(path).into_os_string();
        if is_dir {
            path.push("/");
        }
        wire_path(Path::new(&path))
    }
}
