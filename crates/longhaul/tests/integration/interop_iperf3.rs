//! Tests against Debian's iperf3 in both roles, and the output under its name.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::TestHost;
use crate::running::{Running, start};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn stock_server(port: u16) -> Running {
    let mut command = Command::new("iperf3");
    command.args(["-s", "-p", &port.to_string()]);
    start(command, port)
}

fn our_server(host: &TestHost, port: u16, more: &[&str]) -> Running {
    let mut command = host.longhaul(&[]);
    command.args(["serve", "--port", &free_port().to_string(), &format!("--iperf3={port}")]);
    command.args(more);
    start(command, port)
}

fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a document")
}

fn test_against(host: &TestHost, port: u16, options: &str) -> Output {
    let target = format!("iperf3://127.0.0.1:{port}");
    host.longhaul(&["test", &target]).args(options.split_whitespace()).output().unwrap()
}

fn stock_client(port: u16, options: &str) -> Output {
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-J", "-p", &port.to_string()]);
    command.args(options.split_whitespace()).output().expect("iperf3 is installed")
}

const CASES: [&str; 7] = [
    "-t 1",
    "-t 1 -R -P 2",
    "-t 1 --bidir",
    "-n 8M",
    "-n 8M -R",
    "-t 1 -u -b 20M -l 1400",
    "-t 1 -u -b 20M -l 1400 -R",
];

#[test]
fn the_client_runs_against_a_stock_server() {
    let host = TestHost::new();
    let port = free_port();
    let _server = stock_server(port);
    for options in CASES {
        let found = document(&test_against(&host, port, &format!("{options} --json")));
        assert_eq!(found["peer"]["program"], "iperf3", "{options}");
        let summary = &found["summary"];
        let [sent, received] = ["sender", "receiver"].map(|end| summary[end]["bytes"].as_u64());
        assert!(sent > Some(0) && received > Some(0), "{options}: {summary}");
        assert!(summary["reason"]["sentence"].is_string(), "{options}: {summary}");
        // The peer's kernel is unknown.
        let peer = if options.contains("-R") { "sender" } else { "receiver" };
        assert!(summary[peer]["rtt_ms"].is_null(), "{options}: {summary}");
        if options == "-n 8M" {
            assert_eq!((sent, received), (Some(8 << 20), Some(8 << 20)));
        }
        assert_eq!(found["reverse"].is_object(), options.contains("--bidir"), "{options}");
    }
}

#[test]
fn without_a_server_only_the_error_is_printed() {
    let refused = test_against(&TestHost::new(), free_port(), "-t 1");
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(String::from_utf8_lossy(&refused.stderr).lines().count(), 1, "{refused:?}");
}

#[test]
fn the_server_answers_stock_clients_at_once() {
    let host = TestHost::new();
    let port = free_port();
    let _server = our_server(&host, port, &[]);
    std::thread::scope(|scope| {
        for options in CASES {
            scope.spawn(move || {
                let found = document(&stock_client(port, options));
                assert!(found["error"].is_null(), "{options}: {found}");
                let sum = ["sum_received", "sum"].map(|name| found["end"][name]["bytes"].as_f64());
                assert!(sum.into_iter().flatten().any(|bytes| bytes > 0.0), "{options}: {found}");
            });
        }
    });
}

#[test]
fn the_drop_in_server_answers_a_stock_client() {
    let host = TestHost::new();
    let port = free_port();
    let mut command = host.longhaul(&["iperf3", "-s", "-1", "-p"]);
    command.arg(port.to_string());
    let _server = start(command, port);
    let found = document(&stock_client(port, "-t 1"));
    assert!(found["end"]["sum_received"]["bytes"].as_f64() > Some(0.0), "{found}");
}

#[test]
fn one_client_at_a_time_holds_for_all_protocols() {
    let host = TestHost::new();
    let port = free_port();
    let _server = our_server(&host, port, &["--exclusive"]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..2).map(|_| scope.spawn(move || document(&stock_client(port, "-t 1")))).collect();
        clients.into_iter().for_each(|client| drop(client.join().unwrap()));
    });
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn a_vanished_client_leaves_the_server_free() {
    let host = TestHost::new();
    let port = free_port();
    let _server = our_server(&host, port, &["--exclusive", "--no-penalties"]);
    // A client that sends its cookie and leaves, one of another protocol, and one that is killed.
    let mut half = TcpStream::connect(("127.0.0.1", port)).unwrap();
    half.write_all(&[b'a'; 37]).unwrap();
    drop(half);
    let mut other = TcpStream::connect(("127.0.0.1", port)).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
    let _ = other.set_read_timeout(Some(Duration::from_secs(20)));
    let _ = other.read_to_end(&mut Vec::new());
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-t", "60", "-p", &port.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    killed.kill().unwrap();
    killed.wait().unwrap();
    document(&stock_client(port, "-t 1"));
}

#[test]
fn a_server_that_is_none_is_named_with_its_exit_code() {
    let host = TestHost::new();
    // A peer that uses another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let talker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = stream.read(&mut [0; 100]);
    });
    let failed = test_against(&host, port, "-t 1");
    talker.join().unwrap();
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(3), "{text}");
    assert!(text.contains("uses another protocol") && text.lines().count() == 1, "{text}");
    // A busy server.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let busy = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&[0xff]);
        let _ = stream.read(&mut [0; 100]);
    });
    let failed = test_against(&host, port, "-t 1");
    busy.join().unwrap();
    assert_eq!(failed.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("is busy"), "{failed:?}");
    // An option that iperf3 does not have.
    let failed = test_against(&host, port, "-t 1 --latency");
    assert_eq!(failed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("--latency"), "{failed:?}");
}

#[test]
fn the_documents_of_the_drop_in_have_the_fields_of_iperf3() {
    let host = TestHost::new();
    let port = free_port();
    let _server = stock_server(port);
    for options in ["-t 1", "-t 1 -R", "-t 1 -u -b 10M", "-t 1 -u -b 10M -R"] {
        let stock = document(&stock_client(port, options));
        let mut command = host.longhaul(&[]);
        command.args(["iperf3", "-c", "127.0.0.1", "-J", "-p", &port.to_string()]);
        let ours = document(&command.args(options.split_whitespace()).output().unwrap());
        for path in ["/end", "/end/streams/0", "/intervals/0/sum", "/intervals/0/streams/0"] {
            let keys = |document: &Value| -> Vec<String> {
                document.pointer(path).unwrap().as_object().unwrap().keys().cloned().collect()
            };
            let (ours, stock) = (keys(&ours), keys(&stock));
            // The kernel reports no path MTU to the engine.
            let missing: Vec<_> =
                stock.iter().filter(|key| !ours.contains(key) && *key != "pmtu").collect();
            assert!(missing.is_empty(), "{options} {path}: {missing:?}");
        }
    }
    let version = host.longhaul(&["iperf3", "--version"]).output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.starts_with("iperf 3."), "{version}");
}
