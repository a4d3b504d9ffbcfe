//! The checks after a round: nothing outside the root has changed, honest clients are served, and
//! the memory and descriptors of the server return.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for an honest client, including its wait in the queue.
const SERVED: Duration = Duration::from_secs(90);
/// The time limit for a server to release ended sessions.
const SETTLED: Duration = Duration::from_secs(60);
/// The resident memory that a server may gain after its first round.
const MEMORY_KIB: u64 = 96 << 10;
/// The descriptors that a server may gain.
const DESCRIPTORS: usize = 8;

/// A directory with the root of the server and with files that no client may change.
pub(crate) struct Guard {
    dir: PathBuf,
}

impl Guard {
    /// Creates the directory `dir` with the root `root`.
    pub(crate) fn make(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("outside/deep"))?;
        for name in ["outside/secret", "outside/deep/secret", "passwd", ".hidden"] {
            fs::write(dir.join(name), format!("sentinel {name}"))?;
        }
        symlink("outside/secret", dir.join("link"))?;
        let guard = Guard { dir: dir.to_owned() };
        guard.fill()?;
        Ok(guard)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Recreates the contents of the root, with links that lead out of it.
    pub(crate) fn fill(&self) -> io::Result<()> {
        let root = self.root();
        if root.exists() {
            // The directory itself stays, because the server has it open.
            for entry in fs::read_dir(&root)? {
                let path = entry?.path();
                if fs::symlink_metadata(&path)?.is_dir() {
                    fs::remove_dir_all(path)?;
                } else {
                    fs::remove_file(path)?;
                }
            }
        }
        fs::create_dir_all(root.join("files"))?;
        fs::create_dir_all(root.join("up"))?;
        for n in 0..3 {
            fs::write(root.join(format!("files/f{n}")), vec![b'r'; n * 70_000])?;
        }
        symlink("../outside", root.join("out"))?;
        symlink(fs::canonicalize(&self.dir)?.join("outside"), root.join("absolute"))?;
        symlink("../../passwd", root.join("up/link"))
    }

    /// Returns the metadata and digests of everything outside the root; with `root` also inside.
    pub(crate) fn snapshot(&self, root: bool) -> io::Result<BTreeMap<PathBuf, String>> {
        let mut seen = BTreeMap::new();
        look(&self.dir, &mut seen, &|path| root || path != self.root())?;
        // Uploads change the time of the root.
        seen.remove(&self.root());
        Ok(seen)
    }
}

fn look(
    dir: &Path,
    seen: &mut BTreeMap<PathBuf, String>,
    into: &dyn Fn(&Path) -> bool,
) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let (what, is_dir) = match describe(&path) {
            // The server has removed a temporary file meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            described => described?,
        };
        if is_dir && into(&path) {
            look(&path, seen, into)?;
        }
        seen.insert(path, what);
    }
    Ok(())
}

/// Returns the metadata and the digest of a file, and whether it is a directory.
fn describe(path: &Path) -> io::Result<(String, bool)> {
    let metadata = fs::symlink_metadata(path)?;
    let content: OsString = if metadata.is_symlink() {
        fs::read_link(path)?.into()
    } else if metadata.is_file() {
        format!("{:x?}", blake3::hash(&fs::read(path)?)).into()
    } else {
        OsString::new()
    };
    let what = format!(
        "inode {} mode {:o} links {} owner {} mtime {}.{} {content:?}",
        metadata.ino(),
        metadata.mode(),
        metadata.nlink(),
        metadata.uid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    );
    Ok((what, metadata.is_dir()))
}

/// The memory and descriptors of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) memory_kib: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

impl Taken {
    pub(crate) fn by(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let memory_kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
            .unwrap_or_default();
        Ok(Taken {
            memory_kib,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: fs::read_dir(format!("/proc/{pid}/task"))?.count(),
        })
    }

    fn has_returned(&self, first: &Taken) -> bool {
        self.descriptors <= first.descriptors + DESCRIPTORS
            && self.memory_kib <= first.memory_kib + MEMORY_KIB
    }
}

/// Waits until the process `pid` has released the resources that it has used since `first`.
pub(crate) fn settle(pid: u32, first: &Taken) -> Result<Taken, String> {
    let deadline = Instant::now() + SETTLED;
    loop {
        let now = Taken::by(pid).map_err(|error| format!("the server has ended: {error}"))?;
        if now.has_returned(first) {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(format!("not returned after {SETTLED:?}: {first:?} has become {now:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The honest clients.
pub(crate) struct Honest {
    pub(crate) program: PathBuf,
    /// Their home directory, with the key of the server's user.
    pub(crate) home: PathBuf,
    pub(crate) port: u16,
}

impl Honest {
    /// Copies a file to the server and back, as far as the server allows, and runs a short test.
    pub(crate) fn is_served(&self, puts: bool, gets: bool) -> Result<(), String> {
        let there = format!("lh://127.0.0.1:{}", self.port);
        let (sent, back) = (self.home.join("sent"), self.home.join("back"));
        let content = vec![b's'; 100_001];
        fs::write(&sent, &content).map_err(|error| error.to_string())?;
        let _ = fs::remove_file(&back);
        let name = format!("honest-{}", std::process::id());
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if puts && gets {
            self.run(&["cp", &text(&sent), &format!("{there}/{name}")])?;
            self.run(&["cp", &format!("{there}/{name}"), &text(&back)])?;
            let copied = fs::read(&back).map_err(|error| error.to_string())?;
            if copied != content {
                return Err("an honest copy came back different".to_owned());
            }
        } else if puts {
            let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let moment = moment.unwrap_or_default().as_nanos();
            self.run(&["cp", &text(&sent), &format!("{there}/{name}-{moment}")])?;
        } else if gets {
            self.run(&["cp", &format!("{there}/files/f1"), &text(&back)])?;
        }
        self.run(&["test", &format!("127.0.0.1:{}", self.port), "-n", "100K"])
    }

    fn run(&self, arguments: &[&str]) -> Result<(), String> {
        let mut process = Command::new(&self.program)
            .args(arguments)
            .env("HOME", &self.home)
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let deadline = Instant::now() + SERVED;
        while Instant::now() < deadline {
            match process.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => {
                    let output = process.wait_with_output().map_err(|error| error.to_string())?;
                    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
                    return Err(format!(
                        "an honest client is not served: {arguments:?}: {printed}"
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let _ = process.kill();
        let _ = process.wait();
        Err(format!("an honest client is not served within {SERVED:?}: {arguments:?}"))
    }
}
