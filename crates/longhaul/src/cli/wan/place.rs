//! Where a topology that is up can be found: a directory of this user's, with a socket, a lock and
//! a log for each.
//!
//! The lock is held by the process that holds the topology and by the sites that it made, for as
//! long as they live; so a socket whose lock is free belongs to one that was killed, and is cleared
//! away by whoever finds it.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How long the processes of a killed topology may take to end.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// The files of one topology.
#[derive(Debug, Clone)]
pub(super) struct Place {
    directory: PathBuf,
    pub(super) name: String,
}

/// A topology's lock, held.
#[derive(Debug)]
pub(super) struct Held {
    place: Place,
    _lock: File,
}

impl Place {
    /// The place for a topology called `name`, whether or not it is up.
    pub(super) fn named(name: &str) -> anyhow::Result<Place> {
        Ok(Place { directory: directory()?, name: name.to_owned() })
    }

    /// The place of the topology called `name`, or without a name of the only one that is up. Where
    /// none is, one that was killed will do, for the sake of what there is to say about it.
    pub(super) fn of_running(name: Option<&str>) -> anyhow::Result<Place> {
        if let Some(name) = name {
            return Place::named(name);
        }
        let (killed, mut up): (Vec<Place>, Vec<Place>) =
            Place::all()?.into_iter().partition(Place::is_left_over);
        if up.is_empty() {
            up = killed;
        }
        match up.as_slice() {
            [] => bail!("no topology is up; 'longhaul wan up FILE' builds one"),
            [only] => Ok(only.clone()),
            many => {
                let names: Vec<&str> = many.iter().map(|place| &*place.name).collect();
                bail!("there are several topologies, choose with --name: {}", names.join(", "))
            }
        }
    }

    /// The places that have a socket.
    fn all() -> anyhow::Result<Vec<Place>> {
        let directory = directory()?;
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned()))
            .collect();
        names.sort();
        let place = |name| Place { directory: directory.clone(), name };
        Ok(names.into_iter().map(place).collect())
    }

    /// Where the process that holds the topology writes what it has to say.
    pub(super) fn log(&self) -> PathBuf {
        self.file("log")
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.name))
    }

    /// A connection to the process that holds the topology.
    pub(super) fn connect(&self) -> anyhow::Result<UnixStream> {
        match UnixStream::connect(self.file("sock")) {
            Ok(stream) => Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("no topology called '{}' is up", self.name)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => bail!(
                "the topology '{0}' was killed, and nothing of it runs any more; 'longhaul wan \
                 down --name {0}' clears its files away; see {1}",
                self.name,
                self.log().display()
            ),
            Err(error) => {
                Err(error).with_context(|| format!("cannot reach topology '{}'", self.name))
            }
        }
    }

    /// Whether there is a socket, and nobody behind it.
    pub(super) fn is_left_over(&self) -> bool {
        UnixStream::connect(self.file("sock"))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Takes the place for a new topology, clearing away what a killed one left.
    pub(super) fn hold(&self) -> anyhow::Result<Held> {
        let Some(held) = self.try_hold()? else {
            bail!(
                "a topology called '{0}' is up already; take it down with 'longhaul wan down \
                 --name {0}', or choose another --name",
                self.name
            );
        };
        remove(&self.file("sock"))?;
        Ok(held)
    }

    /// Takes the place if nobody holds it, or only the sites of a topology that was killed: they
    /// have the lock from the process that made them, and the kernel is about to end them.
    pub(super) fn try_hold(&self) -> anyhow::Result<Option<Held>> {
        let deadline = Instant::now() + LAST_BREATH;
        loop {
            let held = self.try_lock()?;
            if held.is_some() || !self.is_left_over() || Instant::now() >= deadline {
                return Ok(held);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_lock(&self) -> anyhow::Result<Option<Held>> {
        let path = self.file("lock");
        let failed = || format!("cannot lock {}", path.display());
        loop {
            let lock = File::create(&path).with_context(failed)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
            }
            // Whoever held it before may have removed it since it was opened here.
            let own = lock.metadata().with_context(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == own) {
                return Ok(Some(Held { place: self.clone(), _lock: lock }));
            }
        }
    }
}

impl Held {
    /// Listens for requests.
    pub(super) fn listen(&self) -> anyhow::Result<UnixListener> {
        let path = self.place.file("sock");
        UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))
    }

    /// Removes the socket and the lock, and with `log` what was said.
    pub(super) fn clear(self, log: bool) -> anyhow::Result<()> {
        remove(&self.place.file("sock"))?;
        if log {
            remove(&self.place.log())?;
        }
        remove(&self.place.file("lock"))
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

/// This user's directory, made if it is missing: below `/run` for root, below what the session
/// gives (`XDG_RUNTIME_DIR`) for others, else in `/tmp`.
fn directory() -> anyhow::Result<PathBuf> {
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
        return Err(error).with_context(|| format!("cannot make {}", directory.display()));
    }
    // In /tmp anybody may have been first.
    let there = fs::symlink_metadata(&directory)
        .with_context(|| format!("cannot look at {}", directory.display()))?;
    if !there.is_dir() || there.uid() != user.as_raw() || there.mode() & 0o077 != 0 {
        bail!(
            "{} is not a directory of this user's alone; remove it, or set XDG_RUNTIME_DIR",
            directory.display()
        );
    }
    Ok(directory)
}
