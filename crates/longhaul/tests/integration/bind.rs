//! `--bind`: the source addresses of all packets that reach the server, as tcpdump sees them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Server, TestHost, assert_code, text};
use crate::running::{Running, start};

/// The address of the servers, which no other test uses.
const FAR: &str = "127.7.7.7";
/// The address of `--bind`.
const LOCAL: &str = "127.0.0.2";

/// A tcpdump of the packets to the servers, and the thread that reads its lines.
struct Watch(Child, JoinHandle<String>);

impl Watch {
    fn start() -> Self {
        let mut command = Command::new("tcpdump");
        // With short captures, the buffer has space for many packets.
        command.args(["-i", "lo", "-nn", "-q", "-l", "-s", "128", "-B", "4096"]);
        command.args(["--immediate-mode", "dst", "host", FAR]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tcpdump");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("listening on")));
        std::thread::spawn(move || lines.for_each(drop));
        let mut output = child.stdout.take().unwrap();
        let read = std::thread::spawn(move || {
            let mut all = String::new();
            output.read_to_string(&mut all).unwrap();
            all
        });
        Watch(child, read)
    }

    /// Returns the protocols and the source addresses.
    fn finish(mut self) -> BTreeSet<(String, String)> {
        // The packets of the last connection are on their way through tcpdump.
        std::thread::sleep(Duration::from_millis(300));
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let all = self.1.join().unwrap();
        self.0.wait().unwrap();
        all.lines().filter_map(sender).collect()
    }
}

/// Returns the protocol and the source address of a line such as
/// `12:00:00.1 IP 127.0.0.2.4711 > 127.7.7.7.5210: tcp 0`.
fn sender(line: &str) -> Option<(String, String)> {
    let (from, to) = line.split_once(" IP ")?.1.split_once(" > ")?;
    let address: Vec<&str> = from.split('.').take(4).collect();
    let kind = to.split_once(": ")?.1.split([' ', ',']).next()?.to_lowercase();
    Some((kind, address.join(".")))
}

/// Runs a command with `--bind`, and checks that packets of these protocols arrived, all from its
/// address.
#[track_caller]
fn only_from_local(host: &TestHost, protocols: &[&str], arguments: &str) {
    let watch = Watch::start();
    let words: Vec<&str> = arguments.split_whitespace().chain(["--bind", LOCAL]).collect();
    let output = host.run(&words);
    let seen = watch.finish();
    let code = output.status.code();
    // A part of 'path' may be unavailable on loopback.
    let partial = code == Some(7) && arguments.starts_with("path ");
    assert!(code == Some(0) || partial, "{arguments}: {}", text(&output.stderr));
    let others: Vec<_> = seen.iter().filter(|(_, address)| address != LOCAL).collect();
    assert!(others.is_empty(), "{arguments}: {others:?}");
    for protocol in protocols {
        assert!(seen.iter().any(|(kind, _)| kind == protocol), "{arguments}: {protocol} {seen:?}");
    }
}

fn serve(host: &TestHost, options: &[&str]) -> Server {
    Server::start(host.longhaul(&[&["serve", "--bind", FAR, "-p", "0"], options].concat()))
}

fn free_port() -> u16 {
    TcpListener::bind((FAR, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn connections_flows_and_probes_have_the_local_address() {
    let host = TestHost::new();
    let root = host.far("");
    let server = serve(&host, &["--root", root.to_str().unwrap()]);
    let (port, file) = (server.port, host.file("data", 300_000));
    let file = file.to_str().unwrap();
    for options in ["-n 200K", "-R -t 0.3", "--bidir --latency -t 0.3", "--flip -n 200K"] {
        only_from_local(&host, &["tcp"], &format!("test {FAR} -p {port} -b 100M {options}"));
    }
    only_from_local(&host, &["tcp", "udp"], &format!("test {FAR} -p {port} -u -b 20M -t 0.3"));
    let path = format!("path {FAR}:{port} -t 0.2 -c 5 --skip capacity -q");
    only_from_local(&host, &["tcp", "udp", "icmp"], &path);
    let arguments = format!("path {FAR}:{port} --no-server -c 5 --skip hops -q");
    only_from_local(&host, &["tcp", "udp", "icmp"], &arguments);
    let copy = format!("cp -q --accept-new {file} lh://{FAR}:{port}/copy");
    only_from_local(&host, &["tcp"], &copy);
    let back = format!("cp -q --accept-new lh://{FAR}:{port}/copy {file}.back");
    only_from_local(&host, &["tcp"], &back);
    assert_eq!(std::fs::read(file).unwrap(), std::fs::read(format!("{file}.back")).unwrap());
    let diagnose =
        format!("diagnose --time 0.5 --rounds 1 --size 200KB {file} lh://{FAR}:{port}/diagnosed");
    only_from_local(&host, &["tcp"], &diagnose);
}

#[test]
fn other_programs_and_reflectors_see_the_local_address() {
    let host = TestHost::new();
    let port = free_port();
    let mut iperf3 = Command::new("iperf3");
    iperf3.args(["-s", "-B", FAR, "-p", &port.to_string()]);
    let _iperf3: Running = start(iperf3, port);
    only_from_local(&host, &["tcp"], &format!("test iperf3://{FAR}:{port} -P 2 -n 200K"));
    let datagrams = format!("test iperf3://{FAR}:{port} -u -b 5M -t 1");
    only_from_local(&host, &["tcp", "udp"], &datagrams);
    let own = format!("iperf3 -c {FAR} -p {port} -n 200K");
    only_from_local(&host, &["tcp"], &own);

    let port = free_port();
    let mut nuttcp = Command::new("nuttcp");
    nuttcp.args(["-S", "--nofork", &format!("-P{port}")]);
    let _nuttcp: Running = start(nuttcp, port);
    only_from_local(&host, &["tcp"], &format!("test nuttcp://{FAR}:{port} -t 1"));
    let datagrams = format!("test nuttcp://{FAR}:{port} -u -b 5M -t 1");
    only_from_local(&host, &["tcp", "udp"], &datagrams);

    let reflector = serve(&host, &["--stamp=0"]);
    let stamp = format!("path --stamp {FAR}:{} -c 5 -i 1ms", reflector.port);
    only_from_local(&host, &["udp"], &stamp);
}

#[track_caller]
fn refused(output: &Output, code: i32, part: &str) {
    assert_code(output, code);
    let message = text(&output.stderr);
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(message.contains(part), "'{part}' is not in: {message}");
}

#[test]
fn an_unusable_local_address_is_one_sentence() {
    let host = TestHost::new();
    let socket = UdpSocket::bind((FAR, 0)).unwrap();
    let target = socket.local_addr().unwrap().to_string();
    let (server, iperf3) = (format!("lh://{target}/x"), format!("iperf3://{target}"));
    let file = host.file("data", 10);
    let file = file.to_str().unwrap();
    let commands: [&[&str]; 6] = [
        &["test", &target],
        &["test", &iperf3],
        &["path", &target],
        &["path", "--stamp", &target],
        &["cp", file, &server],
        &["diagnose", file, &server],
    ];
    for command in commands {
        let with = |address: &str| host.run(&[command, &["--bind", address]].concat());
        // TEST-NET-1 (RFC 5737).
        refused(&with("192.0.2.77"), 6, "cannot bind to 192.0.2.77");
        refused(&with("::1"), 2, "has no IPv6 address, which the local address ::1 needs");
        assert_code(&with("nonsense"), 2);
    }
    refused(&host.run(&["test", &target, "-6", "-B", LOCAL]), 2, "which -6 excludes");
    refused(&host.run(&["test", &target, "--local", "192.0.2.77"]), 6, "cannot bind to 192.0.2.77");
    let within = host.run(&["cp", file, "copy", "--bind", LOCAL]);
    refused(&within, 2, "--bind needs another host");
}
