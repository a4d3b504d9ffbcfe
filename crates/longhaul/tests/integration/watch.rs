//! `longhaul watch`: its documents, its record after kill -9, its metrics, its terminal display, and bad
//! arguments.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::host::{PROGRAM, TestHost, assert_code, text, wait_for};
use crate::running::Running;

#[test]
fn the_stream_is_a_document_per_sample_with_rates() {
    let host = TestHost::new();
    let output =
        host.run(&["watch", "--json-stream", "--samples=2", "--interval=200ms", "-i", "lo"]);
    assert_code(&output, 0);
    let documents: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 2);
    for document in &documents {
        assert_eq!(document["schema"], "longhaul.watch/1");
        let [interface] = &document["interfaces"].as_array().unwrap()[..] else {
            panic!("{document}")
        };
        assert_eq!(
            (&interface["name"], interface["running"].as_bool()),
            (&"lo".into(), Some(true))
        );
        assert!(interface["totals"]["in_bytes"].is_u64());
        // A sample that the host delayed is a gap, too.
        assert_eq!(interface["in_bps"].is_null(), document["span_seconds"].is_null());
    }
    assert!(documents.iter().any(|document| document["span_seconds"].is_number()));
    let output = host.run(&["watch", "--samples=2", "--interval=200ms", "-i", "lo"]);
    assert_code(&output, 0);
    assert!((1..=2).contains(&text(&output.stdout).lines().count()), "{output:?}");
    let output = host.run(&["watch", "--json", "--interval=200ms"]);
    assert_code(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["cores"].as_array().is_some_and(|cores| !cores.is_empty()));
}

#[test]
fn a_record_needs_no_directory() {
    let host = TestHost::new();
    let page = host.near("page.html");
    let words = ["watch", "--record", "--html", page.to_str().unwrap(), "--samples=2", "-q"];
    let output = host.run(&[&words[..], &["--interval=100ms", "-i", "lo"]].concat());
    assert_code(&output, 0);
    assert!(std::fs::read_to_string(page).unwrap().contains("<h2>lo</h2>"));
}

#[test]
fn a_killed_recorder_leaves_a_record_that_continues() {
    let host = TestHost::new();
    let (dir, page) = (host.near("record"), host.near("page.html"));
    let (dir, page) = (dir.to_str().unwrap(), page.to_str().unwrap());
    let recorder = || {
        let mut command =
            host.longhaul(&["watch", "--interval=100ms", "-i", "lo", "--record", dir]);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let draw = || host.run(&["watch", "--html", page, "--from", dir]);
    let drawn = || {
        draw().status.success() && std::fs::read_to_string(page).unwrap().contains("<h2>lo</h2>")
    };
    for _ in 0..3 {
        let running = recorder();
        wait_for("the record has the interface", drawn);
        let output = host.run(&["watch", "--record", dir, "--samples=1", "-q"]);
        assert_code(&output, 5);
        assert!(text(&output.stderr).contains("another process records into"), "{output:?}");
        // Running is dropped: SIGKILL.
        drop(running);
        assert!(drawn(), "the record is whole after a kill");
    }
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("Yearly (1 d average)") && !text.contains("<script"));
}

#[test]
fn prometheus_reads_the_counters() {
    let host = TestHost::new();
    let mut command =
        host.longhaul(&["watch", "--metrics", "127.0.0.1:0", "--interval=100ms", "-q"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().trim_end_matches("/metrics").rsplit_once("http://").unwrap().1.to_owned();
    let get = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    wait_for("the first sample", || get().starts_with("HTTP/1.1 200 "));
    assert!(get().contains("longhaul_network_receive_bytes_total{device=\"lo\"} "));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&running.0),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0), "a signal is the normal end");
}

#[test]
fn the_terminal_display_restores_the_terminal() {
    let host = TestHost::new();
    let watch =
        format!("stty cols 80 rows 24; exec {PROGRAM} watch -i lo --interval=100ms --samples=3");
    let output = host.command("script", &["-qec", &watch, "/dev/null"]).output().unwrap();
    assert_code(&output, 0);
    let screen = text(&output.stdout);
    let (start, end) = ("\x1b[?1049h", "\x1b[?1049l");
    assert!(screen.contains(start) && screen.contains("INTERFACE"), "{screen:?}");
    let (_, after) = screen.rsplit_once(end).expect("the alternate screen ends");
    assert!(!after.contains("INTERFACE"), "{after:?}");
}

#[test]
fn bad_arguments_are_one_sentence() {
    let host = TestHost::new();
    let empty = host.near("");
    let empty = empty.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["watch", "--interval=5ms"], 2, "from 100ms to 60s"),
        (&["watch", "-i", "no-such-if"], 2, "there is no interface 'no-such-if'"),
        (&["watch", "--html", "page.html", "--from", empty], 5, "has no record"),
        (&["watch", "--metrics", "somewhere"], 2, "must be a port"),
    ];
    for (arguments, code, words) in cases {
        let output = host.run(arguments);
        assert_code(&output, code);
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {output:?}");
    }
}
