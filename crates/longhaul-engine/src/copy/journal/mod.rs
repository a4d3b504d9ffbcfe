//! The journal of a sink, with which the same command resumes after an interruption.
//!
//! The journal is the file `.longhaul-KEY.journal` in the target directory. Its copy holds a lock
//! on it. `docs/design/journal.md` defines the format. A record of an extent has its digest, and
//! the next attempt reads the extent again before it counts. A record of a file is written after
//! the file got its final name. A missing record costs time and never causes a wrong file.
//!
//! The recorder of the sink decides on the records; this module reads and writes the file.

mod file;
mod format;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use longhaul_core::result::hex;
use longhaul_core::wire::copy::CopyKey;
use longhaul_sys::host::boot_id;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use twox_hash::XxHash3_64;

use crate::copy::names::journal_name;
use crate::copy::tree::list_at;
use crate::session::random_keying_material;

pub(super) use file::{Journal, OpenError, Setting, remove_temporary};
pub(super) use format::{Claim, CopyTerms, Digest, Extent, FileId, Past, PastFile, Record};

const PREFIX: &str = ".longhaul-";
const SUFFIX: &str = ".journal";

/// The outcome of an attempt to take a journal under one name.
enum LockOutcome {
    Locked(File),
    /// Another process of this user holds the lock.
    Busy,
    /// There is no such file.
    Absent,
    /// Others could have written to the file under this name, which was this user's. It is removed.
    Discarded,
    /// The file under this name is another user's, or no regular file.
    Foreign,
}

/// A locked journal.
struct LockedJournal {
    name: String,
    file: File,
    /// True if there was one before, valid or not.
    found: bool,
}

fn is_journal(name: &OsStr, prefix: &str) -> bool {
    let name = name.as_bytes();
    name.starts_with(prefix.as_bytes()) && name.ends_with(SUFFIX.as_bytes())
}

/// Finds or makes the journal of `key` and locks it; `None` while another process has the lock.
fn find(dir: &OwnedFd, key: &CopyKey) -> Result<Option<LockedJournal>, Errno> {
    let plain = journal_name(key);
    let taken = take(dir, &plain)?;
    let found = !matches!(taken, LockOutcome::Absent);
    match taken {
        LockOutcome::Locked(file) => return Ok(Some(LockedJournal { name: plain, file, found })),
        LockOutcome::Busy => return Ok(None),
        LockOutcome::Absent | LockOutcome::Discarded => match create(dir, &plain) {
            Err(Errno::EXIST) => return Ok(None),
            created => return Ok(created?.map(|file| LockedJournal { name: plain, file, found })),
        },
        LockOutcome::Foreign => {}
    }
    // Another user has taken the name. An earlier attempt may have met the same.
    if let Some(taken) = find_random(dir, key)? {
        return Ok(taken);
    }
    let [a, b, c, d, ..] = random_keying_material();
    let random = u32::from_be_bytes([a, b, c, d]);
    let name = format!("{}{random:08x}{SUFFIX}", random_prefix(key));
    let Some(file) = create(dir, &name)? else { return Ok(None) };
    // Of two attempts that begin at the same time each sees the other, and both try again.
    let rival = |other: &PathBuf| other.as_os_str() != OsStr::new(&name);
    if random_names(dir, key).iter().any(rival) {
        let _ = unlinkat(dir, &name, AtFlags::empty());
        return Ok(None);
    }
    Ok(Some(LockedJournal { name, file, found }))
}

/// Takes a journal of `key` under a random name. The inner `None`: another process has the lock.
fn find_random(dir: &OwnedFd, key: &CopyKey) -> Result<Option<Option<LockedJournal>>, Errno> {
    for name in random_names(dir, key) {
        let Some(name) = name.to_str().map(str::to_owned) else { continue };
        match take(dir, &name)? {
            LockOutcome::Locked(file) => {
                return Ok(Some(Some(LockedJournal { name, file, found: true })));
            }
            LockOutcome::Busy => return Ok(Some(None)),
            LockOutcome::Absent | LockOutcome::Discarded | LockOutcome::Foreign => {}
        }
    }
    Ok(None)
}

fn random_prefix(key: &CopyKey) -> String {
    format!("{PREFIX}{}-", key.as_str())
}

