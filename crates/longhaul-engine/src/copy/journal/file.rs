use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::wire::copy::CopyKey;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::format::{Past, PastFile, Record, VERSION};
use crate::copy::names::{is_temporary, journal_name};
use crate::copy::tree::list;

/// A journal that nothing was written to for so long belongs to nobody any more.
const STALE_AFTER: Duration = Duration::from_secs(14 * 24 * 3600);
/// How often a lock that another holds is tried again.
const LOCK_CHECK: Duration = Duration::from_millis(100);

/// The journal of one copy; the lock on it is held until it is dropped.
pub(in crate::copy) struct Journal {
    dir: OwnedFd,
    name: String,
    file: File,
}

/// Why a copy has no journal.
#[derive(Debug)]
pub(in crate::copy) enum OpenError {
    /// Another one has it, and did not end in time.
    Busy,
    /// There can be none here. The copy goes on without.
    Unavailable,
}

impl Journal {
    /// Opens or begins the journal of the copy `key` in `dir`, and reads what it says. While
    /// another holds it, waits for `patience` or until `stop` is set: after a cut, the other end
    /// of a broken connection may take its time to notice.
    pub(in crate::copy) fn open(
        dir: OwnedFd,
        key: &CopyKey,
        durable: bool,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<(Self, Past), OpenError> {
        let name = journal_name(key);
        let deadline = Instant::now() + patience;
        let file = loop {
            match lock(&dir, &name) {
                Ok(Some(file)) => break file,
                Ok(None) if Instant::now() < deadline && !stop.load(Ordering::Relaxed) => {
                    thread::sleep(LOCK_CHECK);
                }
                Ok(None) => return Err(OpenError::Busy),
                Err(_) => return Err(OpenError::Unavailable),
            }
        };
        let mut journal = Journal { dir, name, file };
        let past = Past::read(&mut BufReader::new(&journal.file));
        let boot = (!durable).then(boot).flatten();
        let unavailable = |_| OpenError::Unavailable;
        if past.holds(boot.as_deref()) {
            journal.cut(past.valid_bytes).map_err(unavailable)?;
            return Ok((journal, past));
        }
        // Written by a later version, or before this boot.
        journal.cut(0).map_err(unavailable)?;
        let begin = Record::Begin { version: VERSION, block_bytes: None, boot };
        journal.append(&[begin]).map_err(unavailable)?;
        let past = Past { begin: None, ..past };
        Ok((journal, past))
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length)).map(|_| ())
    }

    /// Writes records. They need no sync of their own: what they speak of was synced before, and
    /// a record that is lost was work in vain at worst.
    pub(in crate::copy) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            record.encode(&mut bytes)?;
        }
        self.file.write_all(&bytes)
    }

    /// Removes the journal: the copy is complete, or nothing of it is worth to be kept.
    pub(in crate::copy) fn remove(self) {
        let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
    }

    /// Removes journals in the same directory that nobody has come back to, with the temporary
    /// files that they name.
    pub(in crate::copy) fn remove_stale(&self) {
        let Ok(dir) = openat(&self.dir, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        else {
            return;
        };
        let old = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(STALE_AFTER)
            .as_secs() as i64;
        for name in list(&dir).unwrap_or_default() {
            if !is_journal(name.as_os_str()) || name.as_os_str() == OsStr::new(&self.name) {
                continue;
            }
            let stale = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| stat.st_mtime < old);
            if !stale {
                continue;
            }
            let Ok(Some(file)) = lock(&dir, &name) else { continue };
            let past = Past::read(&mut BufReader::new(&file));
            for (path, past) in &past.files {
                if let PastFile::Partial { temporary, .. } = past {
                    remove_temporary(&dir, path, temporary.as_bytes());
                }
            }
            let _ = unlinkat(&dir, &name, AtFlags::empty());
        }
    }
}

