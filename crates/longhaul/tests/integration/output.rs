//! Closed and full standard streams, and hostile names in printed text.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::host::{PROGRAM, TestHost, assert_code, text};

/// The exit code if the result cannot be printed.
const OUTPUT: i32 = 10;

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Short commands with their exit codes. They need the files `a` and `dir/x`, and a dangling
/// symbolic link `odd`.
const CHEAP: [(&[&str], i32); 14] = [
    (&["--help"], 0),
    (&["--version"], 0),
    (&["cp", "--nonsense"], 2),
    (&["key"], 0),
    (&["key", "--fingerprint"], 0),
    (&["generate", "completions", "bash"], 0),
    (&["cp", "a", "b"], 0),
    (&["cp", "--json", "a", "b"], 0),
    (&["cp", "--json-stream", "a", "b"], 0),
    (&["cp", "-r", "dir", "copy"], 0),
    (&["cp", "nothing", "c"], 5),
    (&["matrix", "--list-plans"], 0),
    (&["wan", "up", "--list"], 0),
    (&["report", "nothing"], 5),
];

fn prepared() -> TestHost {
    let host = TestHost::new();
    host.file("a", 100_000);
    fs::create_dir(host.near("dir")).unwrap();
    fs::write(host.near("dir/x"), "x").unwrap();
    host
}

#[test]
fn a_full_standard_error_changes_nothing() {
    let host = prepared();
    for (arguments, code) in CHEAP {
        let output = host.longhaul(arguments).stderr(full()).output().unwrap();
        assert_code(&output, code);
        if arguments.starts_with(&["cp"]) && code == 0 && !arguments.contains(&"-r") {
            assert_eq!(fs::read(host.near("b")).unwrap(), fs::read(host.near("a")).unwrap());
            fs::remove_file(host.near("b")).unwrap();
        }
    }
}

#[test]
fn a_full_standard_output_has_exit_code_10_and_the_work_is_done() {
    let host = prepared();
    for (arguments, code) in CHEAP {
        let output = host.longhaul(arguments).stdout(full()).output().unwrap();
        let expected = if code == 0 { OUTPUT } else { code };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
        if code == 0 {
            let error = text(&output.stderr);
            assert!(error.contains("cannot write to standard output"), "{arguments:?}: {error}");
        }
    }
    assert_eq!(fs::read(host.near("b")).unwrap(), fs::read(host.near("a")).unwrap());
    assert!(host.near("copy/x").exists());
}

#[test]
fn closed_output_streams_do_not_panic() {
    let host = prepared();
    for (arguments, code) in CHEAP {
        for closed in [">&-", "2>&-", ">&- 2>&-", "2>/dev/full >&-"] {
            let mut shell = host.command("sh", &["-c", &format!("exec \"$0\" \"$@\" {closed}")]);
            let output = shell.arg(PROGRAM).args(arguments).output().unwrap();
            // Rust's runtime opens /dev/null in place of a closed stream.
            assert_eq!(output.status.code(), Some(code), "{arguments:?} {closed}");
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = host.longhaul(arguments).stdout(Stdio::from(writer)).output().unwrap();
        let expected = if code == 0 { OUTPUT } else { code };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
        assert!(!text(&output.stderr).contains("standard output"), "{arguments:?}");
    }
}

#[test]
fn a_server_with_a_full_standard_error_serves() {
    let host = TestHost::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let mut command = host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", &port, "--one-off"]);
    let mut server = command.stderr(full()).spawn().unwrap();
    let test = || host.run(&["test", "127.0.0.1", "-p", &port, "-n", "100K", "--json"]);
    crate::host::wait_for("the server answers", || test().status.success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let host = TestHost::new();
    let hostile = b"x\x1b[2J\n\xe2\x80\xaelonghaul: done\x9b\x7f";
    fs::create_dir(host.near("dir")).unwrap();
    let odd = host.near("dir").join(std::ffi::OsStr::from_bytes(hostile));
    assert!(host.command("mkfifo", &[]).arg(&odd).status().unwrap().success());
    // The FIFO is first a skipped entry, and then the object of an error.
    let skipped = host.run(&["cp", "-r", "dir", "copy"]);
    assert!(text(&skipped.stderr).contains(": skipped: "), "{}", text(&skipped.stderr));
    let name = host.near(".").join(text(hostile));
    let failed = host.longhaul(&["cp"]).arg(&name).arg("y").output().unwrap();
    assert_code(&failed, 5);
    let usage = host.longhaul(&["cp"]).arg(format!("--{}", text(hostile))).output().unwrap();
    assert_code(&usage, 2);
    for output in [skipped, failed, usage] {
        for stream in [output.stdout, output.stderr] {
            let shown = String::from_utf8(stream).expect("what is printed is UTF-8");
            let bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!shown.contains(bad), "{shown:?}");
            assert!(!shown.lines().any(|line| line.starts_with("longhaul: done")), "{shown:?}");
        }
    }
}

#[test]
fn a_reason_from_a_peer_is_printed_as_one_line() {
    let host = TestHost::new();
    let server = host.serve();
    let name = "x\n\u{1b}[31mlonghaul: forged\u{202e}";
    let url = server.url(name);
    let output = Command::new(PROGRAM)
        .args(["cp", "--accept-new", &url, "y"])
        .current_dir(host.near(""))
        .env("HOME", host.home())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let shown = text(&output.stderr);
    assert!(!shown.contains(|c: char| c != '\n' && c.is_control()), "{shown:?}");
    assert!(!shown.contains('\u{202e}') && shown.contains("%1B[31m"), "{shown:?}");
}
