//! `longhaul wan bridge`: a box between two hosts, each a network namespace.

use std::io::{BufRead, BufReader, IoSlice};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::LinkReport;
use longhaul_sys::ethernet_socket::{EthernetSocket, MAX_ETHERNET_FRAME};
use longhaul_sys::namespace::NetworkNamespace;
use longhaul_sys::poll::readable;
use rustix::process::{Pid, Signal, kill_process};

use crate::host::PROGRAM;
use crate::wan::{assert_code, least_ping, stderr, stdout};

/// Three boxes: `a` and `b` have an interface `eth0` each; `box` has `eth1` toward `a` and `eth2`
/// toward `b`.
pub(crate) struct Boxes {
    prefix: String,
}

impl Boxes {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let boxes = Boxes { prefix: format!("lhb{}-{number}", std::process::id()) };
        for name in ["a", "b", "box"] {
            ip(&["netns", "add", &boxes.name(name)]);
        }
        for (name, interface, address) in [("a", "eth1", "10.77.0.1"), ("b", "eth2", "10.77.0.2")] {
            let (host, middle) = (boxes.name(name), boxes.name("box"));
            ip(&[
                "link", "add", "eth0", "netns", &host, "mtu", "9000", "type", "veth", "peer",
                "name", interface, "netns", &middle, "mtu", "9000",
            ]);
            boxes.ip(name, &["addr", "add", &format!("{address}/24"), "dev", "eth0"]);
            let ipv6 = format!("fd00:77::{}/64", &address[8..]);
            boxes.ip(name, &["addr", "add", &ipv6, "dev", "eth0", "nodad"]);
            boxes.ip(name, &["link", "set", "eth0", "up"]);
            boxes.ip("box", &["link", "set", interface, "up"]);
        }
        boxes
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Runs an iperf3 server on b and a client with `arguments` on a. Returns the output of the client.
    pub(crate) fn iperf3(&self, arguments: &[&str]) -> Output {
        let mut server = self
            .command("b", "iperf3", &["-s", "-1", "--forceflush"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("Server listening")));
        let arguments = [&["-c", "10.77.0.2"], arguments].concat();
        let client = self.command("a", "iperf3", &arguments).output().unwrap();
        assert_code(&client, 0);
        lines.for_each(drop);
        server.wait().unwrap();
        client
    }

    pub(crate) fn ip(&self, name: &str, arguments: &[&str]) -> Output {
        ip(&[&["-n", &self.name(name)], arguments].concat())
    }

    /// Returns a command in one of the boxes.
    pub(crate) fn command(&self, name: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(name), program]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// Returns the output of `wan bridge` that is expected to fail.
    pub(crate) fn refused(&self, arguments: &[&str]) -> Output {
        self.command("box", PROGRAM, &[&["wan", "bridge"], arguments].concat()).output().unwrap()
    }

    /// Starts the bridge of `box` and waits until it forwards.
    pub(crate) fn bridge(&self, arguments: &[&str]) -> Bridge {
        self.bridge_in("box", ["eth1", "eth2"], arguments)
    }