/// Returns the random names in `dir` of journals of `key` that belong to this user.
fn random_names(dir: &OwnedFd, key: &CopyKey) -> Vec<PathBuf> {
    let prefix = random_prefix(key);
    let own = |name: &PathBuf| {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        is_journal(name.as_os_str(), &prefix) && stat.is_ok_and(|stat| is_of_user(&stat))
    };
    list_at(dir).unwrap_or_default().into_iter().filter(own).collect()
}

/// Opens the file `name` if it is this user's only, and locks it. A file of this user that others
/// could have written to is removed.
fn take(dir: &OwnedFd, name: impl AsRef<Path>) -> Result<LockOutcome, Errno> {
    let name = name.as_ref();
    // Checked before it is opened, because opening a device can have side effects.
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if is_of_user(&stat) => {}
        Ok(_) => return Ok(LockOutcome::Foreign),
        Err(Errno::NOENT) => return Ok(LockOutcome::Absent),
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(LockOutcome::Absent),
        Err(Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::ISDIR | Errno::NXIO) => {
            return Ok(LockOutcome::Foreign);
        }
        Err(error) => return Err(error),
    };
    let stat = fstat(&fd)?;
    if !is_of_user(&stat) {
        return Ok(LockOutcome::Foreign);
    }
    let Some(file) = lock(dir, name, fd)? else { return Ok(LockOutcome::Busy) };
    if is_own(&stat) {
        return Ok(LockOutcome::Locked(file));
    }
    unlinkat(dir, name, AtFlags::empty())?;
    Ok(LockOutcome::Discarded)
}

/// Makes the file `name` and locks it; `None` if another process was faster.
fn create(dir: &OwnedFd, name: &str) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    if !is_own(&fstat(&fd)?) {
        // The file system does not keep owners or modes: a journal on it is never valid.
        let _ = unlinkat(dir, name, AtFlags::empty());
        return Err(Errno::OPNOTSUPP);
    }
    lock(dir, Path::new(name), fd)
}

/// Locks `fd`, which was opened as `name`; `None` while another process has the lock.
fn lock(dir: &OwnedFd, name: &Path, fd: OwnedFd) -> Result<Option<File>, Errno> {
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        done => done?,
    }
    // The last holder may have removed it meanwhile: then the lock is on a file without a name.
    let held = fstat(&fd)?;
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {
            Ok(Some(File::from(fd)))
        }
        _ => Ok(None),
    }
}

/// Opens the journal `name` for reading, whoever holds its lock, if it is this user's only.
fn open_own(dir: &OwnedFd, name: &Path) -> Option<File> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok().filter(is_own)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).ok()?;
    let opened = fstat(&fd).ok()?;
    let same = (opened.st_dev, opened.st_ino) == (stat.st_dev, stat.st_ino) && is_own(&opened);
    same.then(|| File::from(fd))
}

/// Returns whether only this user can have written the file: a regular file of this user with one
/// name, without write permission for the group and others. An access control list that grants more
/// shows in the bits of the group.
pub(in crate::copy) fn is_own(stat: &Stat) -> bool {
    is_of_user(stat) && stat.st_nlink == 1 && stat.st_mode & 0o022 == 0
}

/// Returns whether the file is a regular file of this user. Others may be able to write to it.
pub(in crate::copy) fn is_of_user(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == geteuid().as_raw()
}

/// Returns the identifier for a journal whose data are lost at the end of the boot `known`. If the
/// boot is unknown, the journal is valid for this process only.
fn boot_or_process(known: Option<String>) -> String {
    static PROCESS: OnceLock<String> = OnceLock::new();
    known.unwrap_or_else(|| PROCESS.get_or_init(|| hex(&random_keying_material())).clone())
}

/// Numbers the files of this host: equal for one file in every process until the next boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostFiles {
    seed: u64,
}

impl HostFiles {
    /// Creates the numbers for this boot; `None` if the kernel does not report its boot.
    pub(super) fn of_boot() -> Option<Self> {
        Some(HostFiles { seed: XxHash3_64::oneshot(boot_id()?.as_bytes()) })
    }

    /// Returns the number of the file with this device and inode.
    pub(super) fn number(&self, (device, inode): (u64, u64)) -> u64 {
        let bytes = [device.to_be_bytes(), inode.to_be_bytes()].concat();
        XxHash3_64::oneshot_with_seed(self.seed, &bytes)
    }
}
