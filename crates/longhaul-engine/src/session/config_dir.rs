//! The directory of the identity, the authorized keys and the known hosts.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{EngineError, Result};

/// The longest wait for another program that writes files of the directory.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const LOCK_CHECK: Duration = Duration::from_millis(20);

/// The directory of the identity, the authorized keys and the known hosts:
/// `$XDG_CONFIG_HOME/longhaul` or `~/.config/longhaul`.
#[derive(Debug, Clone)]
pub struct ConfigDir {
    path: PathBuf,
    also_owned_by: Option<u32>,
}

impl ConfigDir {
    /// Returns the directory of this user.
    ///
    /// # Errors
    /// Neither `XDG_CONFIG_HOME` nor `HOME` is set to an absolute path.
    pub fn of_user() -> Result<Self> {
        let base = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        base("XDG_CONFIG_HOME")
            .or_else(|| base("HOME").map(|home| home.join(".config")))
            .map(|base| ConfigDir::at(base.join("longhaul")))
            .ok_or(EngineError::NoConfigDir)
    }

    /// Returns a directory at another path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        ConfigDir { path: path.into(), also_owned_by: None }
    }

    /// Returns the directory with files of the user `uid` accepted as well as those of root and of
    /// this user, for a server that root starts and that continues as `uid`.
    pub fn trusting(self, uid: u32) -> Self {
        ConfigDir { also_owned_by: Some(uid), ..self }
    }

    pub(super) fn also_owned_by(&self) -> Option<u32> {
        self.also_owned_by
    }

    /// Returns the path of the file `name` in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the directory for this user only.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(&self) -> Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(EngineError::file("create", &self.path))
    }

    /// Locks the directory against other programs that write its files until the value is dropped.
    ///
    /// # Errors
    /// Another program holds the lock for 10 s.
    pub(super) fn lock(&self) -> Result<File> {
        let failed = |source| EngineError::file("lock", &self.path)(source);
        let dir = File::open(&self.path).map_err(failed)?;
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            match dir.try_lock() {
                Ok(()) => return Ok(dir),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(LOCK_CHECK);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(failed(io::ErrorKind::TimedOut.into()));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}