    /// Starts a bridge in one of the boxes and waits until it forwards.
    pub(crate) fn bridge_in(
        &self,
        name: &str,
        [near, far]: [&str; 2],
        arguments: &[&str],
    ) -> Bridge {
        let place = name;
        let name = self.name(&format!("bridge-{near}"));
        let words = [&["wan", "bridge", near, far, "--name", &name], arguments].concat();
        let mut child =
            self.command(place, PROGRAM, &words).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut notes = Vec::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {notes:?}")).unwrap();
            notes.push(line);
            if notes.last().is_some_and(|line| line.contains("bridging")) {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Bridge { child, name, notes }
    }

    /// Gives `eth1` an address and a route, and `eth2` another MTU.
    pub(crate) fn falsify(&self) {
        self.ip("box", &["addr", "add", "10.79.0.1/24", "dev", "eth1"]);
        self.ip("box", &["route", "add", "10.80.0.0/24", "via", "10.79.0.9", "dev", "eth1"]);
        self.ip("box", &["link", "set", "eth2", "mtu", "1500"]);
    }

    /// Returns whether `eth2` is up, its MTU, and the addresses and routes of `eth1`.
    pub(crate) fn state(&self) -> (Option<bool>, Option<String>, String, String) {
        let show = |words: &[&str]| stdout(&self.ip("box", words));
        let link = show(&["-o", "link", "show", "eth2"]);
        let flags = link.split_whitespace().nth(2).map(|flags| flags.contains("UP"));
        let mtu = link.split("mtu ").nth(1).map(|rest| rest[..4].to_owned());
        (flags, mtu, show(&["-4", "-br", "addr", "show", "eth1"]), show(&["-4", "route", "show"]))
    }

    fn ping(&self, arguments: &[&str]) -> Output {
        let words = [&["-c", "3", "-i", "0.05", "-W", "2", "-q"], arguments].concat();
        self.command("a", "ping", &words).output().unwrap()
    }

    /// Pings until the lowest RTT of some is at least `rtt_ms` and at most 4 ms more.
    fn assert_rtt(&self, arguments: &[&str], rtt_ms: f64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let output = self.ping(arguments);
            let seen = output.status.success().then(|| least_ping(&stdout(&output)));
            if seen.is_some_and(|ms| (rtt_ms..rtt_ms + 4.0).contains(&ms)) {
                return;
            }
            assert!(Instant::now() < deadline, "{seen:?} instead of {rtt_ms} ms");
        }
    }
}

impl Drop for Boxes {
    fn drop(&mut self) {
        for name in ["a", "b", "box"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(name)]).status();
        }
    }
}

/// A running bridge, which is killed on drop.
pub(crate) struct Bridge {
    pub(crate) child: Child,
    pub(crate) name: String,
    /// The lines that it printed until it forwarded.
    pub(crate) notes: Vec<String>,
}

impl Bridge {
    pub(crate) fn wan(&self, command: &str, arguments: &[&str]) -> Output {
        let words = [&["wan", command, "--name", &self.name], arguments].concat();
        Command::new(PROGRAM).args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// Waits for the end, and returns the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Removes the files of a killed bridge.
        self.wan("down", &[]);
    }
}

pub(crate) fn ip(arguments: &[&str]) -> Output {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", stderr(&output));
    output
}

/// Sends frames of an experimental protocol from `a`, without and with VLAN tags, and checks that `b`
/// receives them unchanged.
fn assert_frames_pass(boxes: &Boxes) {
    let namespaces = ["a", "b"].map(|name| format!("/run/netns/{}", boxes.name(name)));
    let passed = std::thread::spawn(move || {
        let [a, b] = namespaces.map(|path| {
            NetworkNamespace::open(Path::new(&path)).unwrap().enter().unwrap();
            EthernetSocket::open(longhaul_sys::interface::index("eth0").unwrap()).unwrap()
        });
        let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0x60, 7], &[0x88, 0xa8, 0, 5, 0x81, 0, 0x60, 7]];
        for (number, tags) in (1..).zip(tags) {
            // A virtio-net header, addresses, tags, a type for experiments (IEEE 802) and data.
            let head = [&[0; 10][..], &[0xff; 6], &[2, 0, 0, 0, 0, number], tags, &[0x88, 0xb5]];
            let frame = [&head.concat()[..], &[number; 3000]].concat();
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut buffer = vec![0; MAX_ETHERNET_FRAME];
            let mut sent = None;
            loop {
                assert!(Instant::now() < deadline, "frame {number} does not arrive");
                if sent.is_none_or(|at: Instant| at.elapsed() > Duration::from_secs(1)) {
                    a.write(&[IoSlice::new(&frame)]).unwrap();
                    sent = Some(Instant::now());
                }
                match b.read(&mut buffer) {
                    Ok(length) if buffer[10..length] == frame[10..] => break,
                    Ok(_) => {}
                    Err(_) => drop(readable(b.as_fd(), Duration::from_millis(100))),
                }
            }
        }
    });
    passed.join().unwrap();
}

