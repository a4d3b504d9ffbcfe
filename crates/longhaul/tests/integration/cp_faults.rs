//! Broken paths, killed processes and changing files: no acknowledged data are lost, no final file
//! is incorrect, and the same command completes the copy. `bench/cp-faults.sh` repeats these tests
//! for longer.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cable::TcpProxy;
use crate::host::{TestHost, assert_code, names, text, wait_for};

fn start(host: &TestHost, arguments: &[&str]) -> Child {
    let mut copy = host.longhaul(arguments);
    copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn result(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_frozen_path_delays_a_copy() {
    let host = TestHost::new();
    let server = host.serve();
    let cable = TcpProxy::to(server.port);
    let data = host.file("data", 24 << 20);
    let target = cable.url("x");
    let copy = start(&host, &["cp", "--json", "--bwlimit", "100M", "data", &target]);
    thread::sleep(Duration::from_millis(700));
    cable.freeze(Duration::from_secs(1));
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert_eq!(result(&output)["summary"]["reconnects"], 0);
    assert!(fs::read(host.far("x")).unwrap() == fs::read(data).unwrap());
}

#[test]
fn a_copy_continues_over_new_connections() {
    let host = TestHost::new();
    let server = host.serve();
    for way in ["push", "pull"] {
        let cable = TcpProxy::to(server.port);
        let (source, target) = match way {
            "push" => (host.file("data", 24 << 20), cable.url("x")),
            _ => (host.far("x"), host.near("y").to_str().unwrap().to_owned()),
        };
        let from = if way == "push" { "data".to_owned() } else { cable.url("x") };
        let copy = start(&host, &["cp", "--json", "--bwlimit", "60M", &from, &target]);
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(1300));
            cable.cut();
        }
        let output = copy.wait_with_output().unwrap();
        assert_code(&output, 0);
        let summary = result(&output)["summary"].clone();
        assert!(summary["reconnects"].as_u64().unwrap() >= 1, "{way}: {summary}");
        assert_eq!(summary["resumed_bytes"], 0, "{way}: it is all of this command: {summary}");
        assert!(text(&output.stderr).contains("; reconnecting"), "{}", text(&output.stderr));
        let copied = if way == "push" { host.far("x") } else { host.near("y") };
        assert!(fs::read(copied).unwrap() == fs::read(source).unwrap(), "{way}");
    }
    assert_eq!(names(&host.far("")), ["x"]);
    assert_eq!(names(&host.near("")), ["data", "y"]);
}

#[test]
fn give_up_ends_reconnecting_in_time() {
    let host = TestHost::new();
    let mut server = host.serve();
    host.file("data", 64 << 20);
    let target = server.url("x");
    let copy = start(&host, &["cp", "--give-up", "2s", "--bwlimit", "40M", "data", &target]);
    wait_for("a temporary file", || names(&host.far("")).iter().any(|n| n.ends_with(".part")));
    server.process.kill().unwrap();
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 3);
    assert!(!host.far("x").exists());
}

#[test]
fn corrupted_blocks_are_detected_and_resent() {
    let host = TestHost::new();
    let server = host.serve();
    let data = host.file("data", 48 << 20);
    for protection in ["--cleartext", ""] {
        let cable = TcpProxy::to(server.port);
        cable.corrupt_every(3 << 20);
        let target = cable.url("x");
        // A block is shorter than the distance between two damaged bytes, so that some blocks
        // arrive intact.
        let block = ["--block", "1MiB"];
        let mut arguments = vec!["cp", "--json", "-P", "2", block[0], block[1], "data", &target];
        arguments.extend((!protection.is_empty()).then_some(protection));
        let output = host.run(&arguments);
        assert_code(&output, 0);
        assert!(cable.corrupted_bits() >= 12, "{}", cable.corrupted_bits());
        let summary = result(&output)["summary"].clone();
        assert!(summary["resent_blocks"].as_u64().unwrap() >= 5, "{summary}");
        assert!(fs::read(host.far("x")).unwrap() == fs::read(&data).unwrap());
        fs::remove_file(host.far("x")).unwrap();
    }
}

