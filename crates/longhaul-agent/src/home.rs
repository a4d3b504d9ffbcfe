//! The directory of an agent: its key, its enrollment and its lock.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_engine::session::{ConfigDir, Identity};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::error::{AgentError, Result};

/// The enrollment of an agent, in the file `enrolment.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrollment {
    /// The hub: `https://HOST:PORT`.
    pub hub: String,
    /// The pin of the hub's key; `None` if the chain of its certificate is verified.
    pub pin: Option<String>,
    /// The agent's id.
    pub agent: String,
    /// The name of the host in the mesh.
    pub host: String,
}

/// The directory of an agent.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    /// The owner of the directory, whose files are accepted besides those of root and this user.
    owner: u32,
    /// Holds the lock of the directory; `None` if no agent has used it yet, or if another one uses it.
    _lock: Option<Lock>,
    /// True if another agent uses the directory, which only a [look](Home::look) permits.
    in_use: bool,
}

/// A locked file, which is unlocked even if a child that is about to start still has it open.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

const ENROLLMENT_FILE: &str = "enrolment.json";
/// The largest enrollment file.
const MOST_BYTES: u64 = 64 << 10;

impl Home {
    /// Opens or creates the directory, and locks it.
    ///
    /// # Errors
    /// The directory cannot be created, other users can write to it, or another agent uses it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let create = DirBuilder::new().recursive(true).mode(0o700).create(path);
        create.map_err(AgentError::file("create", path))?;
        let metadata = fs::metadata(path).map_err(AgentError::file("read", path))?;
        let owner = rustix::process::geteuid().as_raw();
        check_private(owner, path, &metadata, 0o077)?;
        let name = path.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&name).map_err(AgentError::file("open", &name))?;
        let home =
            Home { path: path.to_owned(), owner, _lock: None, in_use: false }.locked(lock)?;
        if home.in_use { Err(AgentError::InUse(home.path)) } else { Ok(home) }
    }

    /// Opens the directory for a check, and locks it if an agent has used it and none uses it now;
    /// writes nothing. Root can check the directory of another user. `None` if there is no directory.
    ///
    /// # Errors
    /// The directory cannot be read, or other users can write to it.
    pub(crate) fn look(path: &Path) -> Result<Option<Self>> {
        let Some(metadata) = found(fs::metadata(path)).map_err(AgentError::file("read", path))?
        else {
            return Ok(None);
        };
        let user = rustix::process::geteuid().as_raw();
        let owner = if user == 0 { metadata.uid() } else { user };
        check_private(owner, path, &metadata, 0o077)?;
        let home = Home { path: path.to_owned(), owner, _lock: None, in_use: false };
        let name = path.join("lock");
        match found(open_file(&name)).map_err(AgentError::file("open", &name))? {
            Some(lock) => home.locked(lock).map(Some),
            None => Ok(Some(home)),
        }
    }

    fn locked(self, lock: File) -> Result<Self> {
        match lock.try_lock() {
            Ok(()) => Ok(Home { _lock: Some(Lock(lock)), ..self }),
            Err(TryLockError::WouldBlock) => Ok(Home { in_use: true, ..self }),
            Err(TryLockError::Error(error)) => {
                Err(AgentError::file("lock", self.path.join("lock"))(error))
            }
        }
    }

    /// Returns whether another agent uses the directory.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Returns the path of `name` in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Loads the key of the agent, and creates it at the first use.
    pub(crate) fn identity(&self) -> Result<Identity> {
        Identity::load_or_create(&ConfigDir::at(&self.path)).map_err(AgentError::Key)
    }

    /// Loads the key of the agent; `None` if there is none yet.
    pub(crate) fn known_identity(&self) -> Result<Option<Identity>> {
        let config = ConfigDir::at(&self.path).trusting(self.owner);
        Identity::load(&config).map_err(AgentError::Key)
    }

    /// Reads the enrollment, if there is one.
    pub(crate) fn enrollment(&self) -> Result<Option<Enrollment>> {
        let Some(file) = self.known(ENROLLMENT_FILE)? else { return Ok(None) };
        let path = self.file(ENROLLMENT_FILE);
        let mut text = String::new();
        let read = file.take(MOST_BYTES).read_to_string(&mut text);
        read.map_err(AgentError::file("read", &path))?;
        match serde_json::from_str(&text) {
            Ok(enrollment) => Ok(Some(enrollment)),
            Err(error) => Err(AgentError::Damaged { path, message: error.to_string() }),
        }
    }

    /// Returns the path of the file `name` without symbolic links; `None` if there is none.
    ///
    /// # Errors
    /// The file is a symbolic link or not a regular file, or other users can write to it.
    pub(crate) fn known_file(&self, name: &str) -> Result<Option<PathBuf>> {
        let Some(_) = self.known(name)? else { return Ok(None) };
        let directory = fs::canonicalize(&self.path);
        let directory = directory.map_err(AgentError::file("read", &self.path))?;
        Ok(Some(directory.join(name)))
    }

    /// Opens the file `name` to read; `None` if there is none.
    fn known(&self, name: &str) -> Result<Option<File>> {
        let path = self.file(name);
        let opened = found(open_file(&path)).map_err(AgentError::file("read", &path))?;
        let Some(file) = opened else { return Ok(None) };
        let metadata = file.metadata().map_err(AgentError::file("read", &path))?;
        check_private(self.owner, &path, &metadata, 0o022)?;
        if metadata.is_file() {
            Ok(Some(file))
        } else {
            Err(AgentError::Damaged { path, message: "not a regular file".to_owned() })
        }
    }

    /// Writes the enrollment.
    pub(crate) fn store(&self, enrollment: &Enrollment) -> Result<()> {
        let path = self.file(ENROLLMENT_FILE);
        let text = serde_json::to_string_pretty(enrollment).unwrap_or_default();
        write_private(&path, text.as_bytes()).map_err(AgentError::file("write", path))
    }
}

