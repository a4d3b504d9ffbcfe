//! Removes temporary files that an earlier attempt of the same copy has left and no journal names.
//!
//! A journal can be lost: another user may have replaced it, or it was damaged. The temporary files
//! of its attempt still carry the token of the copy. Each directory is swept once, before this
//! attempt creates a file in it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{AtFlags, statat, unlinkat};

use crate::copy::journal::{Past, PastFile, is_of_user};
use crate::copy::temporary::has_token;
use crate::copy::tree::list_at;
use crate::lock::lock;

/// The temporary files to keep, and the directories that were swept.
pub(super) struct Sweep {
    token: u32,
    /// Temporary files that the journal names, by path relative to the target.
    kept: HashSet<PathBuf>,
    swept: Mutex<HashSet<PathBuf>>,
}

impl Sweep {
    /// A sweep for the copy of `token`, which spares what `past` names.
    pub(super) fn new(token: u32, past: &Past) -> Self {
        let kept = past.files.iter().filter_map(|(path, file)| match file {
            PastFile::Partial { temporary, .. } => {
                let above = Path::new(OsStr::from_bytes(path)).parent()?;
                Some(above.join(OsStr::from_bytes(temporary.as_bytes())))
            }
            PastFile::Done { .. } => None,
        });
        Sweep { token, kept: kept.collect(), swept: Mutex::default() }
    }

    /// Sweeps the directory `fd`, which is at `path`, unless that was done. Returns after it is
    /// done, also in another thread.
    pub(super) fn directory(&self, fd: &OwnedFd, path: &Path) {
        let mut swept = lock(&self.swept);
        if !swept.insert(path.to_owned()) {
            return;
        }
        // A directory that cannot be read keeps what is in it.
        for name in list_at(fd).unwrap_or_default() {
            let ours = has_token(name.as_os_str().as_bytes(), self.token)
                && !self.kept.contains(&path.join(&name))
                && statat(fd, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| is_of_user(&stat));
            if ours {
                let _ = unlinkat(fd, &name, AtFlags::empty());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use longhaul_core::wire::FilePath;

    use super::*;
    use crate::copy::journal::FileId;

    #[test]
    fn only_this_users_files_of_the_copy_that_no_journal_names_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let name = |file: &str, token: u32| format!(".{file}.longhaul-{token:08x}-1.part");
        let (left, kept, theirs) = (name("a", 7), name("b", 7), name("c", 7));
        let spared = [kept.clone(), theirs.clone(), name("a", 8), "a.part".into()];
        for file in spared.iter().chain([&left]) {
            fs::write(dir.path().join(file), "x").unwrap();
        }
        std::os::unix::fs::chown(dir.path().join(&theirs), Some(4711), None)
            .expect("these tests run as root");
        let id =
            FileId { device: 0, inode: 0, size: 0, mtime_seconds: 0, mtime_ns: 0, ctime: None };
        let temporary = FilePath::new(kept.as_bytes()).unwrap();
        let partial = PastFile::Partial { stamp: 0, temporary, id, extents: Vec::new() };
        let mut past = Past::default();
        past.files.insert(b"sub/b".to_vec(), partial);
        let sweep = Sweep::new(7, &past);
        let fd = OwnedFd::from(File::open(dir.path()).unwrap());
        sweep.directory(&fd, Path::new("sub"));
        assert!(!dir.path().join(&left).exists());
        assert!(spared.iter().all(|file| dir.path().join(file).exists()), "{spared:?}");

        fs::write(dir.path().join(&left), "of this attempt").unwrap();
        sweep.directory(&fd, Path::new("sub"));
        assert!(dir.path().join(&left).exists(), "a directory is swept once");
    }
}
