//! A private PostgreSQL server in a temporary directory, on a Unix socket.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_hub::store::Store;
use rustix::process::{Pid, Signal, kill_process};

use crate::receiver::Certificate;

/// A running server, which ends when the value is dropped.
pub(crate) struct Server {
    child: Child,
    dir: tempfile::TempDir,
    pub(crate) port: u16,
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
        Server::start_with(None)
    }

    /// Creates a cluster, and starts its server on a free port of loopback, too, with TLS.
    pub(crate) fn start_with_tls(certificate: &Certificate) -> Self {
        Server::start_with(Some(certificate))
    }

    fn start_with(certificate: Option<&Certificate>) -> Self {
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
        let mut port = 5432;
        let mut settings = vec!["listen_addresses=".to_owned()];
        if let Some(certificate) = certificate {
            port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            settings = vec!["listen_addresses=127.0.0.1".to_owned(), "ssl=on".to_owned()];
            for (name, text) in
                [("ssl_cert_file", &certificate.pem), ("ssl_key_file", &certificate.key_pem)]
            {
                let path = dir.path().join(name);
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
                if rustix::process::geteuid().is_root() {
                    let chown = Command::new("chown").arg("postgres").arg(&path).status().unwrap();
                    assert!(chown.success());
                }
                settings.push(format!("{name}={}", path.display()));
            }
        }
        let child = command(&programs().join("postgres"))
            .args(["-p", &port.to_string()])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(dir.path())
            .args(["-c", "fsync=off", "-c", "max_connections=60"])
            .current_dir("/")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { child, dir, port };
        server.wait();
        server
    }

    /// Waits until the server answers.
    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let ready = Command::new(programs().join("pg_isready"))
                .args(["-p", &self.port.to_string(), "-h"])
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
            .args(["-U", "hub", "-p", &self.port.to_string(), "-h"])
            .arg(self.dir.path())
            .arg(name)
            .current_dir("/")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        format!("host={} port={} user=hub dbname={name}", self.dir.path().display(), self.port)
    }
}

impl Server {
    /// Makes the space of old versions of rows usable again, as the server does by itself after a minute.
    pub(crate) fn vacuum(&self, database: &str) {
        let done = command(&programs().join("psql"))
            .args([
                "-U",
                "hub",
                "-p",
                &self.port.to_string(),
                "-d",
                database,
                "-qc",
                "VACUUM",
                "-h",
            ])
            .arg(self.dir.path())
            .current_dir("/")
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
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

/// Returns whether the connection to a database is encrypted, or the sentence of the failure.
async fn encrypted(address: &str) -> Result<bool, String> {
    let store = Store::postgres(address).await.map_err(|error| error.to_string())?;
    let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let rows = store.read(move |sql| sql.query(query, &[])).await.unwrap();
    Ok(rows[0].int(0).unwrap() == 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_encrypted_and_verified_as_the_address_asks() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let server = Server::start_with_tls(&certificate);
    let socket = server.database("fleet");
    let dir = tempfile::tempdir().unwrap();
    let [right, wrong] =
        [("right.pem", &certificate.pem), ("wrong.pem", &other.pem)].map(|(name, pem)| {
            let path = dir.path().join(name);
            std::fs::write(&path, pem).unwrap();
            path.display().to_string()
        });
    let at = |host: &str, more: &str| {
        format!("postgres://hub@{host}:{}/fleet?connect_timeout=20{more}", server.port)
    };
    assert_eq!(encrypted(&socket).await, Ok(false), "a Unix socket needs no TLS");
    assert_eq!(encrypted(&at("localhost", "")).await, Ok(true), "TLS is preferred");
    assert_eq!(encrypted(&at("localhost", "&sslmode=disable")).await, Ok(false));
    assert_eq!(encrypted(&at("127.0.0.1", "&sslmode=require")).await, Ok(true));
    let full =
        |host: &str, roots: &str| at(host, &format!("&sslmode=verify-full&sslrootcert={roots}"));
    assert_eq!(encrypted(&full("localhost", &right)).await, Ok(true));
    for refused in [
        full("localhost", &wrong),
        full("127.0.0.1", &right),
        at("localhost", "&sslmode=verify-full"),
    ] {
        let sentence = encrypted(&refused).await.unwrap_err();
        assert!(sentence.contains("certificate"), "{refused}: {sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
}