/// Removes the temporary file `name` beside `path`, both from a journal that anyone could have
/// put there: only what is named like a temporary file of ours, beneath `dir`.
pub(in crate::copy) fn remove_temporary(dir: &OwnedFd, path: &[u8], name: &[u8]) {
    if name.contains(&b'/') || !is_temporary(name) {
        return;
    }
    let above = Path::new(OsStr::from_bytes(path)).parent().unwrap_or(Path::new(""));
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_MAGICLINKS;
    if let Ok(above) = rustix::fs::openat2(dir, above, flags, Mode::empty(), resolve) {
        let _ = unlinkat(above, OsStr::from_bytes(name), AtFlags::empty());
    }
}

fn is_journal(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".longhaul-") && name.as_bytes().ends_with(b".journal")
}

/// Opens or makes the file `name` and locks it; `None` while another has the lock.
fn lock(dir: &OwnedFd, name: impl AsRef<Path>) -> Result<Option<File>, Errno> {
    let name = name.as_ref();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o600))?;
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        done => done?,
    }
    // Its last owner may have removed it meanwhile: then this is a lock on nothing.
    let held = fstat(&fd)?;
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {
            Ok(Some(File::from(fd)))
        }
        _ => Ok(None),
    }
}

/// What this boot of the host is called (random(4)).
fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use longhaul_core::wire::WirePath;

    use super::super::format::FileId;
    use super::*;

    fn open(dir: &Path, durable: bool) -> Result<(Journal, Past), OpenError> {
        let fd = openat(rustix::fs::CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let key = CopyKey::new(5);
        let stop = AtomicBool::new(false);
        Journal::open(fd.unwrap(), &key, durable, Duration::ZERO, &stop)
    }

    fn partial(temporary: &str) -> Record {
        Record::Partial {
            path: WirePath::new("f").unwrap(),
            stamp: 1,
            temporary: WirePath::new(temporary).unwrap(),
            id: FileId { device: 0, inode: 0, size: 0, mtime_seconds: 0, mtime_ns: 0 },
        }
    }

    #[test]
    fn one_copy_has_it_and_the_next_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, past) = open(dir.path(), true).unwrap();
        assert!(past.files.is_empty());
        assert!(matches!(open(dir.path(), true), Err(OpenError::Busy)));
        journal.append(&[partial(".f.part")]).unwrap();
        drop(journal);
        let (journal, past) = open(dir.path(), true).unwrap();
        assert_eq!(past.files.len(), 1);
        journal.remove();
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn without_syncs_it_is_another_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(dir.path(), false).unwrap();
        journal.append(&[partial(".f.part")]).unwrap();
        drop(journal);
        let (_, past) = open(dir.path(), true).unwrap();
        assert!(past.begin.is_none(), "what it says does not count");
        assert_eq!(past.files.len(), 1, "what it names can be cleaned up");
    }

    #[test]
    fn what_nobody_came_back_to_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("target");
        std::fs::create_dir(&inside).unwrap();
        for name in [".f.longhaul-00000000-0.part", "precious.part", "other"] {
            std::fs::write(inside.join(name), "x").unwrap();
        }
        std::fs::write(dir.path().join(".x.longhaul-00000000-0.part"), "x").unwrap();
        let mut bytes = Vec::new();
        for name in
            [".f.longhaul-00000000-0.part", "precious.part", "../.x.longhaul-00000000-0.part"]
        {
            bytes.clear();
            partial(name).encode(&mut bytes).unwrap();
            let stale = inside.join(format!(".longhaul-{}.journal", name.len()));
            std::fs::write(&stale, &bytes).unwrap();
            let then = SystemTime::now() - 2 * STALE_AFTER;
            File::options().write(true).open(&stale).unwrap().set_modified(then).unwrap();
        }
        std::fs::write(inside.join(".longhaul-young.journal"), &bytes).unwrap();
        let (journal, _) = open(&inside, true).unwrap();
        journal.remove_stale();
        journal.remove();
        let mut left: Vec<_> =
            list(openat(rustix::fs::CWD, &inside, OFlags::RDONLY, Mode::empty()).unwrap()).unwrap();
        left.sort();
        let left: Vec<_> = left.iter().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(left, [".longhaul-young.journal", "other", "precious.part"]);
        assert!(dir.path().join(".x.longhaul-00000000-0.part").exists());
    }
}
