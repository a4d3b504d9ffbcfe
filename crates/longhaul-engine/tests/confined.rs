//! A server whose handler does what an attacker would, with and without its rules for files.
//!
//! It has no test harness, because only a process with a single thread can set the rules: the
//! program starts itself again as the server.

// The parent process reads the output of the server.
#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::Result;
use longhaul_engine::serve::{
    ClientLimits, FileAccess, Listener, ServeEvent, ServerKeys, Services,
};
use longhaul_engine::session::{
    AuthorizedKeys, ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity,
    ServedSession, connect,
};
use longhaul_sys::confine::confine_files;

const SERVER: &str = "--as-server";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [role, dir, confined] if role == SERVER => serve(Path::new(dir), confined == "true"),
        _ => attack(),
    }
}

/// Opens, makes or runs whatever a client names.
struct Compromised;

impl Services for Compromised {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, mut session: ServedSession) -> Result<()> {
        let (verb, path): (String, String) = session.receiver.receive()?;
        let outcome = match verb.as_str() {
            "read" => std::fs::File::open(path).and_then(|mut file| file.read(&mut [0])).map(drop),
            "list" => std::fs::read_dir(path).map(drop),
            "write" => std::fs::File::options().append(true).open(path).map(drop),
            "make" => std::fs::write(path, "x"),
            "remove" => std::fs::remove_file(path),
            _ => Command::new(path).status().map(drop),
        };
        let outcome = outcome.map_err(|error| error.kind().to_string());
        session.sender.send(&outcome)
    }

    fn log(&self, _: ServeEvent) {}
}

/// The server: its root is `root` in `dir`, its keys are in `config`.
fn serve(dir: &Path, confined: bool) {
    let config = ConfigDir::at(dir.join("config"));
    let identity = Identity::load_or_create(&config).unwrap();
    let authorized = AuthorizedKeys::load(&config, identity.public()).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    if confined {
        let reach = FileAccess {
            roots: vec![dir.join("root")],
            config: dir.join("config"),
            root_user: true,
            ..FileAccess::default()
        };
        confine_files(&reach.rules()).expect("this test needs a kernel with Landlock");
    }
    println!("{}", listener.address().port());
    let host = Arc::new(ServerKeys { identity, authorized });
    let stop = AtomicBool::new(false);
    listener.run(host, Arc::new(Compromised), ClientLimits::default(), &stop);
}

/// A running server, killed when dropped.
struct Server {
    process: Child,
    port: u16,
    config: ConfigDir,
}

impl Server {
    fn start(dir: &Path, confined: bool) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([SERVER, dir.to_str().unwrap(), &confined.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("the server says its port");
        Server { process, port, config: ConfigDir::at(dir.join("config")) }
    }

    /// Returns the result of `verb` on `path` in the server.
    fn tries(&self, verb: &str, path: &Path) -> std::result::Result<(), String> {
        let identity = Identity::load_or_create(&self.config).unwrap();
        let options = ConnectOptions {
            identity: &identity,
            config: &self.config,
            policy: HostPolicy::RequireKnown,
            family: Family::Any,
            local: None,
        };
        let host = HostPort::new("127.0.0.1", self.port);
        let (sender, mut receiver, _dialer) =
            connect(&host, Service::Test, &options).unwrap().split();
        sender.send(&(verb, path.to_str().unwrap())).unwrap();
        receiver.receive().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A compromised handler reaches all files without the rules, and only its own files with them.
fn attack() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["root", "config", "outside"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    for name in ["root/file", "outside/file", "outside/victim"] {
        std::fs::write(at(name), "secret").unwrap();
    }
    std::os::unix::fs::symlink(at("outside/file"), at("root/link")).unwrap();
    let denied = || Err("permission denied".to_owned());
    for confined in [false, true] {
        let server = Server::start(dir.path(), confined);
        let outside = if confined { denied() } else { Ok(()) };
        for (verb, path) in [
            ("read", at("outside/file")),
            ("read", at("root/link")),
            ("read", at("root/../outside/file")),
            ("read", "/proc/self/root/etc/shadow".into()),
            ("list", at("outside")),
            ("list", "/root".into()),
            ("write", at("outside/file")),
            ("make", at("outside").join(format!("made-{confined}"))),
            ("remove", at("outside/victim")),
            ("run", "/bin/true".into()),
        ] {
            assert_eq!(server.tries(verb, &path), outside, "{verb} {path:?}, confined: {confined}");
            if verb == "remove" {
                std::fs::write(path, "again").unwrap();
            }
        }
        for (verb, path) in [
            ("read", at("root/file")),
            ("list", at("root")),
            ("write", at("root/file")),
            ("make", at("root/made")),
            ("remove", at("root/made")),
            ("read", "/proc/stat".into()),
            ("read", "/etc/passwd".into()),
        ] {
            assert_eq!(server.tries(verb, &path), Ok(()), "{verb} {path:?}, confined: {confined}");
        }
        // The keys may be read and not changed.
        let keys = at("config/authorized_keys");
        let change = if confined { denied() } else { Ok(()) };
        assert_eq!(server.tries("make", &keys), change, "confined: {confined}");
    }
    println!("a compromised handler stays in its root");
}