#[test]
fn a_bridge_between_two_hosts_delays_every_kind_of_frame_and_counts_segments() {
    let boxes = Boxes::new();
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut bridge = boxes.bridge(&["--rtt", "20ms", "--json-report", report.to_str().unwrap()]);
    boxes.assert_rtt(&["10.77.0.2"], 20.0);
    boxes.assert_rtt(&["-6", "fd00:77::2"], 20.0);
    // Jumbo frames.
    assert_code(&boxes.ping(&["-M", "do", "-s", "8972", "10.77.0.2"]), 0);
    assert_frames_pass(&boxes);

    boxes.iperf3(&["-n", "40M"]);

    let changed = bridge.wan("set", &["link", "--rtt", "40ms"]);
    assert_code(&changed, 0);
    boxes.assert_rtt(&["10.77.0.2"], 40.0);
    assert_code(&bridge.wan("set", &["link", "--down"]), 0);
    assert_eq!(boxes.ping(&["10.77.0.2"]).status.code(), Some(1), "nothing arrives");
    assert!(stdout(&bridge.wan("status", &[])).contains("down"));
    let site = bridge.wan("exec", &["near", "--", "true"]);
    assert!(stderr(&site).contains("a bridge has no sites"), "{}", stderr(&site));

    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let report: LinkReport =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).expect("a report");
    for way in [&report.up, &report.down] {
        assert!(way.is_conserved(), "{way:?}");
        assert_eq!(way.dropped, Default::default());
    }
    assert!(report.up.delivered.bytes > 40 << 20, "{:?}", report.up.delivered);
    // The kernel passed super-packets, and each of their segments is counted.
    assert!(report.up.delivered.segments > 4600, "{:?}", report.up.delivered);
    assert!(report.up.delivered.packets < report.up.delivered.segments, "{:?}", report.up);
}

#[test]
fn settings_that_falsify_the_link_are_named_fixed_and_restored() {
    let boxes = Boxes::new();
    boxes.falsify();
    let state = || boxes.state();
    let warned = boxes.bridge(&["--rtt", "1ms"]);
    assert!(warned.notes.iter().any(|line| line.contains("routes on eth1")), "{:?}", warned.notes);
    assert!(warned.notes.iter().any(|line| line.contains("the MTUs differ")), "{:?}", warned.notes);
    drop(warned);

    boxes.ip("box", &["link", "set", "eth2", "down"]);
    let before = state();
    assert!(before.2.contains("10.79.0.1/24") && before.3.contains("10.80.0.0/24"), "{before:?}");
    // `wan down` returns when the settings are restored.
    let bridge = boxes.bridge(&["--rtt", "1ms", "--fix"]);
    assert_ne!(state(), before);
    assert_code(&bridge.wan("down", &[]), 0);
    assert_eq!(state(), before);
    for kill in [Signal::INT, Signal::KILL] {
        let mut bridge = boxes.bridge(&["--rtt", "1ms", "--fix"]);
        assert_eq!(bridge.notes.len(), 1, "nothing to warn of: {:?}", bridge.notes);
        let during = state();
        assert_eq!((during.0, during.1.as_deref()), (Some(true), Some("9000")));
        assert!(!during.2.contains("10.79") && during.3.is_empty(), "{during:?}");
        boxes.assert_rtt(&["10.77.0.2"], 1.0);
        bridge.signal(kill);
        let deadline = Instant::now() + Duration::from_secs(30);
        while state() != before {
            assert!(Instant::now() < deadline, "{:?} instead of {before:?}", state());
        }
    }
}

