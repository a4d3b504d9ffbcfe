//! `longhaul test` against `longhaul serve`, as programs: output, exit codes, signals.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::{Server, TestHost, text};

/// A server on a free port, and its host.
struct Tested {
    host: TestHost,
    server: Server,
}

impl Tested {
    fn start() -> Self {
        let host = TestHost::new();
        let server = host.serve();
        Tested { host, server }
    }

    fn test(&self, arguments: &str) -> Command {
        let port = self.server.port.to_string();
        let mut command = self.host.longhaul(&["test", "127.0.0.1", "-p", &port]);
        command.args(arguments.split_whitespace());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.test(arguments).output().unwrap()
    }
}

#[test]
fn text_ends_with_goodput_and_reason() {
    let server = Tested::start();
    let output = server.run("-n 4G -P 2");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert!(out.starts_with("TCP to 127.0.0.1:"), "{out}");
    assert!(out.contains("sender and receiver count the same 4294967296 bytes"), "{out}");
    let (_, answer) = out.rsplit_once("the same 4294967296 bytes").unwrap();
    assert!(answer.contains(" goodput to 127.0.0.1:") && answer.contains("% there)"), "{out}");
    assert!(answer.contains("\nlimited by ") || answer.contains("\nno limit found"), "{out}");
    assert!(out.lines().all(|line| line.len() <= 80), "{out}");
}

#[test]
fn json_is_one_document_with_the_names_of_the_contract() {
    let server = Tested::start();
    for direction in ["", "-R"] {
        let output = server.run(&format!("-t 0.5 -i 0.1 -P 2 --json {direction}"));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["schema"], "longhaul.test/1");
        assert!(found["summary"]["throughput_bps"].as_u64().unwrap() > 0);
        assert_eq!(found["summary"]["totals_agree"], true);
        for end in ["sender", "receiver"] {
            for field in ["bytes", "seconds", "cpu_percent", "retransmits", "rtt_ms"] {
                assert!(found["summary"][end][field].is_number(), "{end}.{field}");
            }
        }
        assert_eq!(found["streams"].as_array().unwrap().len(), 2);
        let intervals = found["intervals"].as_array().unwrap();
        assert_eq!(intervals.len(), 5);
        for stream in intervals.iter().flat_map(|i| i["streams"].as_array().unwrap()) {
            for field in ["rtt_ms", "cwnd_bytes", "busy_ms", "rwnd_limited_ms"] {
                assert!(stream["sender"][field].is_number(), "{field}");
            }
        }
    }
}

#[test]
fn json_stream_has_a_line_per_interval_and_one_for_the_result() {
    let server = Tested::start();
    let output = server.run("-t 0.3 -i 0.1 --json-stream");
    let out = text(&output.stdout);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["interval", "interval", "interval", "result"]);
    assert!(lines.iter().all(|line| line["schema"] == "longhaul.test/1"));
    assert!(lines[3]["data"]["summary"]["throughput_bps"].as_u64().unwrap() > 0);
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    let server = Tested::start();
    for direction in ["", "-R"] {
        let mut child = server
            .test(&format!("-t 600 -i 0.1 {direction}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // After the heading, the column heads and two intervals the test is known to run.
        let shown: Vec<_> = lines.by_ref().take(4).collect();
        assert_eq!(shown.len(), 4, "{shown:?}");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let asked = Instant::now();
        let rest: Vec<_> = lines.collect();
        assert!(asked.elapsed() < Duration::from_secs(20));
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(rest.iter().any(|line| line.starts_with("interrupted")), "{rest:?}");
        assert!(rest.iter().any(|line| line.contains(" goodput ")), "{rest:?}");
    }
}

#[test]
fn errors_are_one_line_with_a_documented_code() {
    let server = Tested::start();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = closed.local_addr().unwrap().port();
    drop(closed);
    let refused = format!("test 127.0.0.1 -p {closed_port}");
    for (arguments, code, words) in [
        ("test nohost.invalid", 3, "nohost.invalid"),
        (refused.as_str(), 3, "check that 'longhaul serve' runs there"),
        ("test far -u -Z", 2, "zero-copy send (-Z) cannot be used with UDP"),
        ("test far -P 0", 2, "number of streams is 0"),
        ("test far -b 10Q", 2, "unknown unit 'Q'"),
    ] {
        let split: Vec<_> = arguments.split_whitespace().collect();
        let output = server.host.run(&split);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {error}");
        assert!(error.contains(words), "{arguments}: {error}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
    }
    let output = server.run("-C nonesuch");
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output.stderr).contains("congestion control 'nonesuch'"));
}
