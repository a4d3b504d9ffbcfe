//! A private PostgreSQL server in a temporary directory, on a Unix socket.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running server, which ends when the value is dropped.
pub(crate) struct Server {
    child: Child,
    dir: tempfile::TempDir,
}

/// Returns the directory of the newest installed server's programs.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("install postgresql");
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(version);
    newest.expect("install postgresql").join("bin")
}

/// Returns a command that runs `program` as an unprivileged user, because the server refuses root.
fn command(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

impl Server {
    /// Creates a cluster and starts its server.
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("lh-pg-").tempdir_in("/tmp").unwrap();
        if rustix::process::geteuid().is_root() {
            let chown = Command::new("chown").arg("postgres").arg(dir.path()).status().unwrap();
            assert!(chown.success(), "the user postgres exists");
        }
        let data = dir.path().join("data");
        let made = command(&programs().join("initdb"))
            .args(["--auth=trust", "--username=hub", "--encoding=UTF8", "--no-locale", "--no-sync"])
            .arg("-D")
            .arg(&data)
            .current_dir("/")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let child = command(&programs().join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(dir.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"])
            .current_dir("/")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { child, dir };
        server.wait();
        server
    }

    /// Waits until the server answers.
    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let ready = Command::new(programs().join("pg_isready"))
                .arg("-h")
                .arg(self.dir.path())
                .stdout(Stdio::null())
                .status()
                .unwrap();
            if ready.success() {
                return;
            }
            assert!(Instant::now() < deadline, "PostgreSQL did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Creates a database, and returns its address.
    pub(crate) fn database(&self, name: &str) -> String {
        let made = command(&programs().join("createdb"))
            .args(["-U", "hub", "-h"])
            .arg(self.dir.path())
            .arg(name)
            .current_dir("/")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        format!("host={} user=hub dbname={name}", self.dir.path().display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT: a fast shutdown, which ends the sessions.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.child.wait();
    }
}
