//! `longhaul cp` of trees: filters compared with rsync, manifests, write-only servers, roots of
//! keys, and copies between two servers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::host::{Server, TestHost, assert_code, names, text};

/// Returns all paths in `dir`.
fn paths(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, above: &str, found: &mut Vec<String>) {
        for name in names(dir) {
            let path = format!("{above}{name}");
            let entry = dir.join(&name);
            found.push(path.clone());
            if entry.symlink_metadata().unwrap().is_dir() {
                walk(&entry, &format!("{path}/"), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, "", &mut found);
    found
}

#[test]
fn filters_select_as_rsync_does() {
    let host = TestHost::new();
    for file in [
        "t/a.c",
        "t/a.o",
        "t/sub/b.c",
        "t/sub/b.o",
        "t/sub/deep/c.c",
        "t/sub/deep/keep.o",
        "t/build/x",
        "t/sub/build",
        "t/foo/bar/file",
        "t/x/foo/bar",
        "t/odd[1]",
        "t/f1",
        "t/f2",
        "t/logs/1/a.log",
        "t/logs/2/b.log",
    ] {
        fs::create_dir_all(host.near(file).parent().unwrap()).unwrap();
        fs::write(host.near(file), "x").unwrap();
    }
    for (number, rules) in [
        &["--exclude=*.o"][..],
        &["--include=keep.o", "--exclude=*.o"],
        &["--exclude=build/"],
        &["--exclude=/t/build"],
        &["--exclude=foo/bar"],
        &["--exclude=/t/*/deep"],
        &["--exclude=sub/**.o"],
        &["--include=*/", "--include=*.c", "--exclude=*"],
        &["--exclude=f[12]"],
        &["--exclude=f?"],
        &["--exclude=odd\\[1\\]"],
        &["--exclude=logs/***"],
        &["--exclude=**/1/**"],
        &["--exclude-from=rules"],
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(host.near("rules"), "# these\n+ a.o\n\n; and\n- *.o\n").unwrap();
        let (ours, theirs) = (format!("ours{number}"), format!("theirs{number}"));
        for dir in [&ours, &theirs] {
            fs::create_dir(host.near(dir)).unwrap();
        }
        let arguments = [&["cp", "-r"], rules, &["t", &ours]].concat();
        assert_code(&host.run(&arguments), 0);
        let arguments = [&["-r"], rules, &["t", &theirs]].concat();
        assert_code(&host.command("rsync", &arguments).output().unwrap(), 0);
        assert_eq!(paths(&host.near(&ours)), paths(&host.near(&theirs)), "{rules:?}");
    }
}

#[test]
fn a_check_finds_changed_files() {
    let host = TestHost::new();
    fs::create_dir(host.near("run")).unwrap();
    host.file("run/large", 3_000_000);
    host.file("run/small", 10);
    assert_code(&host.run(&["cp", "-r", "--manifest", "run", "copy"]), 0);
    assert_eq!(names(&host.near("")), ["copy", "copy.b3", "run"]);
    assert_code(&host.run(&["cp", "--check", "copy.b3"]), 0);
    let bytes = fs::read(host.near("copy/large")).unwrap();
    let mut changed = bytes.clone();
    changed[2_000_000] ^= 1;
    fs::write(host.near("copy/large"), changed).unwrap();
    fs::remove_file(host.near("copy/small")).unwrap();
    fs::write(host.near("copy/new"), "x").unwrap();
    let output = host.run(&["cp", "--check", "copy.b3"]);
    assert_code(&output, 7);
    let printed = text(&output.stdout);
    for line in ["missing copy/small", "changed copy/large", "extra copy/new"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    let output = host.run(&["cp", "--json", "--check", "copy.b3"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["schema"], "longhaul.check/1");
    assert_eq!(result["changed"][0], "copy/large");
    fs::write(host.near("no.b3"), "something").unwrap();
    assert_code(&host.run(&["cp", "--check", "no.b3"]), 5);
}

#[test]
fn a_server_checks_a_manifest_beneath_its_root() {
    let host = TestHost::new();
    let server = host.serve();
    fs::create_dir(host.near("run")).unwrap();
    host.file("run/large", 3_000_000);
    host.file("run/small", 10);
    assert_code(&host.run(&["cp", "-r", "--manifest", "run", &server.url("copy")]), 0);
    let manifest = server.url("copy.b3");
    let output = host.run(&["cp", "--check", &manifest]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).starts_with("2 unchanged"), "{}", text(&output.stdout));
    // Another directory of the root has the same files.
    fs::create_dir(host.far("again")).unwrap();
    assert_code(&host.run(&["cp", "-r", "run", &server.url("again/copy")]), 0);
    assert_code(&host.run(&["cp", "--check", &manifest, &server.url("again")]), 0);

    fs::remove_file(host.far("copy/small")).unwrap();
    fs::write(host.far("copy/large"), "other").unwrap();
    fs::write(host.far("copy/new"), "x").unwrap();
    let output = host.run(&["cp", "--json", "--check", &manifest]);
    assert_code(&output, 7);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["schema"], "longhaul.check/1");
    for (what, path) in
        [("changed", "copy/large"), ("missing", "copy/small"), ("extra", "copy/new")]
    {
        assert_eq!(result[what], serde_json::json!([path]), "{what}");
    }

    fs::copy(host.far("copy.b3"), host.near("outside.b3")).unwrap();
    for (manifest, dir, code) in [
        (server.url("../near/outside.b3"), None, 5),
        (server.url("none.b3"), None, 5),
        (server.url("copy/large"), None, 5),
        (manifest.clone(), Some(server.url("../near")), 5),
        (manifest.clone(), Some("here".to_owned()), 2),
    ] {
        let arguments = ["cp", "--check", &manifest].into_iter().chain(dir.as_deref());
        assert_code(&host.run(&arguments.collect::<Vec<_>>()), code);
    }
}

#[test]
fn a_dry_run_lists_what_a_deletion_deletes() {
    let host = TestHost::new();
    let server = host.serve();
    fs::create_dir(host.near("t")).unwrap();
    host.file("t/kept", 10);
    assert_code(&host.run(&["cp", "-r", "t", &server.url("")]), 0);
    fs::write(host.far("t/extra"), "x").unwrap();
    let delete = ["cp", "-a", "--delete", "t", &server.url("")];
    let output = host.run(&[&delete[..], &["-n"]].concat());
    assert_code(&output, 0);
    let printed = text(&output.stdout);
    assert!(printed.contains("delete ") && printed.contains("/extra\n"), "{printed}");
    assert!(printed.contains("1 to delete"), "{printed}");
    assert_eq!(names(&host.far("t")), ["extra", "kept"]);
    let output = host.run(&delete);
    assert_code(&output, 0);
    assert!(text(&output.stdout).contains("1 deleted"), "{}", text(&output.stdout));
    assert_eq!(names(&host.far("t")), ["kept"]);
}

fn serve_with(host: &TestHost, flags: &[&str]) -> Server {
    let root = host.far("");
    let root = root.to_str().unwrap();
    let serve = ["serve", "--bind", "127.0.0.1", "-p", "0", "--root", root];
    Server::start(host.longhaul(&[&serve[..], flags].concat()))
}

#[test]
fn a_read_only_server_refuses_uploads() {
    let host = TestHost::new();
    host.file("data", 10);
    fs::write(host.far("theirs"), "x").unwrap();
    let server = serve_with(&host, &["--read-only"]);
    for target in ["new", "theirs", ""] {
        let output = host.run(&["cp", "data", &server.url(target)]);
        assert_code(&output, 4);
        assert!(
            text(&output.stderr).contains("the server is read-only"),
            "{}",
            text(&output.stderr)
        );
    }
    assert_eq!(names(&host.far("")), ["theirs"]);
    assert_code(&host.run(&["cp", &server.url("theirs"), "got"]), 0);
}

#[test]
fn a_write_only_server_accepts_only_new_files() {
    let host = TestHost::new();
    fs::create_dir_all(host.near("t/sub")).unwrap();
    host.file("t/sub/data", 2_000_000);
    host.file("t/one", 10);
    fs::write(host.far("theirs"), "secret").unwrap();
    let server = serve_with(&host, &["--write-only"]);
    let output = host.run(&["cp", &server.url("theirs"), "got"]);
    assert_code(&output, 4);
    assert!(text(&output.stderr).contains("the server is write-only"), "{}", text(&output.stderr));
    assert!(!host.near("got").exists());
    assert_code(&host.run(&["cp", "-r", "-p", "t", &server.url("")]), 0);
    assert_eq!(fs::read(host.far("t/one")).unwrap(), fs::read(host.near("t/one")).unwrap());
    // A client cannot replace a file, even one that it has uploaded.
    for (source, target) in [("t/one", "theirs"), ("t/one", "t/one"), ("t/sub/data", "t/sub/data")]
    {
        let before = fs::read(host.far(target)).unwrap();
        let output = host.run(&["cp", source, &server.url(target)]);
        assert_code(&output, 5);
        assert_eq!(fs::read(host.far(target)).unwrap(), before, "{target}");
    }
    for flags in [&["-r", "--delete"][..], &["-n"], &["-u"], &["-a"], &["--manifest"]] {
        let output = host.run(&[&["cp"], flags, &["t/one", &server.url("new")]].concat());
        assert_code(&output, 4);
    }
    symlink("/etc/passwd", host.near("link")).unwrap();
    let output = host.run(&["cp", "-l", "link", "t/one", &server.url("")]);
    assert_code(&output, 7);
    assert_eq!(names(&host.far("")), ["one", "t", "theirs"]);
}

#[test]
fn a_key_has_a_root_and_rights_of_its_own() {
    let (host, alice) = (TestHost::new(), TestHost::new());
    fs::create_dir(host.far("alice")).unwrap();
    fs::write(host.far("alice/hers"), "x").unwrap();
    fs::write(host.far("others"), "x").unwrap();
    symlink("../others", host.far("alice/up")).unwrap();
    let key = text(&alice.run(&["key"]).stdout);
    let root = host.far("alice").display().to_string();
    let config = host.home().join(".config/longhaul");
    fs::create_dir_all(&config).unwrap();
    let line = |options: &str| {
        fs::write(config.join("authorized_keys"), format!("root=\"{root}\",{options} {key}"))
            .unwrap();
    };
    line("read-only");
    // Without --root, the server offers files only to this key.
    let start = || Server::start(host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0"]));
    let server = start();
    let cp = |from: &str, to: &str| alice.run(&["cp", "--accept-new", from, to]);
    assert_code(&cp(&server.url("hers"), "got"), 0);
    assert_code(&host.run(&["cp", &server.url("others"), "got"]), 4);
    for outside in ["../others", "up", "hers/../../others"] {
        assert_code(&cp(&server.url(outside), "out"), 5);
    }
    assert!(!alice.near("out").exists());
    alice.file("data", 10);
    assert_code(&cp("data", &server.url("new")), 4);
    line("readonly");
    let mut slip = host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0"]);
    let output = slip.output().unwrap();
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("authorized_keys:1: "), "{}", text(&output.stderr));
}

#[test]
fn data_pass_from_one_server_to_another() {
    let host = TestHost::new();
    fs::create_dir_all(host.far("a/t/sub")).unwrap();
    fs::create_dir(host.far("b")).unwrap();
    let data = host.file("data", 5_000_000);
    fs::copy(&data, host.far("a/t/sub/data")).unwrap();
    fs::write(host.far("a/t/small"), "x").unwrap();
    let serve = |dir: &str, flags: &[&str]| {
        let root = host.far(dir);
        let root = root.to_str().unwrap();
        let serve = ["serve", "--bind", "127.0.0.1", "-p", "0", "--root", root];
        Server::start(host.longhaul(&[&serve[..], flags].concat()))
    };
    let (from, to) = (serve("a", &[]), serve("b", &[]));
    let output = host.run(&["cp", "-r", "-p", "--json", &from.url("t"), &to.url("")]);
    assert_code(&output, 0);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["summary"]["files"], 2);
    assert_eq!(result["summary"]["encrypted"], true);
    assert!(result["source"]["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert_code(&host.command("diff", &["-r", "../far/a/t", "../far/b/t"]).output().unwrap(), 0);
    // Errors of both servers are reported.
    let output = host.run(&["cp", &from.url("none"), &to.url("")]);
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("none: cannot open it"), "{}", text(&output.stderr));
    let refusing = serve("a", &["--no-third-party"]);
    let output = host.run(&["cp", &refusing.url("t/small"), &to.url("")]);
    assert_code(&output, 4);
    assert!(
        text(&output.stderr).contains("third-party copies are disabled"),
        "{}",
        text(&output.stderr)
    );
    let drop_box = serve("a", &["--write-only"]);
    assert_code(&host.run(&["cp", &drop_box.url("t/small"), &to.url("")]), 4);
}

#[test]
fn data_connections_are_spread_over_addresses() {
    let host = TestHost::new();
    host.file("data", 3_000_000);
    let root = host.far("");
    let root = root.to_str().unwrap();
    let serve = ["serve", "--bind", "0.0.0.0", "-p", "0", "--root", root];
    let server = Server::start(host.longhaul(&serve));
    let addresses = ["--addresses", "127.0.0.1,127.0.0.2"];
    let output =
        host.run(&[&["cp", "-P", "4"], &addresses[..], &["data", &server.url("")]].concat());
    assert_code(&output, 0);
    assert_eq!(fs::read(host.far("data")).unwrap(), fs::read(host.near("data")).unwrap());
    let output = host.run(&["cp", "--addresses", "no-such.invalid", "data", &server.url("")]);
    assert_code(&output, 3);
    // Also those of another server that sends the data.
    let from = Server::start(host.longhaul(&serve));
    let copy = ["cp", "--json", "-P", "4", &from.url("data"), &server.url("copy")];
    let output = host.run(&[&copy[..], &addresses[..]].concat());
    assert_code(&output, 0);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["path"]["addresses"].as_array().map(Vec::len), Some(2), "{result}");
}
