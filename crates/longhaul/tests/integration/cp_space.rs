//! Full disks: copies that do not fit are refused before they start, and a server keeps its
//! reserve.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::host::{PROGRAM, Server, TestHost, assert_code, names, text, wait_for};

/// Returns a command that runs `script` with a tmpfs of `size` at `far`, in a separate mount
/// namespace.
fn script(host: &TestHost, size: &str, script: &str) -> Command {
    let far = host.far("");
    let far = far.to_str().unwrap();
    let script = format!("mount -t tmpfs -o size={size} none {far} && {script}");
    host.command("unshare", &["-m", "sh", "-c", &script])
}

/// Starts a server with a tmpfs of `size` as its root.
fn serve(host: &TestHost, size: &str, flags: &str) -> Server {
    let far = host.far("");
    let serve =
        format!("exec {PROGRAM} serve --bind 127.0.0.1 -p 0 --root {} {flags}", far.display());
    Server::start(script(host, size, &serve))
}

/// Returns the path of the server's root through its `/proc` directory.
fn root_of(server: &Server, host: &TestHost) -> PathBuf {
    format!("/proc/{}/root{}", server.process.id(), host.far("").display()).into()
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    assert_code(output, 5);
    let printed = text(&output.stderr);
    assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    for word in words {
        assert!(printed.contains(word), "{word:?} is not in {printed:?}");
    }
}

#[test]
fn a_server_keeps_its_reserve() {
    let host = TestHost::new();
    host.file("half", 40 << 20);
    host.file("more", 15 << 20);
    let server = serve(&host, "100m", "--min-free 50%");
    assert_code(&host.run(&["cp", "half", &server.url("a")]), 0);
    let words = ["the copy needs 15.0 MiB", "60.0 MiB are free in", "of which 50.0 MiB stay free"];
    refused(&host.run(&["cp", "more", &server.url("b")]), &words);
    wait_for("the server to clean up", || names(&root_of(&server, &host)) == ["a"]);
    // A file that replaces one of the same size needs space for both, which exists without a
    // reserve.
    drop(server);
    let server = serve(&host, "100m", "--min-free 0");
    for _ in 0..2 {
        assert_code(&host.run(&["cp", "half", &server.url("a")]), 0);
    }
    assert_code(&host.run(&["cp", "more", &server.url("b")]), 0);
    assert_eq!(names(&root_of(&server, &host)), ["a", "b"]);
}

#[test]
fn a_tree_that_does_not_fit_is_refused_at_the_first_such_file() {
    let host = TestHost::new();
    fs::create_dir(host.near("t")).unwrap();
    for name in 0..6 {
        host.file(&format!("t/{name}"), 2 << 20);
    }
    let server = serve(&host, "8m", "--min-free 1m");
    let output = host.run(&["cp", "-r", "t", &server.url("")]);
    refused(&output, &["the copy needs 12.0 MiB", "8.00 MiB are free in", "1.00 MiB stay free"]);
    wait_for("the server to clean up", || {
        names(&root_of(&server, &host)).iter().all(|name| name == "t")
    });
    drop(server);
    let server = serve(&host, "16m", "--min-free 1m");
    assert_code(&host.run(&["cp", "-r", "t", &server.url("")]), 0);
}

#[test]
fn a_copy_on_one_host_is_refused_before_it_starts() {
    let host = TestHost::new();
    host.file("large", 20 << 20);
    host.file("fits", 7 << 20);
    let far = host.far("");
    let far = far.display();
    let copy = format!("{PROGRAM} cp large {far}/x; code=$?; ls -A {far}; exit $code");
    let output = script(&host, "8m", &copy).output().unwrap();
    refused(&output, &["the copy needs 20.0 MiB", "8.00 MiB are free in", "are free in"]);
    assert_eq!(text(&output.stdout), "");
    // Without a reserve the copy fits.
    let copy = format!("{PROGRAM} cp fits {far}/x");
    assert_code(&script(&host, "8m", &copy).output().unwrap(), 0);
    // A client that downloads is the sink.
    let source = TestHost::new();
    fs::copy(host.near("large"), source.far("large")).unwrap();
    let key = text(&host.run(&["key"]).stdout);
    assert_code(&source.run(&["key"]), 0);
    fs::write(source.home().join(".config/longhaul/authorized_keys"), key).unwrap();
    let server = source.serve();
    let copy = format!("{PROGRAM} cp --accept-new {} {far}/x", server.url("large"));
    refused(&script(&host, "8m", &copy).output().unwrap(), &["the copy needs 20.0 MiB"]);
}

#[test]
fn holes_and_hard_links_need_no_space() {
    let host = TestHost::new();
    fs::create_dir(host.near("t")).unwrap();
    let data = host.file("t/data", 5 << 20);
    fs::hard_link(&data, host.near("t/name")).unwrap();
    let sparse = fs::File::create(host.near("t/sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let server = serve(&host, "8m", "");
    assert_code(&host.run(&["cp", "-a", "t", &server.url("")]), 0);
    assert_eq!(names(&root_of(&server, &host).join("t")), ["data", "name", "sparse"]);
}

#[test]
fn a_resumed_copy_needs_space_only_for_the_rest() {
    let host = TestHost::new();
    host.file("data", 6 << 20);
    let server = serve(&host, "8m", "");
    let target = server.url("x");
    let mut arguments = vec!["cp", "--block", "1MiB", "-P", "1", "data", &target];
    let mut copy = host.longhaul(&[&arguments[..], &["--bwlimit", "8M"]].concat());
    let mut copy = copy.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let part = || names(&root_of(&server, &host)).iter().any(|name| name.ends_with(".part"));
    wait_for("the copy to begin", part);
    wait_for("a checkpoint", || {
        let journal = names(&root_of(&server, &host)).into_iter().find(|n| n.ends_with("journal"));
        let journal = journal.map(|name| root_of(&server, &host).join(name));
        journal.is_some_and(|path| fs::metadata(path).is_ok_and(|file| file.len() > 300))
    });
    copy.kill().unwrap();
    copy.wait().unwrap();
    assert!(part(), "the beginning is kept");
    arguments.push("--json");
    let output = host.run(&arguments);
    assert_code(&output, 0);
    assert_eq!(names(&root_of(&server, &host)), ["x"]);
}

#[test]
fn a_stream_stops_at_the_reserve() {
    let host = TestHost::new();
    let server = serve(&host, "64m", "--min-free 50%");
    let target = server.url("x");
    let mut copy = host
        .longhaul(&["cp", "--bwlimit", "160M", "-", &target])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = copy.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        // The input has twice the size of the free space; the write ends when the copy fails.
        let _ = (0..64).try_for_each(|_| input.write_all(&vec![7; 1 << 20]));
    });
    let output = copy.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert_code(&output, 5);
    let printed = text(&output.stderr);
    // Depends on whether the copy ends just above or just below the reserve.
    let named = ["of which 32.0 MiB stay free", "but 32.0 MiB must stay free"];
    assert!(named.iter().any(|words| printed.contains(words)), "{printed}");
    assert!(!names(&root_of(&server, &host)).contains(&"x".to_owned()));
}