#[test]
fn a_copy_killed_at_any_moment_is_completed_by_the_same_command() {
    let host = TestHost::new();
    fs::create_dir(host.near("t")).unwrap();
    for i in 0..60 {
        host.file(&format!("t/{i}"), 1000 * i);
    }
    for name in ["t/large", "t/larger"] {
        host.file(name, 9 << 20);
    }
    let mut server = host.serve();
    let port = server.port;
    let mut interrupted = 0;
    for round in 0..20_u64 {
        let target = server.url("");
        let arguments = ["cp", "-r", "--json", "--bwlimit", "200M", "t", &target];
        let mut copy = start(&host, &arguments);
        // The kill times range from before the first byte to after the last byte.
        thread::sleep(Duration::from_millis(40 + 90 * round % 1100));
        let begun = host.far("t").exists();
        interrupted += usize::from(begun && copy.try_wait().unwrap().is_none());
        let output = if round % 2 == 0 {
            copy.kill().unwrap();
            copy.wait().unwrap();
            // Every file with a final name is complete.
            for i in 0..60 {
                if let Ok(there) = fs::read(host.far(&format!("t/{i}"))) {
                    assert!(there == fs::read(host.near(&format!("t/{i}"))).unwrap(), "{i}");
                }
            }
            host.run(&arguments)
        } else {
            // A client that has never reached the server does not wait for it.
            while !host.far("t").exists() && copy.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_millis(5));
            }
            server.process.kill().unwrap();
            server.process.wait().unwrap();
            server = host.serve_at(port);
            // The running command reconnects.
            copy.wait_with_output().unwrap()
        };
        assert_code(&output, 0);
        let same = host.command("diff", &["-r", "t", host.far("t").to_str().unwrap()]).output();
        assert_code(&same.unwrap(), 0);
        let left = names(&host.far(""));
        assert_eq!(left, ["t"], "round {round}");
        assert_eq!(names(&host.far("t")).len(), 62, "round {round}");
        fs::remove_dir_all(host.far("t")).unwrap();
    }
    assert!(interrupted >= 2, "only {interrupted} of 20 copies ran when they were interrupted");
}

#[test]
fn unreadable_or_unwritable_files_do_not_stop_the_copy() {
    let host = TestHost::new();
    fs::create_dir_all(host.near("t/closed")).unwrap();
    for i in 0..20 {
        host.file(&format!("t/{i}"), 5000);
    }
    host.file("t/closed/in", 5000);
    for (path, mode) in [("t/7", 0o000), ("t/closed", 0o000)] {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(host.near(path), permissions).unwrap();
    }
    let server = host.serve();
    // The user has no capability that lets root read every file.
    let target = server.url("");
    let drop = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"];
    let copy = [crate::host::PROGRAM, "cp", "-r", "t", &target];
    let output = host.command("setpriv", &[&drop[..], &copy].concat()).output().unwrap();
    assert_code(&output, 7);
    let printed = text(&output.stderr);
    for (path, verb) in [("t/7", "open"), ("t/closed", "list")] {
        let line = printed.lines().find(|line| line.contains(&format!("{path}:")));
        let line = line.unwrap_or_else(|| panic!("{path} is not in {printed}"));
        assert!(line.contains(verb) && line.contains("Permission denied"), "{line}");
    }
    assert_eq!(names(&host.far("t")).len(), 20, "19 files and the directory");
    let permissions =
        |mode| <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
    fs::set_permissions(host.near("t/closed"), permissions(0o755)).unwrap();
    fs::set_permissions(host.near("t/7"), permissions(0o644)).unwrap();
    fs::set_permissions(host.far("t/closed"), permissions(0o755)).unwrap();
    assert_code(&host.run(&["cp", "-r", "t", &target]), 0);
    let same = host.command("diff", &["-r", "t", host.far("t").to_str().unwrap()]).output();
    assert_code(&same.unwrap(), 0);
}

