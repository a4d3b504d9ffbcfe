//! Finds, locks, appends to and removes the file of a journal.
//!
//! Other users may write to the directory. A file that does not [belong to this user](is_own) is
//! not read, locked or waited for; the journal then gets a random name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::CopyKey;
use longhaul_sys::host::boot_id;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat, openat2, statat, unlinkat};

use super::format::{CopyTerms, FileId, Past, PastFile, Record, VERSION};
use super::{
    LockOutcome, LockedJournal, PREFIX, boot_or_process, find, is_journal, open_own, random_names,
    take,
};
use crate::copy::names::journal_name;
use crate::copy::temporary::{is_held, is_temporary_of};
use crate::copy::tree::list;

/// The age of the last write above which a journal is stale.
const STALE_AFTER: Duration = Duration::from_secs(14 * 24 * 3600);
/// The pause between attempts to take a lock that another process holds.
const LOCK_CHECK: Duration = Duration::from_millis(100);

/// The journal of one copy; the lock on it is held until it is dropped.
pub(in crate::copy) struct Journal {
    dir: OwnedFd,
    name: String,
    file: File,
    /// Bytes of whole records.
    length: u64,
    /// True if an earlier attempt has left a journal here, valid or not.
    found: bool,
}

/// The options that a journal depends on, besides the key of its copy.
#[derive(Debug, Clone, Default)]
pub(in crate::copy) struct Setting {
    pub(in crate::copy) durable: bool,
    pub(in crate::copy) terms: CopyTerms,
    /// The name that the only top-level entry gets instead of its own.
    pub(in crate::copy) name: Option<FilePath>,
}

/// The reason why a copy has no journal.
#[derive(Debug)]
pub(in crate::copy) enum OpenError {
    /// Another process holds the lock and did not end in time.
    Busy,
    /// The directory can have none. The copy runs without one.
    Unavailable,
}

impl Journal {
    /// Opens or begins the journal of the copy `key` in `dir`, and reads it. While another process
    /// of this user holds it, waits for `patience` or until `is_over` returns true: after a cut, the
    /// other end of a broken connection may take its time to notice.
    pub(in crate::copy) fn open(
        dir: OwnedFd,
        key: &CopyKey,
        setting: Setting,
        patience: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Self, Past), OpenError> {
        let deadline = Instant::now() + patience;
        let LockedJournal { name, file, found } = loop {
            if let Some(taken) = find(&dir, key).map_err(|_| OpenError::Unavailable)? {
                break taken;
            }
            if Instant::now() >= deadline || is_over() {
                return Err(OpenError::Busy);
            }
            thread::sleep(LOCK_CHECK);
        };
        let journal = Journal { dir, name, file, length: 0, found };
        let past = Past::read(&mut BufReader::new(&journal.file));
        journal.continue_with(past, setting, boot_id())
    }

    /// Prepares the journal, which holds `past`, for records of a copy with `setting` during the boot
    /// `now`, if it is known.
    fn continue_with(
        mut self,
        past: Past,
        setting: Setting,
        now: Option<String>,
    ) -> Result<(Self, Past), OpenError> {
        let boot = (!setting.durable).then(|| boot_or_process(now));
        let usable = past.holds(boot.as_deref());
        let Setting { terms, name, .. } = setting;
        let same_terms = past.terms == Some(terms);
        let terms = Some(terms);
        let begin = Record::Begin { version: VERSION, block_bytes: None, boot, terms, name };
        let begun = match (usable, same_terms) {
            (true, true) => self.cut(past.valid_bytes),
            (true, false) => self.begin(past.valid_bytes, begin),
            // Written by a later version, or before this boot.
            (false, _) => self.begin(0, begin),
        };
        if begun.is_err() {
            // On a full disk it is empty, or ends before these terms.
            self.remove();
            return Err(OpenError::Unavailable);
        }
        let begin = past.begin.filter(|_| usable);
        Ok((self, Past { begin, ..past }))
    }

