//! Habits of users of iperf3, rsync, scp and Mahimahi, the words of errors, and verdicts of copies.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::{PROGRAM, Server, TestHost, assert_code, names, text, wait_for};

fn document(output: &[u8]) -> Value {
    serde_json::from_slice(output).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

#[test]
fn a_server_killed_during_a_test_leaves_what_was_measured() {
    let host = TestHost::new();
    let mut server = host.serve();
    let address = format!("127.0.0.1:{}", server.port);
    let arguments = ["test", &address, "-t", "30", "-i", "0.3", "-b", "100M", "--json"];
    let client = host.longhaul(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    thread::sleep(Duration::from_secs(3));
    server.process.kill().unwrap();
    let output = client.unwrap().wait_with_output().unwrap();
    assert_code(&output, 3);
    let result = document(&output.stdout);
    assert_eq!(result["schema"], "longhaul.test/1");
    assert_eq!(result["end"]["how"], "cut");
    assert!(!result["intervals"].as_array().unwrap().is_empty());
    let bytes = result["summary"]["receiver"]["bytes"].as_u64().unwrap();
    assert!(bytes > 1_000_000, "{bytes}");
    assert!(text(&output.stderr).contains("the test was aborted"));
}

#[test]
fn options_of_iperf3_start_a_server_and_a_client() {
    let host = TestHost::new();
    let server = Server::start(host.longhaul(&["test", "-s", "-B", "127.0.0.1", "-p", "0", "-1"]));
    let port = server.port.to_string();
    let output = host.run(&["test", "-c", "127.0.0.1", "-p", &port, "-t", "0.5", "-J", "-V"]);
    assert_code(&output, 0);
    assert_eq!(document(&output.stdout)["schema"], "longhaul.test/1");
    for (arguments, word) in [
        (&["test", "-c", "127.0.0.1", "-t", "0"][..], "-t 1h"),
        (&["serve", "-D"], "setsid"),
        (&["cp", "-P", "22", "data", "me@far:x"], "ssh -p 22"),
    ] {
        let output = host.run(arguments);
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}

#[test]
fn a_server_ends_with_its_terminal_unless_nohup_starts_it() {
    let host = TestHost::new();
    for (starter, stays) in [("exec", false), ("exec nohup", true)] {
        let (pid_file, log) = (host.near("pid"), host.near("log"));
        let serve = format!(
            "echo $$ > {}; {starter} {PROGRAM} serve --bind 127.0.0.1 -p 0 < /dev/null > {} 2>&1",
            pid_file.display(),
            log.display()
        );
        let mut command = host.command("script", &["-qec", &serve, "/dev/null"]);
        let mut terminal = command.stdout(Stdio::null()).spawn().unwrap();
        let serves = || fs::read_to_string(&log).is_ok_and(|text| text.contains("serving tests"));
        wait_for("the server serves", serves);
        let pid = fs::read_to_string(&pid_file).unwrap();
        let lives = || {
            let status = fs::read_to_string(format!("/proc/{}/status", pid.trim()));
            status.is_ok_and(|status| !status.contains("State:\tZ"))
        };
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        if stays {
            thread::sleep(Duration::from_millis(500));
            assert!(lives(), "nohup protects the server");
            let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
            kill_process(pid, Signal::TERM).unwrap();
        }
        wait_for("the server ends", || !lives());
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn options_of_rsync_copy_a_tree() {
    let host = TestHost::new();
    fs::create_dir(host.near("tree")).unwrap();
    host.file("tree/data", 1000);
    let output = host.run(&["cp", "-avzP", "tree/", "copy"]);
    assert_code(&output, 0);
    assert!(text(&output.stderr).contains("does not compress"));
    assert_eq!(names(&host.near("copy")), ["data"], "a new target gets the name");
    assert_code(&host.run(&["cp", "-a", "--rsync-slash", "tree/", "copy"]), 0);
    assert_eq!(names(&host.near("copy")), ["data"], "the contents");
    assert_code(&host.run(&["cp", "-a", "tree/", "copy"]), 0);
    assert_eq!(names(&host.near("copy")), ["data", "tree"], "the directory, as cp(1) does");
    let quiet = host.run(&["cp", "-aq", "tree", "quiet"]);
    assert_code(&quiet, 0);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
}

#[test]
fn levels_and_counts_of_a_copy_are_printed() {
    let host = TestHost::new();
    host.file("data", 1000);
    let run = |arguments: &[&str]| {
        let output = host.run(&[&["cp"], arguments].concat());
        assert_code(&output, 0);
        text(&output.stdout).to_owned()
    };
    let listed = run(&["-v", "--stats", "data", "copy"]);
    assert!(listed.contains("create "), "{listed}");
    let counts = ["files copied               1\n", "bytes sent                 1000\n"];
    assert!(counts.iter().all(|count| listed.contains(count)), "{listed}");
    // The copy is newer and has the same size and contents.
    for level in ["exists", "size", "mtime", "checksum"] {
        let again = run(&["--sync-level", level, "data", "copy"]);
        assert!(again.contains("1 unchanged"), "{level}: {again}");
    }
    host.file("copy", 999);
    assert!(run(&["--sync-level", "exists", "data", "copy"]).contains("1 unchanged"));
    assert!(run(&["--sync-level", "size", "data", "copy"]).contains("in 1 file in"));
}

#[test]
fn large_files_of_a_copy_have_lines_that_fit_the_terminal() {
    let host = TestHost::new();
    fs::create_dir(host.near("run")).unwrap();
    for name in ["first.h5", "second.h5"] {
        fs::write(host.near("run").join(name), vec![1; 32 << 20]).unwrap();
    }
    let server = host.serve();
    let copy = format!("stty cols 70; {PROGRAM} cp -r --bwlimit 160M run {}", server.url("run"));
    let output = host.command("script", &["-qec", &copy, "/dev/null"]).output().unwrap();
    assert_code(&output, 0);
    let shown = text(&output.stdout).to_owned();
    assert!(shown.contains("of 32.0 MiB") && shown.contains("first.h5"), "{shown}");
    assert!(shown.contains("0/2 files"), "{shown}");
}

#[test]
fn a_command_of_wan_run_needs_no_dashes() {
    let host = TestHost::new();
    let output = host.run(&["wan", "run", "--rtt", "2ms", "sh", "-c", "echo $1", "sh", "--loss"]);
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "--loss\n");
    let output = host.run(&["wan", "run", "--rtt", "90", "true"]);
    assert_code(&output, 2);
    assert!(text(&output.stderr).contains("did you mean 90ms?"), "{}", text(&output.stderr));
    let output = host.run(&["doctor", "--rtt", "90"]);
    assert_code(&output, 2);
    assert!(text(&output.stderr).contains("did you mean 90ms?"), "{}", text(&output.stderr));
}

#[test]
fn the_usage_of_nuttcp_has_lines() {
    let host = TestHost::new();
    let asked = host.run(&["nuttcp", "-h"]);
    assert_code(&asked, 0);
    let usage = text(&asked.stdout);
    assert!(usage.starts_with("Usage: longhaul nuttcp ") && usage.lines().count() > 5, "{usage}");
    let given_nothing = host.run(&["nuttcp"]);
    assert_code(&given_nothing, 1);
    assert_eq!((text(&given_nothing.stderr), text(&given_nothing.stdout)), (usage, String::new()));
}

#[test]
fn verdicts_name_the_limit_in_force() {
    let host = TestHost::new();
    host.file("data", 2_000_000);
    let server = host.serve();
    let verdict = |arguments: &[&str]| {
        let output = host.run(&[&["cp", "--json"], arguments].concat());
        let result = document(&output.stdout);
        (result["limit"].clone(), result["verdict"].as_str().unwrap().to_owned())
    };
    let (limit, sentence) = verdict(&["--bwlimit", "16M", "data", &server.url("a")]);
    assert_eq!((limit.as_str(), sentence.contains("--bwlimit")), (Some("rate"), true));
    let nothing = (Value::Null, String::new());
    assert_eq!(verdict(&["-p", "nosuch", &server.url("b")]), nothing);
    assert_code(&host.run(&["cp", "-p", "data", "same"]), 0);
    assert_eq!(verdict(&["-p", "-u", "data", "same"]), nothing);
}

#[test]
fn an_outage_of_the_path_is_named() {
    let host = TestHost::new();
    host.file("data", 4_000_000);
    let serve = format!("{PROGRAM} serve --root {}", host.far("").display());
    let output = host.run(&[
        "wan",
        "run",
        "--rtt",
        "5ms",
        "--outage",
        "2s+6s",
        "--far",
        &serve,
        PROGRAM,
        "cp",
        "--json",
        "--bwlimit",
        "8M",
        "data",
        "lh://far/",
    ]);
    assert_code(&output, 0);
    let result = document(&output.stdout);
    assert_eq!(result["limit"], "outage", "{}", result["verdict"]);
    assert!(result["summary"]["outage_seconds"].as_f64().unwrap() > 3.0);
}

#[test]
fn errors_name_the_cause_once() {
    let host = TestHost::new();
    host.file("data", 10);
    let server = host.serve();
    let (port, outside) = (server.port.to_string(), server.url("../../x"));
    let ipv6 = format!("127.0.0.1:{port}");
    fs::write(
        host.near("plan.toml"),
        "name = \"x\"\n[conditions]\nrt = [\"9ms\"]\n[memory]\nseconds = 1\n\
         [[entries]]\ntool = \"longhaul\"\nworkload = \"memory\"\n",
    )
    .unwrap();
    let cases: [(&[&str], i32, &str, &str); 4] = [
        (
            &["wan", "run", "--rate-trace", "nosuch", "true"],
            2,
            "nosuch",
            "read: No such file or directory (os error 2): ",
        ),
        (&["cp", "data", &outside], 5, "is outside the offered directory", "cross-device"),
        (&["test", &ipv6, "-6", "-t", "1"], 3, "omit -4 or -6", "longhaul serve"),
        (&["matrix", "plan.toml"], 2, "no link option 'rt'", "conditions.rtt is empty"),
    ];
    for (arguments, code, word, never) in cases {
        let output = host.run(arguments);
        let printed = text(&output.stderr);
        assert!(printed.contains(word) && !printed.contains(never), "{arguments:?}: {printed}");
        assert_code(&output, code);
    }
}

#[test]
fn an_unreadable_source_is_named_and_the_target_is_not() {
    let host = TestHost::new();
    let server = host.serve();
    let data = host.file("data", 10);
    fs::set_permissions(data, PermissionsExt::from_mode(0o000)).unwrap();
    // The user has no capability that lets root read every file.
    let drop = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", PROGRAM];
    for target in ["copy".to_owned(), server.url("x")] {
        let copy = [&drop[..], &["cp", "data", &target]].concat();
        let output = host.command("setpriv", &copy).output().unwrap();
        assert_code(&output, 5);
        let expected = "longhaul: data: cannot open it: Permission denied (os error 13)\n";
        assert_eq!(text(&output.stderr), expected, "{target}");
    }
    assert_eq!((names(&host.near("")), names(&host.far(""))), (vec!["data".to_owned()], vec![]));
}

#[test]
fn an_interrupted_copy_names_the_command_that_resumes_it() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 32 << 20);
    let url = server.url("x");
    let mut copy = host
        .longhaul(&["cp", "--json-stream", "--bwlimit", "80M", "data", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(copy.stdout.take().unwrap()).lines().map(Result::unwrap);
    let moved = |line: String| document(line.as_bytes())["data"]["bytes"].as_u64().unwrap();
    assert!(
        lines.by_ref().map(moved).any(|bytes| bytes >= 16 << 20),
        "the copy ended before 16 MiB"
    );
    kill_process(Pid::from_child(&copy), Signal::INT).unwrap();
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 130);
    let printed = text(&output.stderr);
    let (about, advice) = ("interrupted; about ", " kept, run the same command to resume");
    assert!(printed.contains(about) && printed.contains(advice), "{printed}");
    let resumed = host.run(&["cp", "data", &url]);
    assert_code(&resumed, 0);
    assert!(text(&resumed.stdout).contains(" resumed, "), "{}", text(&resumed.stdout));
    assert!(fs::read(host.far("x")).unwrap() == fs::read(host.near("data")).unwrap());
}

#[test]
fn diagnose_with_an_unauthorized_key_names_the_key() {
    let (host, other) = (TestHost::new(), TestHost::new());
    let server = host.serve();
    other.file("data", 100_000);
    let output = other.run(&["diagnose", "--accept-new", "--time", "1s", "data", &server.url("")]);
    assert_code(&output, 4);
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("not authorized"), "{}", text(&output.stderr));
}

#[test]
fn both_directions_have_a_total() {
    let host = TestHost::new();
    let server = host.serve();
    let address = format!("127.0.0.1:{}", server.port);
    let output = host.run(&["test", &address, "--bidir", "-t", "0.5", "-b", "50M"]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).contains("goodput in both directions together"));
}

#[test]
fn the_cache_is_listed_and_cleared() {
    let host = TestHost::new();
    let cache = host.home().join(".cache/longhaul");
    fs::create_dir_all(cache.join("data-2x500")).unwrap();
    fs::write(cache.join("data-2x500/0"), vec![0; 1000]).unwrap();
    fs::write(cache.join("other"), "kept").unwrap();
    let run = |arguments: &[&str]| host.longhaul(arguments).env_remove("XDG_CACHE_HOME").output();
    let listed = run(&["cache", "--json"]).unwrap();
    assert_code(&listed, 0);
    assert_eq!(document(&listed.stdout)["total_bytes"], 1000);
    assert_code(&run(&["cache", "--clear"]).unwrap(), 0);
    assert_eq!(names(&cache), ["other"]);
}

#[test]
fn documents_state_their_command() {
    let host = TestHost::new();
    host.file("data", 10);
    let server = host.serve();
    let (address, url) = (format!("127.0.0.1:{}", server.port), server.url("x"));
    let test = host.run(&["test", &address, "-n", "1K", "--json"]);
    let copy = host.run(&["cp", "--json", "data", &url]);
    for (output, name) in [(&test, "test"), (&copy, "cp")] {
        assert_code(output, 0);
        let found = &document(&output.stdout)["invocation"];
        assert_eq!(found["command"][1], name);
        assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
        assert!(found["started_at"].as_str().unwrap().ends_with('Z'), "{found}");
        assert!(!found["host"].as_str().unwrap().is_empty());
    }
    let copied = document(&copy.stdout);
    assert_eq!((&copied["sources"][0], &copied["target"]), (&"data".into(), &url.into()));
}