/// Writes a file for this user only, synced and complete before it gets its name.
///
/// # Errors
/// The file cannot be created, written, synced or renamed.
pub fn write_private(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let _ = fs::remove_file(&temporary);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let written = file.and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    // The hub accepts a token once, so the name of the enrollment must survive a power failure.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    written.and_then(|()| File::open(directory.unwrap_or(Path::new(".")))?.sync_all())
}

/// Opens a file to read. A FIFO does not block.
fn open_file(path: &Path) -> std::io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns `None` for an object that does not exist.
fn found<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that the object at `path` belongs to `user` or root, and has none of the permissions
/// `forbidden`.
fn check_private(user: u32, path: &Path, metadata: &Metadata, forbidden: u32) -> Result<()> {
    let (mode, owner) = (metadata.mode() & 0o777, metadata.uid());
    let mine = owner == 0 || owner == user;
    if mine && mode & forbidden == 0 {
        Ok(())
    } else {
        Err(AgentError::Exposed { path: path.to_owned(), mode, owner })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_look_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        assert!(Home::look(&path).unwrap().is_none() && !path.exists());
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        let home = Home::look(&path).unwrap().unwrap();
        assert!(home.known_identity().unwrap().is_none() && home.enrollment().unwrap().is_none());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        // A look does not wait for an agent, and does not take its lock.
        let agent = Home::open(&path).unwrap();
        let key = agent.identity().unwrap().public();
        let known = |home: &Home| home.known_identity().unwrap().map(|one| one.public());
        let home = Home::look(&path).unwrap().unwrap();
        assert!(home.is_in_use());
        assert_eq!(known(&home), Some(key));
        drop((agent, home));
        let home = Home::look(&path).unwrap().unwrap();
        assert!(!home.is_in_use());
        assert_eq!(known(&home), Some(key));
        assert!(matches!(Home::open(&path), Err(AgentError::InUse(_))));
    }

    #[test]
    fn a_directory_serves_one_agent_and_no_other_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        let home = Home::open(&path).unwrap();
        assert!(matches!(Home::open(&path), Err(AgentError::InUse(_))));
        assert_eq!(home.enrollment().unwrap(), None);
        let enrollment = Enrollment {
            hub: "https://hub:5280".into(),
            pin: None,
            agent: "a1".into(),
            host: "west".into(),
        };
        home.store(&enrollment).unwrap();
        assert_eq!(home.enrollment().unwrap(), Some(enrollment));
        let mode = |name: &str| fs::metadata(home.file(name)).unwrap().permissions().mode() & 0o777;
        let key = home.identity().unwrap().public();
        assert_eq!(home.identity().unwrap().public(), key);
        assert_eq!((mode("identity"), mode(ENROLLMENT_FILE)), (0o600, 0o600));
        fs::write(home.file(ENROLLMENT_FILE), "{").unwrap();
        assert!(matches!(home.enrollment(), Err(AgentError::Damaged { .. })));
        drop(home);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(Home::open(&path), Err(AgentError::Exposed { .. })));
    }
}
