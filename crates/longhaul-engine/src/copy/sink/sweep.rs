//! Removes the temporary files of an earlier attempt of the same copy, except those that the
//! journal lists.
//!
//! A journal can be lost: another user may have replaced it, or it was damaged. The temporary files
//! of its attempt still carry the token of the copy. Each directory is swept once, before this
//! attempt creates a file in it.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use rustix::fs::{AtFlags, Stat, fstat, statat, unlinkat};

use crate::copy::journal::{Past, is_of_user};
use crate::copy::temporary::{has_token, is_held};
use crate::copy::tree::list_at;
use crate::lock;

/// The temporary files to keep, and the directories that were swept.
pub(super) struct Sweep {
    token: u32,
    /// The device and inode of each temporary file that the journal names.
    kept: HashSet<(u64, u64)>,
    /// The device and inode of each directory that was swept. A path does not identify a directory,
    /// because it can have several paths.
    swept: Mutex<HashSet<(u64, u64)>>,
}

impl Sweep {
    /// Creates the sweep of the copy with `token`. It keeps the temporary files that
    /// the journal `past` lists.
    pub(super) fn new(token: u32, past: &Past) -> Self {
        Sweep { token, kept: past.temporaries(), swept: Mutex::default() }
    }

    /// Returns whether the journal lists the file of this device and inode.
    pub(super) fn keeps(&self, identity: (u64, u64)) -> bool {
        self.kept.contains(&identity)
    }

    /// Sweeps the directory `fd`, unless this attempt has swept it already. If another thread is
    /// sweeping it, waits for that thread.
    pub(super) fn directory(&self, fd: &OwnedFd) {
        let Ok(stat) = fstat(fd) else { return };
        let mut swept = lock(&self.swept);
        if !swept.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
        let left = |stat: Stat| is_of_user(&stat) && !self.keeps((stat.st_dev, stat.st_ino));
        // A directory that cannot be listed is not swept.
        for name in list_at(fd).unwrap_or_default() {
            let ours = has_token(name.as_os_str().as_bytes(), self.token)
                && statat(fd, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(left)
                && !is_held(fd, name.as_os_str());
            if ours {
                let _ = unlinkat(fd, &name, AtFlags::empty());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;

    use longhaul_core::wire::FilePath;

    use super::*;
    use crate::copy::journal::{FileId, PastFile};
    use crate::copy::temporary::hold;

    #[test]
    #[ignore = "needs root"]
    fn only_this_users_files_of_the_copy_that_no_journal_names_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let name = |file: &str, token: u32| format!(".{file}.longhaul-{token:08x}-1.part");
        let (left, kept, theirs) = (name("a", 7), name("b", 7), name("c", 7));
        let used = name("d", 7);
        let spared = [kept.clone(), theirs.clone(), used.clone(), name("a", 8), "a.part".into()];
        for file in spared.iter().chain([&left]) {
            fs::write(dir.path().join(file), "x").unwrap();
        }
        let live = File::open(dir.path().join(&used)).unwrap();
        assert!(hold(&live));
        std::os::unix::fs::chown(dir.path().join(&theirs), Some(4711), None)
            .expect("these tests run as root");
        // The path of the directory can differ from the path in the journal.
        let named = fs::metadata(dir.path().join(&kept)).unwrap();
        let id = FileId {
            device: named.dev(),
            inode: named.ino(),
            size: 0,
            mtime_seconds: 0,
            mtime_ns: 0,
            ctime: None,
        };
        let (temporary, extents) = (FilePath::new(kept.as_bytes()).unwrap(), Vec::new());
        let partial = PastFile::Partial { stamp: 0, temporary, id, extents, verified: true };
        let mut past = Past::default();
        past.files.insert(b"sub/b".to_vec(), partial);
        let sweep = Sweep::new(7, &past);
        let fd = OwnedFd::from(File::open(dir.path()).unwrap());
        sweep.directory(&fd);
        assert!(!dir.path().join(&left).exists());
        assert!(spared.iter().all(|file| dir.path().join(file).exists()), "{spared:?}");

        fs::write(dir.path().join(&left), "of this attempt").unwrap();
        sweep.directory(&OwnedFd::from(File::open(dir.path().join(".")).unwrap()));
        assert!(dir.path().join(&left).exists(), "a directory is swept once");
    }
}
