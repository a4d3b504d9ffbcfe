//! A host for the tests: a home directory, directories of files, and servers on loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The longhaul under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

/// A private home directory, so that tests do not share keys with each other or with the user. It
/// is in the project's directory, whose file system should support direct I/O.
pub(crate) struct TestHost {
    dir: tempfile::TempDir,
}

impl TestHost {
    pub(crate) fn new() -> Self {
        crate::needs::check();
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["near", "far", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        TestHost { dir }
    }

    pub(crate) fn near(&self, path: &str) -> PathBuf {
        self.dir.path().join("near").join(path)
    }

    pub(crate) fn far(&self, path: &str) -> PathBuf {
        self.dir.path().join("far").join(path)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Creates a file of incompressible bytes, whose content depends only on its size.
    pub(crate) fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let path = self.near(name);
        fs::write(&path, (0..bytes).map(|_| next()).collect::<Vec<_>>()).unwrap();
        path
    }

    /// Returns a longhaul command with the home and working directory of this host.
    pub(crate) fn longhaul(&self, arguments: &[&str]) -> Command {
        self.command(PROGRAM, arguments)
    }

    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.near(""))
            .env("HOME", self.home())
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.longhaul(arguments).output().unwrap()
    }

    /// Starts `longhaul serve --root far` on a free port.
    pub(crate) fn serve(&self) -> Server {
        self.serve_at(0)
    }

    /// Starts `longhaul serve --root far` on this port.
    pub(crate) fn serve_at(&self, port: u16) -> Server {
        let (root, port) = (self.far(""), port.to_string());
        let root = root.to_str().unwrap();
        Server::start(self.longhaul(&["serve", "--bind", "127.0.0.1", "-p", &port, "--root", root]))
    }
}

/// A server process; killed when dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts the server and waits until it prints its address.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.next().expect("a server says that it serves").unwrap();
        // A thread drains the pipe, so that the server never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        let port = line.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        Server { process, port: port.unwrap_or_else(|| panic!("no port in {line:?}")) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("lh://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout: {}\nstderr: {}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Returns the names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Waits until `condition` is true.
#[track_caller]
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
