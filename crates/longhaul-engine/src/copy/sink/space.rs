//! The space of the sink's file system: refuses a copy that does not fit, and keeps a reserve.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longhaul_core::units::{Bytes, MinFree};
use rustix::fs::{StatVfs, fstat, fstatfs, fstatvfs};
use rustix::process::geteuid;

use super::placement::Destination;
use crate::copy::quota::{QuotaUse, occupied};
use crate::error::{EngineError, Result};
use crate::lock;

/// The magic numbers of ZFS and bcachefs (linux/magic.h). They compress files, so that a file can
/// take less space than its size.
const COMPRESSING: [u64; 2] = [0x2fc1_2fc1, 0xca45_1a4e];

/// The space that one copy needs and that its file system has.
pub(super) struct Space {
    /// The target's directory and its device; `None` if the copy stores no files.
    target: Option<(OwnedFd, u64)>,
    path: PathBuf,
    reserve: MinFree,
    /// True if the file system is one of [`COMPRESSING`].
    compresses: bool,
    account: Mutex<SpaceAccount>,
    quota: Option<Arc<QuotaUse>>,
}

/// The bytes that files need.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Need {
    /// The bytes until the replaced file is removed. For several files, this is the
    /// largest of their values.
    pub(super) at_once: u64,
    /// The additional bytes after all replaced files are removed.
    pub(super) lasting: u64,
}

impl Need {
    /// Returns the need of a file of `bytes` that replaces a file of `replaced` bytes.
    pub(super) fn of(bytes: u64, replaced: u64) -> Self {
        Need { at_once: bytes, lasting: bytes.saturating_sub(replaced) }
    }

    /// Returns the need of both.
    pub(super) fn and(self, other: Need) -> Self {
        Need {
            at_once: self.at_once.max(other.at_once),
            lasting: self.lasting.saturating_add(other.lasting),
        }
    }
}

#[derive(Default)]
struct SpaceAccount {
    /// The bytes that announced files need.
    claimed: u64,
    /// The claimed bytes that are on the disk or no longer needed.
    settled: u64,
    /// The largest value of `claimed` that fits, according to the last query of the file system.
    fits: u64,
}

impl Space {
    /// Returns the space of a copy to `destination`.
    pub(super) fn of(destination: &Destination) -> Self {
        match destination {
            Destination::Directory { tree, path, .. } => {
                let quota = tree.quota().cloned();
                Space { quota, ..Space::new(destination.base(), path, tree.min_free()) }
            }
            _ => Space::new(None, Path::new("."), MinFree::NONE),
        }
    }

    /// Returns the space of the file system of `base`. Messages name the directory `path`.
    fn new(base: Option<OwnedFd>, path: &Path, reserve: MinFree) -> Self {
        let target = base.and_then(|base| {
            let device = fstat(&base).ok()?.st_dev;
            Some((base, device))
        });
        let compresses = target.as_ref().is_some_and(|(base, _)| {
            fstatfs(base).is_ok_and(|fs| COMPRESSING.contains(&(fs.f_type as u64)))
        });
        let path = if path == Path::new(".") { "the target directory".into() } else { path.into() };
        Space { target, path, reserve, compresses, account: Mutex::default(), quota: None }
    }

    /// Returns whether this account covers the files on `device`.
    pub(super) fn covers(&self, device: u64) -> bool {
        self.target.as_ref().is_some_and(|(_, own)| *own == device)
    }

    /// Fails if `need` does not fit in addition to all claims.
    pub(super) fn check(&self, need: Need) -> Result<()> {
        self.reserve_need(&mut lock(&self.account), need)
    }

    /// Fails if files of these sizes do not fit into the quota.
    pub(super) fn check_quota(&self, sizes: impl Iterator<Item = u64>) -> Result<()> {
        let Some(quota) = &self.quota else { return Ok(()) };
        quota.check(sizes.map(occupied).fold(0, u64::saturating_add))
    }

    /// Returns whether the files count against a quota.
    pub(super) fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// Claims `bytes` of the quota for one directory entry, rounded up to blocks of 4 KiB.
    pub(super) fn claim_quota(&self, bytes: u64) -> Result<()> {
        self.quota.as_ref().map_or(Ok(()), |quota| quota.claim(bytes))
    }

    /// Claims `need` for an announced file, and returns the bytes to [`settle`](Self::settle).
    /// Queries the file system only if the last query does not show that the file fits.
    pub(super) fn claim(&self, need: Need) -> Result<u64> {
        let mut account = lock(&self.account);
        self.reserve_need(&mut account, need)?;
        account.claimed = account.claimed.saturating_add(need.lasting);
        Ok(need.lasting)
    }

