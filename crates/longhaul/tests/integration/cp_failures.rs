//! Errors of copies: each is one line with an exit code, and no partial file has a final name.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::{PROGRAM, Server, TestHost, assert_code, names, text, wait_for};

/// Runs `arguments`, and expects `code` and one line on standard error that contains each of
/// `words`.
#[track_caller]
fn expect(host: &TestHost, arguments: &[&str], code: i32, words: &[&str]) {
    let output = host.run(arguments);
    assert_code(&output, code);
    let printed = text(&output.stderr);
    assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    for word in words {
        assert!(printed.contains(word), "{word:?} is not in {printed:?}");
    }
}

#[test]
fn an_unreachable_ssh_host_is_named() {
    let host = TestHost::new();
    host.file("data", 10);
    expect(&host, &["cp", "data", "lh://no-such-host.invalid/x"], 3, &["no-such-host.invalid"]);
    let port = host.serve().port; // the server is closed at once
    let target = format!("lh://127.0.0.1:{port}/x");
    expect(&host, &["cp", "data", &target], 3, &["127.0.0.1", "longhaul serve"]);
}

#[test]
fn only_authorized_keys_may_copy_files() {
    let (host, unauthorized) = (TestHost::new(), TestHost::new());
    let server = host.serve();
    unauthorized.file("data", 10);
    let target = server.url("x");
    expect(
        &unauthorized,
        &["cp", "data", &target],
        4,
        &["is not known", "SHA256:", "--accept-new"],
    );
    let accept = ["cp", "--accept-new", "data", &target];
    expect(&unauthorized, &accept, 4, &["not authorized", "longhaul key"]);
    let key = unauthorized.run(&["key"]);
    assert_code(&key, 0);
    drop(server);
    fs::write(host.home().join(".config/longhaul/authorized_keys"), key.stdout).unwrap();
    let server = host.serve();
    let accept = ["cp", "--accept-new", "data", &server.url("x")];
    assert_code(&unauthorized.run(&accept), 0);
    assert_eq!(names(&host.far("")), ["x"]);

    let no_files = Server::start(host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0"]));
    host.file("data", 10);
    expect(&host, &["cp", "data", &no_files.url("x")], 4, &["offers no files", "--root"]);
}

#[test]
fn an_impossible_source_or_target_is_named() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 10);
    fs::create_dir(host.far("data")).unwrap();
    expect(&host, &["cp", "missing", &server.url("x")], 5, &["missing"]);
    expect(&host, &["cp", "data", &server.url("none/x")], 5, &["none"]);
    expect(&host, &["cp", "data", &server.url("../x")], 5, &[".."]);
    // The target name is a directory.
    expect(&host, &["cp", "data", &server.url("")], 5, &["data", "directory"]);
    expect(&host, &["cp", "data", &server.url("y"), &server.url("z")], 2, &["on one host"]);
    expect(&host, &["serve", "--port", "0", "--root", "/no/such/root"], 5, &["/no/such/root"]);
    assert_eq!(names(&host.far("")), ["data"]);
}

/// Starts a server whose root is a mount with `options`, in a separate mount namespace.
fn serve_on(host: &TestHost, options: &str) -> Server {
    let root = host.far("");
    let root = root.to_str().unwrap();
    let script = format!(
        "mount -t tmpfs -o {options} none {root} && \
         exec {PROGRAM} serve --bind 127.0.0.1 -p 0 --root {root}"
    );
    Server::start(host.command("unshare", &["-m", "sh", "-c", &script]))
}

/// Returns the names in the root of the server.
fn seen_by(server: &Server, host: &TestHost) -> Vec<String> {
    let root = host.far("");
    let inside = format!("/proc/{}/root{}", server.process.id(), root.display());
    names(std::path::Path::new(&inside))
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_files() {
    let host = TestHost::new();
    let server = serve_on(&host, "size=8m");
    host.file("large", 20 << 20);
    host.file("small", 1000);
    let words = ["the copy needs 20.0 MiB", "8.00 MiB are free in", "410 KiB stay free"];
    expect(&host, &["cp", "large", &server.url("x")], 5, &words);
    wait_for("the server to clean up", || seen_by(&server, &host).is_empty());
    // The server detects before it writes that the files do not fit.
    assert_code(&host.run(&["cp", "small", "large", &server.url("")]), 5);
    wait_for("the server to clean up", || seen_by(&server, &host).is_empty());
}

#[test]
fn a_read_only_disk_is_reported() {
    let host = TestHost::new();
    let server = serve_on(&host, "ro");
    host.file("data", 1000);
    expect(&host, &["cp", "data", &server.url("x")], 5, &["Read-only"]);
}

/// Starts a long copy, and waits until the sink has begun to write.
fn long_copy(host: &TestHost, server: &Server) -> std::process::Child {
    host.file("data", 64 << 20);
    let target = server.url("x");
    let copy = host
        .longhaul(&["cp", "--bwlimit", "20M", "data", &target])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("a temporary file", || {
        names(&host.far("")).iter().any(|name| name.ends_with(".part"))
    });
    copy
}

/// Asserts that an interrupted copy left only resumable files.
fn only_resumable(host: &TestHost) -> bool {
    let resumable = |name: &String| name.ends_with(".part") || name.ends_with(".journal");
    names(&host.far("")).iter().all(resumable)
}

#[test]
fn an_interrupted_or_killed_client_leaves_only_resumable_files() {
    for (signal, code) in
        [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)]
    {
        let host = TestHost::new();
        let server = host.serve();
        let copy = long_copy(&host, &server);
        kill_process(Pid::from_child(&copy), signal).unwrap();
        let output = copy.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code, "{}", text(&output.stderr));
        assert!(only_resumable(&host), "{:?}", names(&host.far("")));
        assert_code(&host.run(&["cp", "data", &server.url("x")]), 0);
        assert_eq!(names(&host.far("")), ["x"]);
    }
}