    /// Returns the name that an earlier attempt of the copy `key`, with its journal in `dir`, gave
    /// to its only top-level entry.
    pub(in crate::copy) fn given_name(dir: &OwnedFd, key: &CopyKey) -> Option<FilePath> {
        let plain = PathBuf::from(journal_name(key));
        let names = std::iter::once(plain).chain(random_names(dir, key));
        names.filter_map(|name| open_own(dir, &name)).find_map(|file| {
            let past = Past::read(&mut BufReader::new(file));
            past.name
        })
    }

    /// Continues after `length` bytes with `record`.
    fn begin(&mut self, length: u64, record: Record) -> io::Result<()> {
        self.cut(length)?;
        self.append(&[record])
    }

    /// Returns whether an earlier attempt left a journal, valid or not.
    pub(in crate::copy) fn is_found(&self) -> bool {
        self.found
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.length = length;
        self.file.seek(SeekFrom::Start(length)).map(|_| ())
    }

    /// Writes records. A part that was written before an error is cut off again, so that later
    /// records can be read.
    pub(in crate::copy) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            record.encode(&mut bytes)?;
        }
        if let Err(error) = self.file.write_all(&bytes) {
            self.cut(self.length)?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Removes the journal: the copy is complete, or nothing in it is worth keeping.
    pub(in crate::copy) fn remove(self) {
        let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
    }

    /// Removes this user's stale journals in the same directory, with the temporary files that they
    /// name.
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
            if !is_journal(name.as_os_str(), PREFIX) || name.as_os_str() == OsStr::new(&self.name) {
                continue;
            }
            let stale = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| stat.st_mtime < old);
            if !stale {
                continue;
            }
            let Ok(LockOutcome::Locked(file)) = take(&dir, &name) else { continue };
            let past = Past::read(&mut BufReader::new(&file));
            for (path, past) in &past.files {
                if let PastFile::Partial { temporary, id, .. } = past {
                    remove_temporary(&dir, path, temporary.as_bytes(), id);
                }
            }
            let _ = unlinkat(&dir, &name, AtFlags::empty());
        }
    }
}