#[test]
fn unsuitable_interfaces_are_refused_in_one_sentence() {
    let boxes = Boxes::new();
    boxes.ip("box", &["link", "add", "one", "type", "veth", "peer", "name", "two"]);
    boxes.ip("box", &["link", "add", "br0", "type", "bridge"]);
    boxes.ip("box", &["link", "add", "port", "type", "veth", "peer", "name", "port-peer"]);
    boxes.ip("box", &["link", "set", "port", "master", "br0", "up"]);
    // Two pairs, one end of each in the same bridge.
    for pair in ["left", "right"] {
        let inner = format!("{pair}-inner");
        boxes.ip("box", &["link", "add", pair, "type", "veth", "peer", "name", &inner]);
        boxes.ip("box", &["link", "set", &inner, "master", "br0", "up"]);
        boxes.ip("box", &["link", "set", pair, "up"]);
    }
    let refused = |near: &str, far: &str, code: u8, says: &str| {
        let output = boxes.refused(&[near, far, "--rtt", "1ms"]);
        assert_code(&output, code.into());
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    };
    refused("eth1", "eth9", 6, "cannot use interface eth9");
    refused("eth1", "eth1", 2, "not eth1 to itself");
    refused("one", "two", 2, "one and two are already connected");
    refused("left", "right", 2, "left and right are already connected");
    refused("left", "br0", 2, "left and br0 are already connected");
    refused("eth1", "lo", 2, "lo is not an Ethernet interface");
    refused("eth1", "port", 2, "port belongs to a bridge or bond");
    refused("eth1", "one", 2, "one is down; bring it up with 'ip link set one up', or give --fix");
    boxes.ip("box", &["addr", "add", "10.79.0.1/24", "dev", "eth1"]);
    boxes.ip("box", &["route", "add", "default", "via", "10.79.0.9"]);
    refused("eth1", "eth2", 2, "eth1 carries the default route of this host");
    let mut bridge = boxes.bridge(&["--rtt", "1ms", "--yes-i-know"]);
    // The interface disappears while the bridge runs.
    boxes.ip("box", &["link", "del", "eth2"]);
    assert_eq!(bridge.child.wait().unwrap().code(), Some(1));
}

#[test]
fn an_interface_belongs_to_one_bridge_at_a_time() {
    let boxes = Boxes::new();
    let bridge = boxes.bridge(&["--rtt", "1ms"]);
    let other = boxes.name("other");
    for ends in [["eth1", "eth2"], ["eth2", "eth1"]] {
        let output = boxes.refused(&[&ends[..], &["--name", &other]].concat());
        assert_code(&output, 6);
        let said = stderr(&output);
        let last = said.lines().last().unwrap();
        assert!(last.contains("is in use by another bridge"), "{said}");
    }
    // The refused attempts have not changed the bridge, and its end frees the interfaces.
    boxes.assert_rtt(&["10.77.0.2"], 1.0);
    drop(bridge);
    drop(boxes.bridge(&["--rtt", "1ms"]));
    let output = boxes.refused(&["eth1", "eth2", "--mtu", "9000"]);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("a bridge has the MTU of its interfaces"));
}

#[test]
fn a_bridge_captures_frames_with_their_ethernet_headers() {
    let boxes = Boxes::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("frames.pcapng");
    let pcap = file.to_str().unwrap();
    let lost = "icmp: loss-pattern 2";
    let mut bridge = boxes.bridge(&["--rtt", "2ms", "--up-class", lost, "--pcap", pcap]);
    let ping = ["-4", "-c", "3", "-i", "0.2", "-W", "5", "10.77.0.2"];
    let output = boxes.command("a", "ping", &ping).output().unwrap();
    assert!(stdout(&output).contains("2 received"), "{}", stdout(&output));
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let dump = Command::new("tcpdump").args(["-e", "-n", "-r", pcap, "icmp"]).output().unwrap();
    assert_code(&dump, 0);
    let lines = stdout(&dump);
    assert!(lines.contains("ethertype IPv4"), "{lines}");
    assert_eq!(lines.matches("echo request").count(), 3 + 1 + 2, "{lines}");
    assert_eq!(lines.matches("echo reply").count(), 2 + 2, "{lines}");
    let output = boxes.refused(&["eth1", "eth2", "--pcap", "/nowhere/at/all.pcapng"]);
    assert_code(&output, 5);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}