#[test]
fn a_stopped_server_leaves_no_final_file_and_the_client_ends() {
    let host = TestHost::new();
    let mut server = host.serve();
    let copy = long_copy(&host, &server);
    kill_process(Pid::from_child(&server.process), Signal::TERM).unwrap();
    assert_eq!(copy.wait_with_output().unwrap().status.code(), Some(3));
    let _ = server.process.wait();
    assert!(only_resumable(&host), "{:?}", names(&host.far("")));
}

#[test]
fn a_source_that_vanishes_or_shrinks_leaves_no_file_at_the_sink() {
    for change in ["shrink", "vanish"] {
        let host = TestHost::new();
        let server = host.serve();
        let data = host.near("data");
        let copy = long_copy(&host, &server);
        if change == "shrink" {
            fs::File::options().write(true).open(&data).unwrap().set_len(1 << 20).unwrap();
            let output = copy.wait_with_output().unwrap();
            assert_code(&output, 5);
            let printed = text(&output.stderr);
            assert!(printed.contains("data") && printed.contains("during the copy"), "{printed}");
            wait_for("the far side to clean up", || names(&host.far("")).is_empty());
        } else {
            // An open file stays readable after its deletion.
            fs::remove_file(&data).unwrap();
            kill_process(Pid::from_child(&copy), Signal::KILL).unwrap();
            copy.wait_with_output().unwrap();
            expect(&host, &["cp", "data", &server.url("y")], 5, &["data", "No such file"]);
        }
    }
}

#[test]
fn an_invalid_argument_is_an_error_before_anything_starts() {
    let host = TestHost::new();
    for (arguments, word) in [
        (&["cp", "--bwlimit", "fast", "a", "b"][..], "fast"),
        (&["cp", "--bwlimit", "10Q", "a", "b"], "10Q"),
        (&["cp", "-P", "1000", "a", "b"], "1000"),
        (&["cp", "--delete", "a", "b"], "-r or -a"),
        (&["cp", "a"], "DST"),
    ] {
        let output = host.run(arguments);
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
    let output = Command::new(PROGRAM)
        .args(["cp", "a", "lh://127.0.0.1:1/b"])
        .env_remove("HOME")
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .unwrap();
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("HOME"), "{}", text(&output.stderr));
}

#[test]
fn a_copy_onto_or_into_itself_is_refused() {
    let host = TestHost::new();
    host.file("f", 10);
    fs::create_dir_all(host.near("run/sub")).unwrap();
    fs::write(host.near("run/x"), "x").unwrap();
    std::os::unix::fs::symlink("run/sub", host.near("inside")).unwrap();
    let same = ["are the same file"];
    let within = ["into itself"];
    expect(&host, &["cp", "f", "f"], 2, &same);
    expect(&host, &["cp", "f", "."], 2, &same);
    expect(&host, &["cp", "-r", "run", "run/"], 2, &within);
    expect(&host, &["cp", "-a", "run", "run/new"], 2, &within);
    expect(&host, &["cp", "-r", "run", "inside"], 2, &within);
    expect(&host, &["cp", "-r", ".", "run/sub/"], 2, &within);
    assert_eq!(names(&host.near("run")), ["sub", "x"]);
    assert!(names(&host.near("run/sub")).is_empty());
    assert_code(&host.run(&["cp", "-a", "run", "new/"]), 0);
    assert_eq!(names(&host.near("new")), ["sub", "x"]);
}

#[test]
fn a_copy_without_files_is_not_reported_as_verified() {
    let host = TestHost::new();
    let output = host.run(&["cp", "missing", "new"]);
    assert_code(&output, 5);
    let printed = text(&output.stdout);
    assert!(!printed.contains("verified") && !printed.contains("synced"), "{printed}");
    let output = host.run(&["cp", "--json", "missing", "new"]);
    let document: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(document["summary"]["verified"], false);
    assert_eq!(document["summary"]["durable"], false);
}
