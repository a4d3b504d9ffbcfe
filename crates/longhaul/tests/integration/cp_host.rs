//! `longhaul cp` on hosts with a stepped clock, missing rights and other work.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::{PROGRAM, Server, TestHost, assert_code, names, text, wait_for};

const DAY: i64 = 86_400;

/// Builds the library that steps the wall clock of a program.
fn clock(host: &TestHost) -> PathBuf {
    let library = host.home().join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/clock.c");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("a C compiler is installed").success());
    library
}

#[test]
fn a_stepped_clock_does_not_change_a_copy() {
    let host = TestHost::new();
    let clock = clock(&host);
    // The library must step the clock.
    let mut date = host.command("date", &["+%Y"]);
    let date = date.env("LD_PRELOAD", &clock).env("CLOCK_STEP", (36_525 * DAY).to_string());
    assert!(text(&date.output().unwrap().stdout).starts_with("21"));

    let data = host.file("data", 16 << 20);
    for step in [400 * DAY, -400 * DAY] {
        let step = step.to_string();
        // The copy is interrupted with the true time, and resumed with a clock that is more than a
        // year off on both hosts.
        let mut server = host.serve();
        let port = server.port;
        let target = server.url("x");
        let mut first = host.longhaul(&["cp", "-p", "--bwlimit", "40M", "data", &target]);
        let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the journal", || {
            names(&host.far("")).iter().any(|name| name.ends_with(".journal"))
        });
        thread::sleep(Duration::from_millis(1800));
        kill_process(Pid::from_child(&first), Signal::KILL).unwrap();
        first.wait().unwrap();
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        let far = host.far("");
        let port = port.to_string();
        let serve = ["serve", "--bind", "127.0.0.1", "-p", &port, "--root", far.to_str().unwrap()];
        let mut serve = host.longhaul(&serve);
        serve.env("LD_PRELOAD", &clock).env("CLOCK_STEP", &step);
        let _server = Server::start(serve);
        let mut second = host.longhaul(&["cp", "-p", "--json", "--block", "1MiB", "data", &target]);
        second.env("LD_PRELOAD", &clock).env("CLOCK_STEP", &step);
        let output = second.output().unwrap();
        assert_code(&output, 0);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(result["summary"]["resumed_bytes"].as_u64().unwrap() >= 1 << 20, "{result}");
        assert!(fs::read(host.far("x")).unwrap() == fs::read(&data).unwrap());
        let modified = |path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(modified(host.far("x")), modified(data.clone()), "a file's time is its own");
        // A file with the same time and size is unchanged, regardless of the clock.
        let mut third = host.longhaul(&["cp", "-u", "-p", "--json", "data", &target]);
        third.env("LD_PRELOAD", &clock).env("CLOCK_STEP", &step);
        let result: Value = serde_json::from_slice(&third.output().unwrap().stdout).unwrap();
        assert_eq!(result["summary"]["unchanged_files"], 1, "{result}");
        fs::remove_file(host.far("x")).unwrap();
    }
}

#[test]
fn repeated_clock_steps_do_not_break_timeouts() {
    let host = TestHost::new();
    let clock = clock(&host);
    let swing = (3 * DAY).to_string();
    let far = host.far("");
    let serve = ["serve", "--bind", "127.0.0.1", "-p", "0", "--root", far.to_str().unwrap()];
    let mut serve = host.longhaul(&serve);
    serve.env("LD_PRELOAD", &clock).env("CLOCK_SWING", &swing);
    let server = Server::start(serve);
    let data = host.file("data", 12 << 20);
    let mut copy = host.longhaul(&["cp", "--json", "--bwlimit", "40M", "data", &server.url("x")]);
    copy.env("LD_PRELOAD", &clock).env("CLOCK_SWING", &swing);
    let output = copy.output().unwrap();
    assert_code(&output, 0);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = result["summary"]["seconds"].as_f64().unwrap();
    assert!(seconds > 1.0 && seconds < 600.0, "measured by another clock: {seconds}");
    assert_eq!(result["summary"]["reconnects"], 0, "{result}");
    assert!(fs::read(host.far("x")).unwrap() == fs::read(data).unwrap());
}

