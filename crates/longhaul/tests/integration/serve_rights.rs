//! The rights that a server keeps: its user, its files, its memory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::host::{PROGRAM, Server, TestHost, assert_code, text};

/// The user `nobody` of every Linux.
const NOBODY: u32 = 65534;

/// A host whose keys and files a user other than root can reach, as it can in `/etc`.
fn shared_host() -> TestHost {
    let host = TestHost::new();
    assert_code(&host.run(&["key"]), 0);
    let config = host.home().join(".config");
    let base = host.home().parent().unwrap().to_owned();
    for dir in [base, host.home(), config.clone(), config.join("longhaul")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(host.far(""), Some(NOBODY), Some(NOBODY)).unwrap();
    host
}

fn serve_as(host: &TestHost, user: &str) -> Command {
    let root = host.far("");
    let root = root.to_str().unwrap();
    host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0", "--root", root, "--user", user])
}

/// The lines of every thread's `/proc/PID/task/TID/status` that begin with `name`.
fn of_all_threads(server: &Server, name: &str) -> Vec<String> {
    let tasks = format!("/proc/{}/task", server.process.id());
    let line = |task: fs::DirEntry| {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
    };
    fs::read_dir(tasks).unwrap().filter_map(|task| line(task.unwrap())).collect()
}

#[test]
fn a_server_of_root_becomes_its_user_for_good() {
    let host = shared_host();
    let server = Server::start(serve_as(&host, "nobody:nogroup"));
    host.file("data", 3 << 20);
    assert_code(&host.run(&["cp", "data", &server.url("x")]), 0);
    let copied = fs::metadata(host.far("x")).unwrap();
    assert_eq!((copied.uid(), copied.len()), (NOBODY, 3 << 20));
    let ids = format!("{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}");
    for (name, expected) in [
        ("Uid:", ids.as_str()),
        ("Gid:", ids.as_str()),
        ("CapPrm:", "0000000000000000"),
        ("CapEff:", "0000000000000000"),
        ("NoNewPrivs:", "1"),
    ] {
        let found = of_all_threads(&server, name);
        assert!(found.len() >= 2, "{found:?}");
        assert!(found.iter().all(|found| found == expected), "{name} {found:?}");
    }
    let groups = of_all_threads(&server, "Groups:");
    assert!(groups.iter().all(|list| !list.split(' ').any(|group| group == "0")), "{groups:?}");
    // The key stays root's, and no core file has it.
    let identity = host.home().join(".config/longhaul/identity");
    assert_eq!(fs::metadata(identity).unwrap().uid(), 0);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.process.id())).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["0", "0", "bytes"]);
}

#[test]
fn what_the_user_cannot_reach_is_named_at_the_start() {
    let refused = |host: &TestHost, words: &[&str]| {
        let output = serve_as(host, "nobody").output().unwrap();
        assert_code(&output, 6);
        let said = text(&output.stderr);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    let host = shared_host();
    let keys = host.home().join(".config/longhaul/authorized_keys");
    fs::write(&keys, "# nobody yet\n").unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&host, &["authorized_keys", "'nobody' (--user)", "XDG_CONFIG_HOME"]);
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(host.home(), fs::Permissions::from_mode(0o700)).unwrap();
    refused(&host, &["authorized_keys", "'nobody' (--user)"]);
    fs::set_permissions(host.home(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(Server::start(serve_as(&host, "nobody")));
}

#[test]
fn a_user_that_is_none_or_root_is_refused_and_so_is_one_for_a_user() {
    let host = shared_host();
    for (user, words) in [
        ("no-such-user", "there is no user 'no-such-user'"),
        ("nobody:no-such-group", "there is no group 'no-such-group'"),
        ("root", "'root' is root, which keeps every right"),
    ] {
        let output = serve_as(&host, user).output().unwrap();
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", PROGRAM, "serve"];
    let arguments = [&user[..], &["-p", "0", "--user", "daemon"]].concat();
    let output = host.command("setpriv", &arguments).output().unwrap();
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("only root can run as another user"));
}

/// Puts another directory under the name `dir`, as a restored backup or a new mount would be.
fn replace(dir: &Path) {
    fs::rename(dir, dir.with_extension("before")).unwrap();
    fs::create_dir(dir).unwrap();
}

#[test]
fn a_directory_that_came_after_the_start_needs_a_restart() {
    for landlock in ["auto", "require", "off"] {
        let (host, alice) = (TestHost::new(), TestHost::new());
        let key = alice.run(&["key"]);
        assert_code(&host.run(&["key"]), 0);
        let keys = host.home().join(".config/longhaul/authorized_keys");
        let line = format!("root={} {}", host.far("alice").display(), text(&key.stdout));
        fs::write(&keys, line).unwrap();
        fs::create_dir(host.far("alice")).unwrap();
        let arguments = ["serve", "--bind", "127.0.0.1", "-p", "0", "--landlock", landlock];
        let server = Server::start(host.longhaul(&arguments));
        alice.file("data", 100_000);
        let copy = |name: &str| alice.run(&["cp", "--accept-new", "data", &server.url(name)]);
        assert_code(&copy("x"), 0);
        replace(&host.far("alice"));
        let output = copy("y");
        if landlock == "off" {
            assert_code(&output, 0);
            continue;
        }
        assert_code(&output, 4);
        let said = text(&output.stderr);
        assert!(said.contains("Landlock") && said.contains("restart the server"), "{said}");
        assert_eq!(fs::read_dir(host.far("alice")).unwrap().count(), 0);
    }
}
