//! `longhaul test` with UDP, both directions, connections opened by the server, two servers,
//! several links, and an emulated link.

use std::process::{Command, Output};

use serde_json::Value;

use crate::host::{PROGRAM, Server, TestHost, text};

fn result(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn test(host: &TestHost, server: &Server, arguments: &str) -> Output {
    let port = server.port.to_string();
    let mut command = host.longhaul(&["test", "127.0.0.1", "-p", &port]);
    command.args(arguments.split_whitespace()).output().unwrap()
}

#[test]
fn the_document_counts_datagrams() {
    let host = TestHost::new();
    let server = host.serve();
    for direction in ["", "-R", "--bidir", "--flip"] {
        let found = result(&test(&host, &server, &format!("-u -b 100M -t 0.5 --json {direction}")));
        let udp = &found["summary"]["udp"];
        let count = |field: &str| udp[field].as_u64().unwrap();
        assert!(count("received") > 0);
        assert_eq!(count("sent"), count("received") + count("lost") + count("receiver_dropped"));
        assert_eq!(found["plan"]["protocol"], "udp");
        // A datagram is at most a jumbo frame, although the MTU of loopback is larger.
        assert_eq!(found["plan"]["write_bytes"], 8972);
        assert_eq!(found["reverse"].is_object(), direction == "--bidir");
    }
}

#[test]
fn one_port_serves_tcp_and_udp_over_ipv4_and_ipv6() {
    let host = TestHost::new();
    let server = Server::start(host.longhaul(&["serve", "-p", "0"]));
    let port = server.port.to_string();
    for (target, flag) in [("127.0.0.1", "-4"), ("::1", "-6")] {
        for protocol in ["-u", "--mptcp", "-P2"] {
            let output = host.run(&[
                "test", target, "-p", &port, flag, protocol, "-n", "100K", "-b", "100M", "--json",
            ]);
            let bytes = &result(&output)["summary"]["receiver"]["bytes"];
            assert_eq!(bytes.as_u64(), Some(102_400), "{target} {protocol}");
        }
    }
    let wrong = host.run(&["test", "127.0.0.1", "-p", &port, "-6", "-n", "1"]);
    assert_eq!(wrong.status.code(), Some(3), "{}", text(&wrong.stderr));
}

#[test]
fn a_client_makes_two_servers_test() {
    let host = TestHost::new();
    let (first, second) = (host.serve(), host.serve());
    let (a, b) = (format!("127.0.0.1:{}", first.port), format!("127.0.0.1:{}", second.port));
    for direction in ["", "-R", "--bidir"] {
        let mut command = host.longhaul(&["test", &a, &b, "-t", "0.5", "-i", "0.1", "--json"]);
        let found = result(&command.args(direction.split_whitespace()).output().unwrap());
        assert_eq!(
            (found["target"].as_str(), found["third_party"].as_str()),
            (Some(&*b), Some(&*a))
        );
        assert!(found["summary"]["throughput_bps"].as_u64().unwrap() > 0);
        assert_eq!(found["intervals"].as_array().unwrap().len(), 5);
        if direction == "--bidir" {
            assert_eq!(found["reverse"]["intervals"].as_array().unwrap().len(), 5);
        }
    }
    // The port of the second server is closed.
    let gone = host.run(&["test", &a, "127.0.0.1:1", "-t", "0.5"]);
    assert_eq!(gone.status.code(), Some(3));
    assert!(text(&gone.stderr).contains("cannot connect to 127.0.0.1:1"), "{}", text(&gone.stderr));
    // A client with an unauthorized key may run tests, but cannot make the server test against
    // others.
    let unauthorized = TestHost::new();
    assert!(unauthorized.run(&["test", &a, "-n", "1K"]).status.success());
    let refused = unauthorized.run(&["test", &a, &b, "-n", "1K"]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(
        text(&refused.stderr).contains("only authorized keys may test"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn each_link_of_a_test_has_figures() {
    let host = TestHost::new();
    let server = Server::start(host.longhaul(&["serve", "--bind", "0.0.0.0", "-p", "0"]));
    let arguments = "-P 4 -n 4M --local 127.0.1.1+256*2 --remote 127.0.1.9,127.0.2.9 --json";
    let found = result(&test(&host, &server, arguments));
    let links = found["summary"]["links"].as_array().unwrap();
    assert_eq!(links.len(), 2);
    for (link, net) in links.iter().zip(["127.0.1", "127.0.2"]) {
        assert_eq!((link["streams"].as_u64(), link["bytes"].as_u64()), (Some(2), Some(2 << 20)));
        assert_eq!(link["server"], format!("{net}.9"));
        assert_eq!(link["client"], format!("{net}.1"));
    }
    let receiver = found["streams"][1]["receiver_address"].as_str().unwrap();
    assert!(receiver.starts_with("127.0.2.9:"), "{receiver}");
}

#[test]
fn datagrams_and_probes_cross_an_emulated_link() {
    let host = TestHost::new();
    let over_the_link = |arguments: &str| {
        let mut command = Command::new("env");
        command.arg(format!("HOME={}", host.home().display()));
        command.args([PROGRAM, "wan", "run", "--rtt", "20ms", "--rate", "1G"]);
        command.args(["--far", &format!("{PROGRAM} serve"), "--", PROGRAM, "test", "far"]);
        command.args(arguments.split_whitespace()).output().unwrap()
    };
    let found = result(&over_the_link("-u -b 200M -t 1 --json"));
    let udp = &found["summary"]["udp"];
    assert!(udp["received"].as_u64().unwrap() > 0);
    assert_eq!((udp["lost"].as_u64(), udp["duplicated"].as_u64()), (Some(0), Some(0)), "{udp}");
    let found = result(&over_the_link("-t 2 --latency --bidir --json"));
    let idle = found["latency"]["idle"]["p50_ms"].as_f64().unwrap();
    assert!((20.0..40.0).contains(&idle), "{idle}");
    let loaded = found["latency"]["loaded"]["p50_ms"].as_f64().unwrap();
    assert!(loaded >= 20.0, "{loaded}");
}
