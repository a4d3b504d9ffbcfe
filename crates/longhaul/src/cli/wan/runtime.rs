//! The files of running topologies: a socket, a lock and a log per topology, in a private directory
//! of the user.
//!
//! The holder of a topology and its sites hold the lock while they live. A socket with a free lock
//! belongs to a killed topology, and the next command removes it.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The time limit for the processes of a killed topology to end.
const END_TIME: Duration = Duration::from_secs(5);

/// The files of one topology.
#[derive(Debug, Clone)]
pub(super) struct RuntimeFiles {
    directory: PathBuf,
    pub(super) name: String,
}

/// The held lock of a topology.
#[derive(Debug)]
pub(super) struct RuntimeLock {
    files: RuntimeFiles,
    _lock: File,
}

impl RuntimeFiles {
    /// Returns the files of the topology `name`, which need not be up.
    pub(super) fn named(name: &str) -> anyhow::Result<RuntimeFiles> {
        Ok(RuntimeFiles { directory: directory()?, name: name.to_owned() })
    }

    /// Returns the files of the topology `name`, or without a name of the only one that is up. If
    /// none is up, it is the only killed one, so that the command can report its end.
    pub(super) fn of_running(name: Option<&str>) -> anyhow::Result<RuntimeFiles> {
        if let Some(name) = name {
            return RuntimeFiles::named(name);
        }
        let (killed, mut up): (Vec<RuntimeFiles>, Vec<RuntimeFiles>) =
            RuntimeFiles::all()?.into_iter().partition(RuntimeFiles::is_left_over);
        if up.is_empty() {
            up = killed;
        }
        match up.as_slice() {
            [] => bail!("no topology is up; 'longhaul wan up FILE' starts one"),
            [only] => Ok(only.clone()),
            many => {
                let names: Vec<&str> = many.iter().map(|files| &*files.name).collect();
                bail!("several topologies are up; choose one with --name: {}", names.join(", "))
            }
        }
    }

    /// Returns the files of all topologies that have a socket.
    fn all() -> anyhow::Result<Vec<RuntimeFiles>> {
        let directory = directory()?;
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned()))
            .collect();
        names.sort();
        let files = |name| RuntimeFiles { directory: directory.clone(), name };
        Ok(names.into_iter().map(files).collect())
    }

    /// Returns the log of the holder.
    pub(super) fn log(&self) -> PathBuf {
        self.file("log")
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.name))
    }

    /// Connects to the holder of the topology.
    pub(super) fn connect(&self) -> anyhow::Result<UnixStream> {
        match UnixStream::connect(self.file("sock")) {
            Ok(stream) => Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("no topology '{}' is up", self.name)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => bail!(
                "the topology '{0}' was killed and nothing of it runs; remove its files with \
                 'longhaul wan down --name {0}'; its log is {1}",
                self.name,
                self.log().display()
            ),
            Err(error) => {
                Err(error).with_context(|| format!("cannot connect to topology '{}'", self.name))
            }
        }
    }

    /// Returns whether there is a socket without a listener.
    pub(super) fn is_left_over(&self) -> bool {
        UnixStream::connect(self.file("sock"))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Takes the lock for a new topology, and removes the socket of a killed one.
    pub(super) fn hold(&self) -> anyhow::Result<RuntimeLock> {
        let Some(held) = self.try_hold()? else {
            bail!(
                "the topology '{0}' is already up; take it down with 'longhaul wan down --name \
                 {0}', or choose another --name",
                self.name
            );
        };
        remove(&self.file("sock"))?;
        Ok(held)
    }

    /// Takes the lock if it is free. Waits for the sites of a killed topology: they inherited the
    /// lock, and the kernel is ending them.
    pub(super) fn try_hold(&self) -> anyhow::Result<Option<RuntimeLock>> {
        let deadline = Instant::now() + END_TIME;
        loop {
            let held = self.try_lock()?;
            if held.is_some() || !self.is_left_over() || Instant::now() >= deadline {
                return Ok(held);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_lock(&self) -> anyhow::Result<Option<RuntimeLock>> {
        let path = self.file("lock");
        let failed = || format!("cannot lock {}", path.display());
        loop {
            let lock = File::create(&path).with_context(failed)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
            }
            // The previous holder may have removed the file after it was opened here.
            let own = lock.metadata().with_context(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == own) {
                return Ok(Some(RuntimeLock { files: self.clone(), _lock: lock }));
            }
        }
    }
}

impl RuntimeLock {
    /// Listens for requests.
    pub(super) fn listen(&self) -> anyhow::Result<UnixListener> {
        let path = self.files.file("sock");
        UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))
    }

    /// Removes the socket and the lock file, and with `log` also the log.
    pub(super) fn clear(self, log: bool) -> anyhow::Result<()> {
        remove(&self.files.file("sock"))?;
        if log {
            remove(&self.files.log())?;
        }
        remove(&self.files.file("lock"))
    }
}

/// Splits NAME/PART, the name of a topology and of a site or link in it. `name` is the value of
/// `--name`.
///
/// # Errors
/// Both give a name, and the names differ.
pub(super) fn split_name<'a>(
    name: Option<&'a str>,
    text: &'a str,
) -> anyhow::Result<(Option<&'a str>, &'a str)> {
    match (text.split_once('/'), name) {
        (None, name) => Ok((name, text)),
        (Some((topology, _)), Some(name)) if topology != name => {
            bail!("'{text}' is not in the topology '{name}'; give only one of the names")
        }
        (Some((topology, part)), _) => Ok((Some(topology), part)),
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the directory of this user, and creates it if necessary: in `/run` for root, in
/// `XDG_RUNTIME_DIR` for other users, or in `/tmp` without that variable.
pub(super) fn directory() -> anyhow::Result<PathBuf> {
    let user = rustix::process::geteuid();
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = match session.filter(|session| session.is_absolute()) {
        _ if user.is_root() => PathBuf::from("/run/longhaul"),
        Some(session) => session.join("longhaul"),
        None => PathBuf::from(format!("/tmp/longhaul-{}", user.as_raw())),
    };
    let made = DirBuilder::new().mode(0o700).create(&directory);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("cannot create {}", directory.display()));
    }
    // In /tmp another user may have created it.
    let found = fs::symlink_metadata(&directory)
        .with_context(|| format!("cannot read {}", directory.display()))?;
    if !found.is_dir() || found.uid() != user.as_raw() || found.mode() & 0o077 != 0 {
        bail!(
            "{} is not a private directory of this user; remove it, or set XDG_RUNTIME_DIR",
            directory.display()
        );
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_can_be_named_with_its_topology() {
        assert_eq!(split_name(None, "far").unwrap(), (None, "far"));
        assert_eq!(split_name(Some("demo"), "far").unwrap(), (Some("demo"), "far"));
        assert_eq!(split_name(None, "demo/far").unwrap(), (Some("demo"), "far"));
        assert_eq!(split_name(Some("demo"), "demo/far").unwrap(), (Some("demo"), "far"));
        assert!(split_name(Some("other"), "demo/far").is_err());
    }
}