/// Removes the temporary file `name` beside `path` if it has the form of one, is still the file that
/// `id` names, beneath `dir`, and is not in use.
pub(in crate::copy) fn remove_temporary(dir: &OwnedFd, path: &[u8], name: &[u8], id: &FileId) {
    let path = Path::new(OsStr::from_bytes(path));
    let Some(last) = path.file_name() else { return };
    if !is_temporary_of(last.as_bytes(), name) {
        return;
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let above = above.unwrap_or(Path::new("."));
    let Ok(above) = openat2(dir, above, flags, Mode::empty(), resolve) else { return };
    let name = OsStr::from_bytes(name);
    let same = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (id.device, id.inode));
    if same && !is_held(&above, name) {
        let _ = unlinkat(above, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use longhaul_core::wire::FilePath;

    use super::super::format::FileId;
    use super::*;

    fn open(dir: &Path, durable: bool) -> Result<(Journal, Past), OpenError> {
        let fd = openat(rustix::fs::CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let key = CopyKey::new(5);
        let setting = Setting { durable, ..Setting::default() };
        Journal::open(fd.unwrap(), &key, setting, Duration::ZERO, &|| false)
    }

    #[test]
    fn a_journal_that_cannot_be_begun_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join(NAME);
        std::fs::write(&at, "").unwrap();
        let fd = std::fs::File::open(dir.path()).unwrap().into();
        // Writing to it fails as on a full disk.
        let file = File::open(&at).unwrap();
        let journal = Journal { dir: fd, name: NAME.to_owned(), file, length: 0, found: false };
        let opened = journal.continue_with(Past::default(), Setting::default(), None);
        assert!(matches!(opened, Err(OpenError::Unavailable)));
        assert!(!at.exists());
    }

    #[test]
    fn a_journal_of_an_unknown_boot_is_not_durable() {
        let dir = tempfile::tempdir().unwrap();
        let options = File::options().read(true).write(true).create(true).clone();
        let begun = || {
            let fd = File::open(dir.path()).unwrap().into();
            let file = options.open(dir.path().join(NAME)).unwrap();
            let journal = Journal { dir: fd, name: NAME.to_owned(), file, length: 0, found: true };
            let past = Past::read(&mut BufReader::new(&journal.file));
            journal.continue_with(past, Setting::default(), None).unwrap()
        };
        begun().0.append(&[partial(".f.part", no_file())]).unwrap();
        let past = Past::read(&mut BufReader::new(File::open(dir.path().join(NAME)).unwrap()));
        assert!(!past.holds(None), "a durable attempt does not use it");
        assert_eq!(begun().1.files.len(), 1, "the same process uses it");
        assert!(begun().1.begin.is_some());
    }

    fn partial(temporary: &str, id: FileId) -> Record {
        let temporary = FilePath::new(temporary).unwrap();
        Record::Partial { path: FilePath::new("f").unwrap(), stamp: 1, temporary, id }
    }

    fn no_file() -> FileId {
        FileId { device: 0, inode: 0, size: 0, mtime_seconds: 0, mtime_ns: 0, ctime: None }
    }

    fn of_file(path: &Path) -> FileId {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).map_or(no_file(), |metadata| FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
            ..no_file()
        })
    }

    const NAME: &str = ".longhaul-00000000000000000000000000000005.journal";

    #[test]
    fn one_copy_has_it_and_the_next_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, past) = open(dir.path(), true).unwrap();
        assert!(past.files.is_empty());
        assert!(matches!(open(dir.path(), true), Err(OpenError::Busy)));
        journal.append(&[partial(".f.part", no_file())]).unwrap();
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
        journal.append(&[partial(".f.part", no_file())]).unwrap();
        drop(journal);
        let (_, past) = open(dir.path(), true).unwrap();
        assert!(past.begin.is_none(), "what it says does not count");
        assert_eq!(past.files.len(), 1, "what it names can be cleaned up");
    }

    #[test]
    fn an_abandoned_journal_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("target");
        std::fs::create_dir(&inside).unwrap();
        const OURS: &str = ".f.longhaul-00000000-0.part";
        const REPLACED: &str = ".f.longhaul-00000000-1.part";
        for name in [OURS, REPLACED, "precious.part", "other"] {
            std::fs::write(inside.join(name), "x").unwrap();
        }
        std::fs::write(dir.path().join(".f.longhaul-00000000-2.part"), "x").unwrap();
        let mut bytes = Vec::new();
        let outside = "../.f.longhaul-00000000-2.part";
        for (number, name) in [OURS, REPLACED, "precious.part", outside].iter().enumerate() {
            bytes.clear();
            let id = if *name == REPLACED { no_file() } else { of_file(&inside.join(name)) };
            partial(name, id).encode(&mut bytes).unwrap();
            let stale = inside.join(format!(".longhaul-{number}.journal"));
            std::fs::write(&stale, &bytes).unwrap();
            let then = SystemTime::now() - 2 * STALE_AFTER;
            File::options().write(true).open(&stale).unwrap().set_modified(then).unwrap();
        }
        std::fs::write(inside.join(".longhaul-young.journal"), &bytes).unwrap();
        let (journal, _) = open(&inside, true).unwrap();
        journal.remove_stale();
        journal.remove();
        assert_eq!(names(&inside), [REPLACED, ".longhaul-young.journal", "other", "precious.part"]);
        assert!(dir.path().join(".f.longhaul-00000000-2.part").exists());
    }

    fn names(dir: &Path) -> Vec<String> {
        let fd = openat(rustix::fs::CWD, dir, OFlags::RDONLY, Mode::empty()).unwrap();
        let names = list(fd).unwrap();
        names.iter().map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    /// Puts a journal with one file in the place of the journal that is opened.
    fn planted(dir: &Path) -> std::path::PathBuf {
        let mut bytes = Vec::new();
        let (terms, name) = (Some(CopyTerms::default()), None);
        let begin = Record::Begin { version: VERSION, block_bytes: None, boot: None, terms, name };
        for record in [begin, partial(".f.longhaul-00000000-0.part", no_file())] {
            record.encode(&mut bytes).unwrap();
        }
        let path = dir.join(NAME);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Opens the journal beside an invalid one. The copy starts from the beginning, and later finds
    /// its own journal.
    fn starts_afresh(dir: &Path, why: &str) {
        let before = std::fs::symlink_metadata(dir.join(NAME)).unwrap();
        let (mut journal, past) =
            open(dir, true).unwrap_or_else(|error| panic!("{why}: {error:?}"));
        assert!(past.files.is_empty() && !past.is_usable(), "{why}");
        assert_ne!(journal.name, NAME, "{why}");
        let name = journal.name.clone();
        journal.append(&[partial(".g.part", no_file())]).unwrap();
        assert!(matches!(open(dir, true), Err(OpenError::Busy)), "{why}: our own is waited for");
        drop(journal);
        let (journal, past) = open(dir, true).unwrap();
        assert_eq!((journal.name.as_str(), past.files.len()), (name.as_str(), 1), "{why}");
        journal.remove();
        let after = std::fs::symlink_metadata(dir.join(NAME)).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap(), "{why}");
        assert_eq!(names(dir).iter().filter(|name| name.starts_with(".longhaul-")).count(), 1);
    }

    /// Checks that a copy removes the invalid journal at its name and begins another one there.
    fn begins_another(dir: &Path, why: &str) {
        let (journal, past) = open(dir, true).unwrap();
        assert!(past.files.is_empty() && !past.is_usable() && journal.is_found(), "{why}");
        assert_eq!(journal.name, NAME, "{why}");
        journal.remove();
        assert!(!dir.join(NAME).exists(), "{why}");
    }

    #[test]
    #[ignore = "needs root"]
    fn a_journal_that_others_could_have_written_is_not_believed() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let fresh = || tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };

        let dir = fresh();
        planted(dir.path());
        assert_eq!(open(dir.path(), true).unwrap().1.files.len(), 1, "our own is");

        let dir = fresh();
        let path = planted(dir.path());
        chown(&path, Some(4711), None).expect("these tests run as root");
        starts_afresh(dir.path(), "another owner");

        for bits in [0o620, 0o602] {
            let dir = fresh();
            mode(&planted(dir.path()), bits);
            begins_another(dir.path(), "others may write");
        }

        let dir = fresh();
        std::fs::hard_link(planted(dir.path()), dir.path().join("second")).unwrap();
        begins_another(dir.path(), "a second name");
        assert!(dir.path().join("second").exists());

        let dir = fresh();
        let path = planted(dir.path());
        std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &path).unwrap();
        starts_afresh(dir.path(), "a symbolic link");

        let dir = fresh();
        std::fs::create_dir(dir.path().join(NAME)).unwrap();
        starts_afresh(dir.path(), "a directory");

        let dir = fresh();
        let pipe = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join(NAME), pipe).unwrap();
        starts_afresh(dir.path(), "a pipe");
    }

    #[test]
    #[ignore = "needs root"]
    fn the_lock_of_another_user_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = planted(dir.path());
        std::os::unix::fs::chown(&path, Some(4711), None).expect("these tests run as root");
        let theirs = File::open(&path).unwrap();
        flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
        starts_afresh(dir.path(), "locked by its owner");
    }

    #[test]
    fn a_record_that_was_written_in_part_hides_none_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(dir.path(), true).unwrap();
        journal.append(&[partial(".f.part", no_file())]).unwrap();
        let whole = journal.length;
        std::io::Write::write_all(&mut &journal.file, b"half a rec").unwrap();
        journal.cut(whole).unwrap();
        journal.append(&[partial(".g.part", no_file())]).unwrap();
        drop(journal);
        let (journal, past) = open(dir.path(), true).unwrap();
        let PastFile::Partial { temporary, .. } = &past.files[&b"f"[..]] else { panic!() };
        assert_eq!((temporary.as_bytes(), journal.length), (&b".g.part"[..], past.valid_bytes));
    }
}
