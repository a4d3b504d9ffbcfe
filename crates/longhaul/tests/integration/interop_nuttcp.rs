//! Tests against Debian's nuttcp in both roles, and the output under its name.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::TestHost;
use crate::running::{Running, start};

/// Returns the first of 16 adjacent ports that were free.
fn free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let all = first.checked_add(16).map(|last| first..last);
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if first >= 5000 && all.is_some_and(|mut all| all.all(free)) {
            return first;
        }
    }
}

fn stock_server(port: u16) -> Running {
    let mut command = Command::new("nuttcp");
    command.args(["-S", "--nofork", &format!("-P{port}")]);
    start(command, port)
}

fn our_server(host: &TestHost, port: u16) -> Running {
    let mut command = host.longhaul(&[]);
    let own = free_ports().to_string();
    command.args(["serve", "--port", &own, &format!("--nuttcp={port}")]);
    start(command, port)
}

fn test_against(host: &TestHost, port: u16, options: &str) -> Output {
    let mut command = host.longhaul(&[]);
    command.args(["test", &format!("nuttcp://127.0.0.1:{port}"), "--json"]);
    command.args(options.split_whitespace());
    command.output().unwrap()
}

fn stock_client(control: u16, data: u16, options: &str) -> Output {
    let mut command = Command::new("nuttcp");
    command.args([format!("-P{control}"), format!("-p{data}")]);
    command.args(options.split_whitespace()).arg("127.0.0.1").output().unwrap()
}

#[test]
fn our_client_runs_against_debians_server() {
    let host = TestHost::new();
    let port = free_ports();
    let _server = stock_server(port);
    for options in [
        "-t 1 -i 0.5",
        "-R -t 1 -i 0.5",
        "-P 4 -n 8M",
        "-R -P 4 -t 1",
        "-u -b 20M -t 1",
        "-u -R -b 20M -t 1",
        "--flip -t 1",
    ] {
        let output = test_against(&host, port, options);
        assert!(output.status.success(), "{options}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["peer"]["program"], "nuttcp");
        assert_eq!(document["peer"]["version"], "6.1.2", "{options}");
        let bytes = |end: &str| document["summary"][end]["bytes"].as_u64().unwrap();
        assert!(bytes("receiver") > 0, "{options}");
        assert_ne!(document["summary"]["totals_agree"], false, "{options}");
        if !options.contains("-u") {
            assert_eq!(bytes("sender"), bytes("receiver"), "{options}");
        }
        assert!(document["summary"]["reason"]["sentence"].is_string(), "{options}");
    }
}

#[test]
fn debians_clients_run_at_once_against_our_server() {
    let host = TestHost::new();
    let (port, data) = (free_ports(), free_ports());
    let _server = our_server(&host, port);
    let check = |options: &str, output: Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{options}: {output:?}");
        assert!(text.contains(" %TX ") && text.contains(" %RX"), "{options}: {text}");
    };
    // All use the same data ports.
    let options = ["-T1 -i0.5", "-N4 -T1", "-T1", "-n100", "-u -R20m -T1", "-u -R20m -T1 -i0.5"];
    let client = |options| (options, thread::spawn(move || stock_client(port, data, options)));
    for (options, client) in options.map(client) {
        check(options, client.join().unwrap());
    }
    // Receivers on this host listen on the data ports themselves.
    for options in ["-r -T1 -i0.5", "-r -N4 -T1", "-u -r -R20m -T1", "-F -n100"] {
        check(options, stock_client(port, data, options));
    }
}

#[test]
fn the_command_line_and_lines_are_those_of_nuttcp() {
    let host = TestHost::new();
    let (port, data) = (free_ports(), free_ports());
    let _server = stock_server(port);
    let ours = |options: &str| {
        let mut command = host.longhaul(&[]);
        command.arg("nuttcp").args([format!("-P{port}"), format!("-p{data}")]);
        let output = command.args(options.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{options}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ours("-V").starts_with("nuttcp-8.2.2 (longhaul "));
    for options in ["-T1 -i0.5", "-r -T1 -i0.5", "-u -R20m -T1 -i0.5", "-fparse -T1"] {
        let theirs = stock_client(port, data, options);
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let ours = ours(&format!("{options} 127.0.0.1"));
        let last = |text: &str| words_without_numbers(text.lines().last().unwrap_or(""));
        // Debian's version has no congestion window.
        let known = last(&ours).replace(" KB-cwnd", "").replace(" cwnd=", "");
        assert_eq!(known, last(&theirs), "{options}: {ours}\n{theirs}");
    }
    let unavailable = host.longhaul(&[]).args(["nuttcp", "-s", "127.0.0.1"]).output().unwrap();
    assert_eq!(unavailable.status.code(), Some(1));
    let text = String::from_utf8(unavailable.stderr).unwrap();
    assert!(text.contains("option -s is not available"), "{text}");
}

/// Returns the words of a line without digits, which differ between two runs.
fn words_without_numbers(line: &str) -> String {
    let words = line.split_whitespace();
    let words = words.map(|word| word.trim_matches(|c: char| c.is_ascii_digit() || c == '.'));
    let joined: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    joined.iter().fold(String::new(), |text, word| text + " " + word)
}

#[test]
fn a_server_of_another_protocol_and_a_silent_one_are_named() {
    let host = TestHost::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for answer in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"HELO nuttcp v5.1.0\n", b"KO\nno\nKO\n"] {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(answer);
            let _ = stream.read(&mut [0; 4096]);
        }
        // Accepts and is silent.
        let (stream, _) = listener.accept().unwrap();
        thread::sleep(Duration::from_secs(40));
        drop(stream);
    });
    for (code, words) in [
        (3, "uses another protocol"),
        (2, "older than 6.1.2"),
        (4, "refused the test: no"),
        (3, "sent nothing for 20 s"),
    ] {
        let begun = Instant::now();
        let output = test_against(&host, port, "-t 1");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(words), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn a_client_that_sends_single_bytes_has_the_time_of_a_silent_one() {
    let host = TestHost::new();
    let port = free_ports();
    let _server = our_server(&host, port);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let begun = Instant::now();
    // The longest line has 4096 bytes and takes 28 s or more.
    while client.write_all(b"x").is_ok() {
        thread::sleep(Duration::from_millis(7));
        assert!(begun.elapsed() < Duration::from_secs(26), "the server waits for the line");
    }
}

#[test]
fn a_vanished_client_does_not_block_the_next_one() {
    let host = TestHost::new();
    let (port, data) = (free_ports(), free_ports());
    let _server = our_server(&host, port);
    let mut command = Command::new("nuttcp");
    command.args([format!("-P{port}"), format!("-p{data}"), "-T30".into(), "127.0.0.1".into()]);
    let mut killed = command.stdout(Stdio::null()).spawn().unwrap();
    // Another one leaves between the option line and its data connection.
    let line = "buflen = 65536, nbuf = 2147483647, win = 0, nstream = 1, rate = 0, port = 5999, \
                trans = 1, braindead = 0, timeout = 9.0, udp = 0, vers = 6.1.2\n";
    let mut gone = TcpStream::connect(("127.0.0.1", port)).unwrap();
    gone.write_all(format!("HELO nuttcp v6.1.2\n{line}").as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(500));
    drop(gone);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let begun = Instant::now();
    let output = stock_client(port, data, "-T1");
    assert!(output.status.success(), "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