    /// Records that `bytes` of the claims are on the disk or no longer needed.
    pub(super) fn settle(&self, bytes: u64) {
        let mut account = lock(&self.account);
        account.settled = account.settled.saturating_add(bytes);
    }

    /// Fails if this copy is about to write into the reserve.
    pub(super) fn check_reserve(&self) -> Result<()> {
        let open = {
            let account = lock(&self.account);
            account.claimed.saturating_sub(account.settled)
        };
        if open == 0 || self.reserve == MinFree::NONE {
            return Ok(());
        }
        match self.free() {
            Some((free, reserve)) if free < reserve => Err(self.full(open, free, reserve)),
            _ => Ok(()),
        }
    }

    fn reserve_need(&self, account: &mut SpaceAccount, need: Need) -> Result<()> {
        let claimed = account.claimed.saturating_add(need.lasting);
        if need.at_once == 0 || account.claimed.saturating_add(need.at_once) <= account.fits {
            return Ok(());
        }
        let Some((free, reserve)) = self.free() else {
            account.fits = u64::MAX;
            return Ok(());
        };
        let room = free.saturating_sub(reserve);
        let open = claimed.saturating_sub(account.settled);
        let most = open.max(need.at_once);
        let fits = if self.compresses { room > 0 } else { most <= room };
        if !fits {
            return Err(self.full(most, free, reserve));
        }
        account.fits = claimed.saturating_add(room.saturating_sub(open));
        Ok(())
    }

    /// Returns the free bytes, and the number of them that must stay free. Returns `None` if the
    /// file system does not report its size.
    fn free(&self) -> Option<(u64, u64)> {
        let (dir, _) = self.target.as_ref()?;
        let disk: StatVfs = fstatvfs(dir).ok()?;
        if disk.f_blocks == 0 {
            return None;
        }
        // Without a reserve, root can use the blocks that the file system reserves for it.
        let whole = self.reserve == MinFree::NONE && geteuid().is_root();
        let blocks = if whole { disk.f_bfree } else { disk.f_bavail };
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some((bytes(blocks), reserve_of(&disk, self.reserve)))
    }

    fn full(&self, needs: u64, free: u64, reserve: u64) -> EngineError {
        let [needs, free, reserve] = [needs, free, reserve].map(Bytes::new);
        EngineError::NoSpace { path: self.path.clone(), needs, free, reserve }
    }
}

/// Returns the bytes of a file system that must stay free. A percentage refers to the size that
/// df(1) uses, without the blocks reserved for root.
pub(crate) fn reserve_of(disk: &StatVfs, reserve: MinFree) -> u64 {
    let blocks = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_add(disk.f_bavail);
    reserve.of(Bytes::new(blocks.saturating_mul(disk.f_frsize))).get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(reserve: MinFree) -> (tempfile::TempDir, Space) {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::File::open(dir.path()).unwrap().into();
        let space = Space::new(Some(base), dir.path(), reserve);
        (dir, space)
    }

    #[test]
    fn claims_fit_until_they_do_not() {
        let (_dir, space) = space(MinFree::NONE);
        let (free, reserve) = space.free().unwrap();
        assert!(free > 0 && reserve == 0);
        let new = |bytes| Need::of(bytes, 0);
        assert_eq!(space.claim(new(free / 2)).unwrap(), free / 2);
        let error = space.claim(new(free)).unwrap_err();
        assert!(matches!(error, EngineError::NoSpace { .. }), "{error}");
        // Here the settled bytes are still free, because no file was written.
        space.settle(free / 2);
        space.claim(new(free / 2)).unwrap();
        assert!(space.claim(new(u64::MAX)).is_err());
        // A file that replaces one of the same size needs no lasting space.
        for _ in 0..4 {
            assert_eq!(space.claim(Need::of(free / 3, free / 3)).unwrap(), 0);
        }
        assert!(space.claim(Need::of(u64::MAX, u64::MAX)).is_err());
    }

    #[test]
    fn a_reserve_of_everything_leaves_no_byte() {
        let (_dir, space) = space("99.99%".parse().unwrap());
        space.claim(Need::default()).unwrap();
        let (free, reserve) = space.free().unwrap();
        // The disk of the tests is never empty enough.
        assert!(free < reserve, "{free} {reserve}");
        assert!(space.claim(Need::of(1, 0)).is_err() && space.check_reserve().is_ok());
    }
}