#[test]
fn files_that_their_owner_may_not_read_are_read_back() {
    let host = TestHost::new();
    let server = host.serve();
    let files = [("small", 5000, 0o200), ("large", 3 << 20, 0o000)];
    for (name, bytes, mode) in files {
        fs::rename(host.file(name, bytes), host.far(name)).unwrap();
        fs::set_permissions(host.far(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    // The client has no capability that lets root read every file; the server has.
    let drop = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"];
    for synced in ["--quiet", "--no-fsync"] {
        let sources = files.map(|(name, ..)| server.url(name));
        let cp = [crate::host::PROGRAM, "cp", "--verify=reread", synced];
        let copy = [&cp[..], &[&sources[0], &sources[1], "."]].concat();
        let output = host.command("setpriv", &[&drop[..], &copy].concat()).output().unwrap();
        assert_code(&output, 0);
        for (name, _, mode) in files {
            assert!(fs::read(host.near(name)).unwrap() == fs::read(host.far(name)).unwrap());
            let permissions = fs::metadata(host.near(name)).unwrap().permissions();
            assert_eq!(permissions.mode() & 0o777, mode, "{name}");
            fs::remove_file(host.near(name)).unwrap();
        }
    }
}

#[test]
fn a_source_that_changes_during_the_copy_fails_and_is_copied_next_time() {
    let host = TestHost::new();
    let server = host.serve();
    let data = host.file("data", 24 << 20);
    let target = server.url("x");
    let copy = start(&host, &["cp", "--bwlimit", "100M", "data", &target]);
    wait_for("a temporary file", || names(&host.far("")).iter().any(|n| n.ends_with(".part")));
    let file = fs::File::options().write(true).open(&data).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"another", 20 << 20).unwrap();
    drop(file);
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 5);
    let printed = text(&output.stderr);
    assert!(printed.contains("data") && printed.contains("changed during the copy"), "{printed}");
    assert!(!host.far("x").exists());
    assert_code(&host.run(&["cp", "data", &target]), 0);
    assert!(fs::read(host.far("x")).unwrap() == fs::read(&data).unwrap());
    assert_eq!(names(&host.far("")), ["x"]);
}

#[test]
fn a_short_copy_keeps_to_its_limit_from_the_first_byte_on() {
    let host = TestHost::new();
    let server = host.serve();
    let data = host.file("data", 3_000_000);
    fs::copy(&data, host.far("there")).unwrap();
    let (pushed, there) = (server.url("pushed"), server.url("there"));
    let copies: [[&str; 2]; 3] = [["data", &pushed], [&there, "pulled"], ["data", "copied"]];
    let copies =
        copies.map(|[from, to]| start(&host, &["cp", "--json", "--bwlimit", "8M", from, to]));
    for copy in copies {
        let output = copy.wait_with_output().unwrap();
        assert_code(&output, 0);
        let seconds = result(&output)["summary"]["seconds"].as_f64().unwrap();
        // The last 128 KiB may pass at once.
        let least = f64::from(3_000_000 - (128 << 10)) / 1e6;
        assert!(seconds > least, "{seconds} s instead of {least} s");
    }
}

#[test]
fn the_limit_follows_signals() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 12 << 20);
    let target = server.url("x");
    let copy = start(&host, &["cp", "--bwlimit", "20M", "data", &target]);
    wait_for("a temporary file", || names(&host.far("")).iter().any(|n| n.ends_with(".part")));
    for signal in [Signal::USR1, Signal::USR2, Signal::USR2, Signal::USR2, Signal::USR2] {
        kill_process(Pid::from_child(&copy), signal).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 0);
    let printed = text(&output.stderr);
    for limit in ["10.0 Mb/s", "20.0 Mb/s", "40.0 Mb/s", "80.0 Mb/s", "160 Mb/s"] {
        assert!(printed.contains(&format!("the limit is now {limit}")), "{limit}: {printed}");
    }
}