#[test]
fn a_copy_runs_only_on_the_chosen_cpus() {
    let host = TestHost::new();
    host.file("data", 4 << 20);
    let cp = ["cp", "--bwlimit", "20M", "--affinity", "0", "data", "../far/x"];
    let mut copy = host.longhaul(&cp).spawn().unwrap();
    let tasks = format!("/proc/{}/task", copy.id());
    let cpus = || -> Vec<String> {
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
        let all = fs::read_dir(&tasks).into_iter().flatten().filter_map(|task| status(task.ok()?));
        let list = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            Some(line?.trim().to_owned())
        };
        all.filter_map(list).collect()
    };
    wait_for("the threads of the copy", || cpus().len() >= 8);
    assert!(cpus().iter().all(|cpus| cpus == "0"), "{:?}", cpus());
    assert!(copy.wait().unwrap().success());
    let output = host.run(&["cp", "--affinity", "8191", "data", "../far/y"]);
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("CPU 8191"), "{}", text(&output.stderr));
}

/// Returns a command that runs as a user without any privilege.
fn as_nobody(host: &TestHost, arguments: &[&str]) -> Command {
    let drop = ["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM];
    host.command("setpriv", &[&drop[..], arguments].concat())
}

#[test]
fn an_ordinary_user_gets_a_report_of_lost_attributes() {
    let host = TestHost::new();
    for dir in ["near", "far", "home"] {
        let dir = host.near("").parent().unwrap().join(dir);
        chown(&dir, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir(host.near("t")).unwrap();
    for name in ["mine", "theirs", "group"] {
        host.file(&format!("t/{name}"), 1000);
        chown(host.near(&format!("t/{name}")), Some(65534), Some(65534)).unwrap();
    }
    chown(host.near("t/theirs"), Some(1), None).unwrap();
    chown(host.near("t/group"), None, Some(1)).unwrap();
    symlink("mine", host.near("t/link")).unwrap();
    for name in ["t/null", "t/fifo"] {
        let kind: &[&str] = if name == "t/null" { &["c", "1", "3"] } else { &["p"] };
        let path = host.near(name);
        let made = Command::new("mknod").arg(&path).args(kind).status().unwrap();
        assert!(made.success());
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    let output = as_nobody(&host, &["cp", "-a", "--json", "t", "../far/"]).output().unwrap();
    assert_code(&output, 7);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["summary"]["files"], 3, "the files are there: {result}");
    // A device that cannot be created is a failure; owners and groups that cannot be set are
    // counted.
    let failures = result["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{result}");
    assert!(failures[0]["path"].as_str().unwrap().ends_with("t/null"), "{result}");
    for what in ["owner", "group"] {
        let kept = result["not_kept"].as_array().unwrap();
        let of = kept.iter().find(|one| one["what"] == what);
        assert!(of.is_some_and(|one| one["count"].as_u64() >= Some(1)), "{what}: {result}");
    }
    let printed = text(&output.stderr);
    assert!(printed.contains("owner not preserved for"), "{printed}");
    assert_eq!(names(&host.far("t")), ["fifo", "group", "link", "mine", "theirs"]);
    // With the rights of root all attributes are preserved.
    for name in ["t/theirs", "t/group", "t"] {
        chown(host.near(name), Some(65534), Some(65534)).unwrap();
    }
    std::os::unix::fs::lchown(host.near("t/link"), Some(65534), Some(65534)).unwrap();
    fs::remove_file(host.near("t/null")).unwrap();
    assert_code(&as_nobody(&host, &["cp", "-a", "t", "../far/"]).output().unwrap(), 0);
}

#[test]
fn a_nice_copy_is_nice_at_both_ends() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 16 << 20);
    let target = server.url("x");
    let mut copy = host.longhaul(&["cp", "--nice", "--bwlimit", "40M", "data", &target]);
    let mut copy = copy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("a temporary file", || names(&host.far("")).iter().any(|n| n.ends_with(".part")));
    for process in [copy.id(), server.process.id()] {
        let threads = names(&PathBuf::from(format!("/proc/{process}/task")));
        let nice = threads.iter().filter(|thread| {
            let stat = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
            // The niceness is field 19 of the file (proc(5)), counted after the name in
            // parentheses.
            let stat = stat.unwrap_or_default();
            let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
            let class = Command::new("ionice").args(["-p", thread]).output().unwrap();
            fields.split(' ').nth(16) == Some("10") && text(&class.stdout).trim() == "idle"
        });
        // The threads are readers, writers, and one per connection.
        let nice = nice.count();
        assert!(nice >= 6, "{nice} of {} threads of {process}", threads.len());
    }
    assert!(copy.wait().unwrap().success());
}
