//! `longhaul cp` to and from a server and within a host.

use std::fs;

use serde_json::Value;

use crate::host::{TestHost, assert_code, names, text};

#[test]
fn a_file_is_copied_to_a_server_and_back() {
    let host = TestHost::new();
    let server = host.serve();
    let data = host.file("data", (9 << 20) + 321);
    let output = host.run(&["cp", "--json", "data", &server.url("there")]);
    assert_code(&output, 0);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["schema"], "longhaul.cp/1");
    let summary = &result["summary"];
    assert_eq!(summary["bytes"], (9 << 20) + 321);
    assert_eq!(summary["files"], 1);
    for promise in ["verified", "encrypted", "durable"] {
        assert_eq!(summary[promise], true, "{promise}");
    }
    // The rate is the bytes divided by the seconds.
    let (bytes, seconds) =
        (summary["bytes"].as_f64().unwrap(), summary["seconds"].as_f64().unwrap());
    let rate = summary["throughput_bps"].as_f64().unwrap();
    assert!((rate / (bytes * 8.0 / seconds) - 1.0).abs() < 0.01, "{summary}");
    assert!(result["verdict"].is_string());

    let output = host.run(&["cp", "--cleartext", &server.url("there"), "back"]);
    assert_code(&output, 0);
    let printed = text(&output.stdout);
    assert!(printed.contains("not encrypted") && printed.contains("verified"), "{printed}");
    assert!(printed.trim_end().ends_with("b/s"), "the last line is the answer: {printed}");
    assert!(fs::read(host.near("back")).unwrap() == fs::read(data).unwrap());
    assert_eq!(names(&host.far("")), ["there"]);
}

#[test]
fn a_tree_is_copied_to_a_server_and_back() {
    let host = TestHost::new();
    let server = host.serve();
    fs::create_dir_all(host.near("tree/sub")).unwrap();
    for i in 0..100 {
        host.file(&format!("tree/sub/{i}"), i * 1000);
    }
    assert_code(&host.run(&["cp", "-r", "-p", "tree", &server.url("")]), 0);
    assert_code(&host.run(&["cp", "-r", "-p", "-P", "1", &server.url("tree"), "back"]), 0);
    let same = host.command("diff", &["-r", "tree", "back"]).output().unwrap();
    assert_code(&same, 0);
    // A directory needs -r.
    let output = host.run(&["cp", "tree", &server.url("again")]);
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("-r"), "{}", text(&output.stderr));
}

#[test]
fn files_are_copied_within_a_host() {
    let host = TestHost::new();
    let data = host.file("data", 3_000_000);
    fs::create_dir(host.near("dir")).unwrap();
    assert_code(&host.run(&["cp", "data", "dir"]), 0);
    assert!(fs::read(host.near("dir/data")).unwrap() == fs::read(&data).unwrap());
    assert_code(&host.run(&["cp", "--size", "5MiB", "/dev/zero", "zeros"]), 0);
    assert_eq!(fs::read(host.near("zeros")).unwrap(), vec![0; 5 << 20]);
    assert_code(&host.run(&["cp", "data", "/dev/null"]), 0);
}

#[test]
fn failed_files_do_not_stop_the_copy() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("good", 1000);
    let output = host.run(&["cp", "good", "missing", &server.url("")]);
    assert_code(&output, 7);
    let printed = text(&output.stderr);
    assert!(printed.contains("missing: cannot open it: No such file"), "{printed}");
    assert_eq!(names(&host.far("")), ["good"]);
}
