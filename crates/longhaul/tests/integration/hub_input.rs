//! Bad input to a hub and its clients: one clear sentence each, and nothing half done.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::host::{PROGRAM, assert_code, text};
use crate::running::Running;

/// A hub on a port of loopback that the kernel chose.
struct Hub {
    dir: tempfile::TempDir,
    _process: Running,
    url: String,
    password: String,
    pin: String,
}

fn longhaul(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("HOME", home).env_remove("XDG_CONFIG_HOME");
    command.env_remove("XDG_DATA_HOME").env_remove("STATE_DIRECTORY");
    command.env_remove("https_proxy").stdin(Stdio::null());
    command
}

impl Hub {
    /// Starts a hub with a directory that is not the default of its user.
    fn start() -> Self {
        Self::start_in("hub")
    }

    /// Starts a hub with a directory in the home of its user.
    fn start_in(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join(name);
        let arguments = ["hub", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
        let mut child = longhaul(dir.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let process = Running(child);
        let mut last = |word: &str| {
            let line = lines.next().expect("a line of the hub").unwrap();
            assert!(line.contains(word), "{line}");
            line.split_whitespace().last().unwrap().to_owned()
        };
        let (password, url, pin) = (last("password"), last("https://"), last("pin"));
        // A thread drains the pipe, so that the hub never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Hub { dir, _process: process, url, password, pin }
    }

    fn login(&self, pin: &str) -> Output {
        let arguments = ["fleet", "login", &self.url, "--pin", pin];
        let mut login = longhaul(self.dir.path(), &arguments);
        login.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut login = login.spawn().unwrap();
        // A refused login may not read the password.
        let _ = login.stdin.take().unwrap().write_all(self.password.as_bytes());
        login.wait_with_output().unwrap()
    }

    fn agent(&self, state: &str, token: &str) -> Command {
        let state = self.dir.path().join(state);
        let arguments = [
            "agent",
            "--hub",
            &self.url,
            "--token",
            token,
            "--name",
            "west",
            "--stamp-port",
            "0",
            "--state",
            state.to_str().unwrap(),
        ];
        longhaul(self.dir.path(), &arguments)
    }
}

/// Checks that a command failed with one sentence.
fn one_sentence(output: &Output, code: i32, parts: &[&str]) {
    assert_code(output, code);
    let message = text(&output.stderr);
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
}

#[test]
fn a_wrong_certificate_and_a_used_token_are_one_sentence_each() {
    let hub = Hub::start();
    let wrong = "A".repeat(43);
    one_sentence(&hub.login(&wrong), 4, &["certificate", "another pin"]);
    assert!(!hub.dir.path().join(".config/longhaul/fleet.json").exists());
    assert_code(&hub.login(&hub.pin), 0);

    let made = longhaul(hub.dir.path(), &["fleet", "token", "west"]).output().unwrap();
    assert_code(&made, 0);
    let token = text(&made.stdout).trim().to_owned();
    let other = format!("{}.{wrong}", token.split('.').next().unwrap());
    let refused = hub.agent("other", &other).output().unwrap();
    one_sentence(&refused, 4, &["certificate", "another pin"]);

    let mut first = Running(hub.agent("first", &token).stderr(Stdio::null()).spawn().unwrap());
    let enrolled = hub.dir.path().join("first/enrolment.json");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !enrolled.exists() {
        assert!(first.0.try_wait().unwrap().is_none(), "the agent ended");
        assert!(Instant::now() < deadline, "the agent enrolls in time");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The other directory has another key.
    let again = hub.agent("second", &token).output().unwrap();
    one_sentence(&again, 4, &["the token was used", "longhaul fleet token HOST"]);
    assert!(!hub.dir.path().join("second/enrolment.json").exists());
}

#[test]
fn the_user_of_a_hub_needs_no_login_on_its_host() {
    let hub = Hub::start_in(".local/share/longhaul/hub");
    let fleet = |arguments: &[&str]| {
        let all = [&["fleet"], arguments].concat();
        longhaul(hub.dir.path(), &all).output().unwrap()
    };
    let made = fleet(&["token", "west"]);
    assert_code(&made, 0);
    assert!(text(&made.stdout).trim().ends_with(&hub.pin));
    let file = hub.dir.path().join(".local/share/longhaul/hub/local.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // A login that others could read may be theirs; the token of an earlier start is not accepted.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    one_sentence(&fleet(&["hosts"]), 6, &["local.json", "0644"]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let login = std::fs::read_to_string(&file).unwrap();
    let mut login: serde_json::Value = serde_json::from_str(&login).unwrap();
    login["token"] = "A".repeat(43).into();
    std::fs::write(&file, login.to_string()).unwrap();
    one_sentence(&fleet(&["hosts"]), 4, &["log"]);

    // A stored login precedes.
    assert_code(&hub.login(&hub.pin), 0);
    assert_code(&fleet(&["hosts"]), 0);
}

#[test]
fn a_mesh_is_checked_without_the_hub_that_left_its_login() {
    let Hub { dir, _process: hub, .. } = Hub::start_in(".local/share/longhaul/hub");
    drop(hub);
    let mesh = "[hosts.west]\naddress = \"192.0.2.1\"\ncapacity = \"1G\"\n";
    std::fs::write(dir.path().join("mesh.toml"), mesh).unwrap();
    let file = dir.path().join("mesh.toml");
    let fleet = |command: &str| {
        longhaul(dir.path(), &["fleet", command, file.to_str().unwrap()]).output().unwrap()
    };
    let plan = fleet("plan");
    assert_code(&plan, 0);
    let said = text(&plan.stderr);
    assert!(said.contains("the plan is not compared with the mesh of a hub"), "{said}");
    one_sentence(&fleet("apply"), 3, &["127.0.0.1"]);
}

/// Returns the state of one check of `longhaul agent --check --json`.
fn state_of(output: &Output, check: &str) -> String {
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let found = checks.iter().find(|one| one["check"] == check);
    found.unwrap_or_else(|| panic!("{document}"))["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_revoked_agent_ends_and_its_key_is_refused() {
    let hub = Hub::start();
    let fleet = |arguments: &[&str]| {
        let all = [&["fleet"], arguments].concat();
        longhaul(hub.dir.path(), &all).output().unwrap()
    };
    one_sentence(&fleet(&["revoke", "west"]), 2, &["longhaul fleet login"]);
    assert_code(&hub.login(&hub.pin), 0);
    one_sentence(&fleet(&["revoke", "west"]), 4, &["west has no enrolled agent", "fleet hosts"]);
    one_sentence(&fleet(&["revoke", "../tokens"]), 2, &["'../tokens' is not a valid name"]);

    let token = text(&fleet(&["token", "west"]).stdout).trim().to_owned();
    let mut agent = Running(hub.agent("state", &token).stderr(Stdio::piped()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !text(&fleet(&["hosts"]).stdout).contains("present") {
        assert!(Instant::now() < deadline, "the agent enrolls in time");
        std::thread::sleep(Duration::from_millis(100));
    }
    let check = || hub.agent("state", &token).args(["--check", "--json"]).output().unwrap();
    let running = check();
    assert_code(&running, 0);
    assert_eq!(state_of(&running, "state directory"), "running");
    assert_eq!(state_of(&running, "accepted"), "ok");
    let revoked = fleet(&["revoke", "west", "--json"]);
    assert_code(&revoked, 0);
    let document: serde_json::Value = serde_json::from_slice(&revoked.stdout).unwrap();
    assert_eq!(document["schema"], "longhaul.fleet-revoked/1");
    assert_eq!(document["host"], "west");
    // The agent's request waits at the hub at most 25 s.
    while agent.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the agent ends in time");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(agent.0.wait().unwrap().code(), Some(4));
    assert!(text(&fleet(&["hosts"]).stdout).contains("revoked"));
    one_sentence(&fleet(&["revoke", "west"]), 4, &["west has no enrolled agent"]);
    let checked = check();
    assert_code(&checked, 9);
    assert_eq!(state_of(&checked, "state directory"), "ok");
    assert_eq!(state_of(&checked, "accepted"), "failed");
    assert!(text(&checked.stdout).contains("the key of the agent is revoked"));
    // The key stays refused; another agent of the host needs a token.
    let again = hub.agent("state", &token).output().unwrap();
    assert_code(&again, 4);
    assert!(text(&again.stderr).contains("the key of the agent is revoked"));
}

/// Starts an HTTP proxy, and returns its URL and the list of the addresses that its clients ask for.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let targets = Arc::<Mutex<Vec<String>>>::default();
    let asked = targets.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            std::thread::spawn(move || relay(client, &asked));
        }
    });
    (url, targets)
}

/// Serves a client of the proxy. The client sends nothing between its request and the answer.
fn relay(mut client: TcpStream, asked: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = BufReader::new(client.try_clone().ok()?).lines();
    let request = head.next()?.ok()?;
    let target = request.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
    while !head.next()?.ok()?.is_empty() {}
    let mut hub = TcpStream::connect(&target).ok()?;
    asked.lock().unwrap().push(target);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let (mut from, mut to) = (hub.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || io::copy(&mut from, &mut to));
    io::copy(&mut client, &mut hub).ok().map(drop)
}

#[test]
fn an_agent_behind_a_proxy_reaches_the_hub() {
    let hub = Hub::start();
    assert_code(&hub.login(&hub.pin), 0);
    let fleet = |arguments: &[&str]| {
        let all = [&["fleet"], arguments].concat();
        text(&longhaul(hub.dir.path(), &all).output().unwrap().stdout)
    };
    let token = fleet(&["token", "west"]).trim().to_owned();
    let (url, asked) = proxy();
    let mut agent = hub.agent("state", &token);
    for name in ["no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY", "HTTPS_PROXY"] {
        agent.env_remove(name);
    }
    let _agent = Running(agent.env("https_proxy", url).stderr(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fleet(&["hosts"]).contains("present") {
        assert!(Instant::now() < deadline, "the agent enrolls in time");
        std::thread::sleep(Duration::from_millis(100));
    }
    let hub = hub.url.strip_prefix("https://").unwrap();
    let asked = asked.lock().unwrap().clone();
    assert!(!asked.is_empty() && asked.iter().all(|target| target == hub), "{asked:?}");
}

#[test]
fn the_password_of_a_user_can_be_piped() {
    let mut hub = Hub::start();
    let data = hub.dir.path().join("hub");
    let user = |change: &[&str], password: &str| {
        let all = [&["hub", "user"], change, &["--data", data.to_str().unwrap()]].concat();
        let mut user = longhaul(hub.dir.path(), &all);
        user.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut user = user.spawn().unwrap();
        user.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        user.wait_with_output().unwrap()
    };
    one_sentence(&user(&["add", "ann"], ""), 2, &["no password", "pipe it", "LONGHAUL_ASKPASS"]);
    one_sentence(&user(&["add", "ann"], "short\n"), 2, &["fewer than"]);
    let added = user(&["add", "ann"], "of sixteen chars\n");
    one_sentence(&added, 0, &["added the user ann"]);
    let changed = user(&["passwd", "admin"], "another of chars");
    one_sentence(&changed, 0, &["changed the password of admin"]);
    one_sentence(&hub.login(&hub.pin), 4, &["password"]);
    hub.password = "another of chars\n".to_owned();
    assert_code(&hub.login(&hub.pin), 0);
}

#[test]
fn a_database_of_a_newer_version_and_a_public_key_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("hub");
    let data = data.to_str().unwrap();
    let users = longhaul(dir.path(), &["hub", "user", "list", "--data", data]).output().unwrap();
    assert_code(&users, 0);
    let script = "import sqlite3, sys\n\
                  db = sqlite3.connect(sys.argv[1] + '/hub.db')\n\
                  db.execute('UPDATE schema_version SET version = 999')\n\
                  db.commit()\n";
    assert!(Command::new("python3").args(["-c", script, data]).status().unwrap().success());
    let before = std::fs::read(dir.path().join("hub/hub.db")).unwrap();
    let listen = ["hub", "--listen", "127.0.0.1:0", "--data", data];
    let newer = longhaul(dir.path(), &listen).output().unwrap();
    one_sentence(&newer, 5, &["a newer version of longhaul", "schema 999"]);
    assert!(before == std::fs::read(dir.path().join("hub/hub.db")).unwrap(), "nothing changed");

    let pem = dir.path().join("key.pem");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=hub", "-keyout"])
        .arg(&pem)
        .arg("-out")
        .arg(dir.path().join("chain.pem"))
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    assert!(Command::new("chmod").arg("644").arg(&pem).status().unwrap().success());
    let other = dir.path().join("other");
    let chain = dir.path().join("chain.pem");
    let arguments = [
        "hub",
        "--listen",
        "127.0.0.1:0",
        "--data",
        other.to_str().unwrap(),
        "--tls-cert",
        chain.to_str().unwrap(),
        "--tls-key",
        pem.to_str().unwrap(),
    ];
    let exposed = longhaul(dir.path(), &arguments).output().unwrap();
    one_sentence(&exposed, 5, &["has mode 644", "chmod 600"]);

    assert!(Command::new("chmod").arg("777").arg(&other).status().unwrap().success());
    let open = longhaul(dir.path(), &arguments[..5]).output().unwrap();
    one_sentence(&open, 5, &["directory", "has mode 777", "chmod go-w"]);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("hub");
    let data = data.to_str().unwrap();
    let with_mail = |server: &'static str, more: &[&'static str]| {
        let mail = ["--mail-server", server, "--mail-from", "hub@example.net"];
        [&mail[..], &["--notify-mail", "ops@example.net"], more].concat()
    };
    let cases: [(Vec<&str>, &str); 7] = [
        (with_mail("mail.example.net", &[]), "smtps://"),
        (with_mail("smtps://hub@mail.example.net", &[]), "--mail-password"),
        (with_mail("smtp://hub@mail.example.net", &["--mail-password", "/dev/null"]), "smtps://"),
        (vec!["--remote-write", "ftp://example.net"], "--remote-write ftp://example.net"),
        (vec!["--notify-url", "http://example.net/"], "--notify-url"),
        (vec!["--database", "postgres://hub@db/fleet?sslmode=verify-ca"], "sslmode=verify-ca"),
        (
            vec!["--database", "postgres://hub@db/fleet?sslmode=verify-full&sslrootcert=/none"],
            "/none",
        ),
    ];
    for (arguments, part) in cases {
        let all =
            [&["hub", "--listen", "127.0.0.1:0", "--data", data][..], &arguments[..]].concat();
        let output = longhaul(dir.path(), &all).output().unwrap();
        one_sentence(&output, 2, &[part]);
        assert!(!dir.path().join("hub/hub.db").exists(), "{arguments:?}");
    }
}
