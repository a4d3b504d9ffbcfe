//! Keys: permissions of their files, reloads of the list, key rotation, passphrases and agents.

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::{PROGRAM, Server, TestHost, assert_code, names, text, wait_for};

/// A server that writes its log to a file.
struct LoggedServer {
    process: Child,
    log: PathBuf,
    port: u16,
}

impl LoggedServer {
    /// Starts `longhaul serve --root far` with `options`.
    fn start(host: &TestHost, options: &[&str]) -> Self {
        let (log, root) = (host.home().join("log"), host.far(""));
        let mut command = host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0", "--root"]);
        command.arg(root).args(options).stderr(File::create(&log).unwrap());
        let process = command.spawn().unwrap();
        let mut server = LoggedServer { process, log, port: 0 };
        wait_for("the server", || server.log().contains("serving "));
        let line = server.log();
        let (_, port) = line.lines().next().unwrap().rsplit_once(':').unwrap();
        server.port = port.parse().unwrap();
        server
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("lh://127.0.0.1:{}/{path}", self.port)
    }

    /// Waits until this many sessions have ended and no session runs.
    fn wait_until_idle_after(&self, sessions: usize) {
        wait_for("all sessions to end", || {
            let log = self.log();
            let count =
                |event| log.lines().filter(|line| line.split(' ').nth(1) == Some(event)).count();
            let ended = count("transfer");
            ended >= sessions && ended == count("session")
        });
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for LoggedServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn config(host: &TestHost, name: &str) -> PathBuf {
    host.home().join(".config/longhaul").join(name)
}

fn mode(path: PathBuf, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns the output of `longhaul key`.
fn key(host: &TestHost) -> String {
    let output = host.run(&["key"]);
    assert_code(&output, 0);
    text(&output.stdout).trim().to_owned()
}

#[test]
fn an_exposed_key_file_is_refused_with_the_command_that_fixes_it() {
    let host = TestHost::new();
    host.file("data", 1000);
    key(&host);
    let server = host.serve();
    for (name, bits, words) in [
        ("identity", 0o640, ["(mode 0640)", "chmod 600 "]),
        ("identity", 0o602, ["(mode 0602)", "chmod go-w "]),
        ("known_hosts", 0o666, ["(mode 0666)", "chmod go-w "]),
        ("", 0o777, ["(mode 0777)", "chmod go-w "]),
    ] {
        // The server's own key differs, so that it searches the list of keys.
        let client = TestHost::new();
        client.file("data", 1000);
        key(&client);
        fs::write(config(&client, "known_hosts"), "").unwrap();
        mode(config(&client, name), bits);
        let output = client.run(&["cp", "data", &server.url("x")]);
        assert_code(&output, 6);
        let error = text(&output.stderr);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        let path = config(&client, name);
        let path = path.to_str().unwrap().trim_end_matches('/');
        assert!(error.contains(path), "{error}");
    }
    fs::write(config(&host, "authorized_keys"), "").unwrap();
    chown(config(&host, "authorized_keys"), Some(12345), None).unwrap();
    let output = host.run(&["serve", "--bind", "127.0.0.1", "-p", "0", "--one-off"]);
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("belongs to user 12345"), "{}", text(&output.stderr));
}

/// Starts a copy that takes a minute.
fn long_copy(host: &TestHost, server: &LoggedServer, name: &str) -> Child {
    host.file("data", 32 << 20);
    let target = server.url(name);
    let slow = ["--bwlimit", "4M", "--block", "64KiB", "--give-up", "1"];
    host.longhaul(&[&["cp", "--accept-new"], &slow[..], &["data", &target]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_removed_key_loses_its_copy_and_others_continue() {
    let [far, alice, bob] = [TestHost::new(), TestHost::new(), TestHost::new()];
    key(&far);
    let list = config(&far, "authorized_keys");
    fs::write(&list, format!("{} alice\n{} bob\n", key(&alice), key(&bob))).unwrap();
    let server = LoggedServer::start(&far, &[]);
    let copies = [long_copy(&alice, &server, "alice"), long_copy(&bob, &server, "bob")];
    let [alices, mut bobs] = copies;
    let alices = RefCell::new(alices);
    wait_for("both copies", || {
        names(&far.far("")).iter().filter(|part| part.ends_with(".part")).count() == 2
    });

    fs::write(&list, format!("no-such-option {} bob\n", key(&bob))).unwrap();
    wait_for("the complaint", || server.log().contains("ERROR"));
    fs::write(&list, format!("{} bob\n", key(&bob))).unwrap();
    server.signal(Signal::HUP);
    wait_for("the end of the copy", || alices.borrow_mut().try_wait().unwrap().is_some());
    assert!(!alices.borrow_mut().wait().unwrap().success());
    assert!(bobs.try_wait().unwrap().is_none(), "{}", server.log());
    wait_for("the log", || server.log().contains("removed from authorized_keys"));
    assert_eq!(server.log().matches("ERROR").count(), 1, "{}", server.log());
    assert!(!far.far("alice").exists());
    bobs.kill().unwrap();
    bobs.wait().unwrap();
}

/// Creates a program that prints `answer`.
fn askpass(host: &TestHost, answer: &str) -> PathBuf {
    let program = host.home().join("askpass");
    fs::write(&program, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
    mode(program.clone(), 0o755);
    program
}

/// Returns a longhaul command without a terminal, an agent or an askpass program.
fn unattended(host: &TestHost, arguments: &[&str]) -> Command {
    let mut command = host.command("setsid", &["--wait", PROGRAM]);
    command.args(arguments);
    for name in ["SSH_AUTH_SOCK", "SSH_ASKPASS", "LONGHAUL_ASKPASS"] {
        command.env_remove(name);
    }
    command
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_code(&output, 0);
    text(&output.stdout)
}

/// An agent of OpenSSH.
struct SshAgent {
    process: Child,
    socket: PathBuf,
}

impl SshAgent {
    fn start(host: &TestHost) -> Self {
        // The path of a socket has at most 108 bytes.
        let socket = std::env::temp_dir().join(format!("longhaul-agent-{}", host_name(host)));
        let _ = fs::remove_file(&socket);
        let mut agent = host.command("ssh-agent", &["-D", "-a"]);
        let process = agent.arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        wait_for("the agent", || socket.exists());
        SshAgent { process, socket }
    }

    /// Adds a private key to the agent.
    fn add(&self, host: &TestHost, key: &PathBuf, askpass: &PathBuf) {
        let mut add = host.command("ssh-add", &[]);
        add.arg(key).env("SSH_AUTH_SOCK", &self.socket).env("DISPLAY", "none");
        add.env("SSH_ASKPASS", askpass).env("SSH_ASKPASS_REQUIRE", "force");
        succeeds(&mut add);
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

fn host_name(host: &TestHost) -> String {
    let home = host.home();
    let dir = home.parent().unwrap().file_name().unwrap();
    dir.to_str().unwrap().trim_start_matches('.').to_owned()
}

#[test]
fn an_encrypted_identity_needs_its_passphrase_or_an_agent() {
    let host = TestHost::new();
    host.file("data", 1000);
    let before = key(&host);
    let server = host.serve();
    let askpass = askpass(&host, "correct horse");
    let changed =
        succeeds(unattended(&host, &["key", "--passphrase"]).env("LONGHAUL_ASKPASS", &askpass));
    assert_eq!((changed.trim(), &key(&host)), (&before[..], &before));
    let mut ssh_keygen = host.command("ssh-keygen", &["-y", "-P", "correct horse", "-f"]);
    assert!(succeeds(ssh_keygen.arg(config(&host, "identity"))).starts_with("ssh-ed25519 "));

    let target = server.url("x");
    let copy = ["cp", "data", &target[..]];
    let locked = unattended(&host, &copy).output().unwrap();
    assert_code(&locked, 6);
    assert!(text(&locked.stderr).contains("LONGHAUL_ASKPASS"), "{}", text(&locked.stderr));
    let serve = ["serve", "--bind", "127.0.0.1", "-p", "0"];
    let locked = unattended(&host, &serve).output().unwrap();
    assert_code(&locked, 6);
    assert!(text(&locked.stderr).contains("is encrypted"), "{}", text(&locked.stderr));
    succeeds(unattended(&host, &copy).env("LONGHAUL_ASKPASS", &askpass));

    let agent = SshAgent::start(&host);
    agent.add(&host, &config(&host, "identity"), &askpass);
    succeeds(unattended(&host, &copy).env("SSH_AUTH_SOCK", &agent.socket));
}

#[test]
fn an_agent_key_can_be_the_identity() {
    let (far, near) = (TestHost::new(), TestHost::new());
    near.file("data", 1000);
    let user_key = near.home().join("id_ed25519");
    let mut ssh_keygen = near.command("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f"]);
    succeeds(ssh_keygen.arg(&user_key));
    let agent = SshAgent::start(&near);
    agent.add(&near, &user_key, &PathBuf::from("/bin/false"));
    fs::remove_file(&user_key).unwrap();
    fs::create_dir_all(config(&near, "")).unwrap();
    fs::copy(user_key.with_extension("pub"), config(&near, "identity")).unwrap();
    mode(config(&near, "identity"), 0o644);

    key(&far);
    fs::write(config(&far, "authorized_keys"), format!("{} near\n", key(&near))).unwrap();
    let server = far.serve();
    let target = server.url("x");
    let copy = ["cp", "--accept-new", "data", &target[..]];
    let without = unattended(&near, &copy).output().unwrap();
    assert_code(&without, 6);
    assert!(text(&without.stderr).contains("no ssh-agent has"), "{}", text(&without.stderr));
    succeeds(unattended(&near, &copy).env("SSH_AUTH_SOCK", &agent.socket));
    assert_eq!(fs::read(far.far("x")).unwrap(), fs::read(near.near("data")).unwrap());
}

#[test]
fn a_client_follows_a_server_to_its_next_key() {
    let (far, near) = (TestHost::new(), TestHost::new());
    near.file("data", 1000);
    let old = key(&far);
    fs::write(config(&far, "authorized_keys"), format!("{} near\n", key(&near))).unwrap();
    let mut server = far.serve();
    let port = server.port;
    let target = server.url("x");
    assert_code(&near.run(&["cp", "--accept-new", "data", &target]), 0);
    let mut restart = || {
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        server = far.serve_at(port);
    };
    let known = || {
        let list = fs::read_to_string(config(&near, "known_hosts")).unwrap();
        let keys = list.lines().map(|line| line.split_once(' ').unwrap().1.to_owned());
        keys.collect::<Vec<_>>()
    };
    let next = succeeds(&mut far.longhaul(&["key", "--rotate"])).trim().to_owned();
    restart();
    assert_code(&near.run(&["cp", "data", &target]), 0);
    assert_eq!(known(), [old.clone(), next.clone()]);
    assert_eq!(succeeds(&mut far.longhaul(&["key", "--switch"])).trim(), next);
    restart();
    assert_code(&near.run(&["cp", "data", &target]), 0);
    assert_eq!(known(), [next]);
    assert_ne!(key(&far), old);
}

#[test]
fn the_copies_of_a_key_share_its_rate_and_a_test_reserves_it() {
    let (far, near) = (TestHost::new(), TestHost::new());
    key(&far);
    let list = format!("max-rate=20M {} near\n", key(&near));
    fs::write(config(&far, "authorized_keys"), list).unwrap();
    let server = far.serve();
    near.file("data", 5_000_000);
    let start = Instant::now();
    let targets = [server.url("x"), server.url("y")];
    let copies = targets
        .each_ref()
        .map(|target| near.longhaul(&["cp", "--accept-new", "data", target]).spawn().unwrap());
    for mut copy in copies {
        assert!(copy.wait().unwrap().success());
    }
    // The copy has ten megabytes at 20 Mb/s, less the initial burst.
    assert!(start.elapsed() > Duration::from_secs(3), "{:?}", start.elapsed());

    let port = server.port.to_string();
    let test =
        |rate: &[&str]| near.run(&[&["test", "127.0.0.1", "-p", &port, "-t", "1"], rate].concat());
    for rate in [&[][..], &["-b", "21M"]] {
        let refused = test(rate);
        assert!(!refused.status.success());
        assert!(text(&refused.stderr).contains("20.0 Mb/s"), "{}", text(&refused.stderr));
    }
    assert_code(&test(&["-b", "10M"]), 0);
}

#[test]
fn the_sessions_of_a_key_share_its_quota() {
    let (far, near) = (TestHost::new(), TestHost::new());
    key(&far);
    let root = far.far("in");
    fs::create_dir(&root).unwrap();
    let list = |options: &str| {
        let line = format!("{options} {} near\n", key(&near));
        fs::write(config(&far, "authorized_keys"), line).unwrap();
    };
    list("quota=10MiB");
    let output = far.run(&["serve", "--bind", "127.0.0.1", "-p", "0", "--one-off"]);
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("'quota' needs root=DIR"), "{}", text(&output.stderr));

    list(&format!("root={},quota=10MiB", root.display()));
    let server = LoggedServer::start(&far, &[]);
    near.file("data", 6 << 20);
    let (one, two, stream) = (server.url("one"), server.url("two"), server.url("stream"));
    let copy = ["cp", "--accept-new", "--block", "1MiB", "-P", "1", "data", &one];
    let mut slow = near.longhaul(&[&copy[..], &["--bwlimit", "4M"]].concat());
    let mut slow = slow.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has = |end: &str| names(&root).iter().any(|name| name.ends_with(end));
    wait_for("the first copy", || has(".part"));
    let refused = |output: std::process::Output| {
        assert_code(&output, 5);
        let printed = text(&output.stderr);
        assert!(printed.contains("of this key's quota of 10.0 MiB"), "{printed}");
        printed
    };
    let second = ["cp", "--accept-new", "data", &two];
    assert!(refused(near.run(&second)).contains("the copy needs 6.00 MiB"));
    slow.kill().unwrap();
    slow.wait().unwrap();
    // The resumed copy reserves space only for the remaining bytes.
    assert_code(&near.run(&copy), 0);
    refused(near.run(&second));
    wait_for("the server to clean up", || names(&root) == ["one"]);

    let mut input = near.longhaul(&["cp", "--block", "1MiB", "-", &stream]);
    input.stdin(File::open(near.file("more", 8 << 20)).unwrap());
    refused(input.output().unwrap());
    // Each of the five commands has a session; the last session may still release its reservation.
    server.wait_until_idle_after(5);
    assert!(!root.join("stream").exists(), "{:?}", names(&root));
    let parts = names(&root).into_iter().filter(|name| name.ends_with(".part"));
    // The length of a file includes the holes of blocks that were refused.
    let space = |name| fs::metadata(root.join(name)).unwrap().blocks() * 512;
    let parts: u64 = parts.map(space).sum();
    assert!(parts <= 4 << 20, "{:?}", names(&root));

    names(&root).iter().for_each(|name| fs::remove_file(root.join(name)).unwrap());
    assert_code(&near.run(&second), 0);
    assert_eq!(names(&root), ["two"]);
}

#[test]
fn a_new_root_outside_the_rules_of_landlock_is_reported_when_the_list_is_read() {
    let (far, near) = (TestHost::new(), TestHost::new());
    key(&far);
    let server = LoggedServer::start(&far, &["--landlock", "require"]);
    let (inside, outside) = (far.far("inside"), near.near("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let (alice, bob) = (key(&near), key(&TestHost::new()));
    let list = format!("root={} {alice}\nroot={} {bob}\n", inside.display(), outside.display());
    fs::write(config(&far, "authorized_keys"), list).unwrap();
    wait_for("the list to be read", || server.log().contains("2 keys"));
    let reported = |root: &Path| {
        let line = format!("Landlock excludes {}, the root of a key", root.display());
        server.log().lines().any(|text| text.contains(&line) && text.contains("restart the server"))
    };
    wait_for("the report", || reported(&outside));
    assert!(!reported(&inside), "{}", server.log());
}

#[test]
fn a_log_beside_the_keys_is_refused_with_landlock() {
    let host = TestHost::new();
    key(&host);
    let log = |directory: &str| host.home().join(directory).join("audit.log");
    std::os::unix::fs::symlink(host.home().join(".config"), host.home().join("link")).unwrap();
    let serve = |log: PathBuf, landlock: &str| {
        let arguments =
            ["serve", "--bind", "127.0.0.1", "-p", "0", "--landlock", landlock, "--log"];
        let mut command = host.longhaul(&arguments);
        command.arg(log);
        command
    };
    for directory in [".config/longhaul", ".config", "link/longhaul", "."] {
        let output = serve(log(directory), "auto").output().unwrap();
        assert_code(&output, 6);
        let printed = text(&output.stderr);
        assert!(printed.contains("--log") && printed.contains("--landlock off"), "{printed}");
        assert!(!log(directory).exists(), "{directory}");
    }
    drop(Server::start(serve(log(".config/longhaul"), "off")));
    fs::create_dir(host.home().join(".config/longhaul/log")).unwrap();
    drop(Server::start(serve(log(".config/longhaul/log"), "auto")));
}
