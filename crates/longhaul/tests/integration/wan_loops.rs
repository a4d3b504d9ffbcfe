//! Loops of bridges and topologies, which are refused.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_sys::ethernet_socket::{EthernetSocket, MAX_ETHERNET_FRAME};
use longhaul_sys::namespace::NetworkNamespace;
use longhaul_sys::poll::readable;

use crate::host::PROGRAM;
use crate::wan::{assert_code, stderr, stdout};
use crate::wan_bridge::{Boxes, ip};

/// Creates a pair of interfaces in one box, which are up.
fn pair(boxes: &Boxes, [one, other]: [&str; 2]) {
    boxes.ip("box", &["link", "add", one, "type", "veth", "peer", "name", other]);
    boxes.ip("box", &["link", "set", one, "up"]);
    boxes.ip("box", &["link", "set", other, "up"]);
}

/// Returns whether an interface is up and promiscuous, and its MTU.
fn settings(boxes: &Boxes, name: &str) -> (bool, bool, String) {
    let shown = stdout(&boxes.ip("box", &["-o", "link", "show", name]));
    let words: Vec<&str> = shown.split_whitespace().collect();
    let flags: Vec<&str> = words[2].trim_matches(['<', '>']).split(',').collect();
    (flags.contains(&"UP"), flags.contains(&"PROMISC"), words[4].to_owned())
}

#[test]
fn a_bridge_that_would_close_a_loop_of_bridges_is_refused() {
    let boxes = Boxes::new();
    for ends in [["p1", "p2"], ["q1", "q2"], ["r1", "r2"], ["s1", "s2"]] {
        pair(&boxes, ends);
    }
    // '--fix' raises the MTU of the other interfaces, and brings this one up.
    boxes.ip("box", &["link", "set", "q2", "mtu", "9000", "down"]);
    let refused = |near: &str, far: &str| {
        let before = [near, far].map(|name| settings(&boxes, name));
        let ring = boxes.name("ring");
        let output = boxes.refused(&[near, far, "--fix", "--rtt", "1ms", "--name", &ring]);
        assert_code(&output, 2);
        let says = format!("{near} and {far} are already connected, and a link between them would");
        assert!(stderr(&output).contains(&says), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert_eq!([near, far].map(|name| settings(&boxes, name)), before);
    };
    let bridge = boxes.bridge_in("box", ["p1", "q1"], &["--delay", "1s"]);
    refused("p2", "q2");
    refused("q2", "p2");
    boxes.ip("box", &["link", "set", "q2", "up"]);
    // A chain of three bridges is no loop, and another bridge would close it.
    let second = boxes.bridge_in("box", ["q2", "r1"], &["--rtt", "1ms"]);
    refused("r2", "p2");
    let third = boxes.bridge_in("box", ["r2", "s1"], &["--rtt", "1ms"]);
    refused("p2", "s2");
    drop((second, third));
    // The same with a bridge of the kernel at each side.
    for (kernel, ports) in [("br1", ["p2", "r2"]), ("br2", ["q2", "s2"])] {
        boxes.ip("box", &["link", "add", kernel, "up", "type", "bridge"]);
        for port in ports {
            boxes.ip("box", &["link", "set", port, "master", kernel]);
        }
    }
    refused("r1", "s1");
    // Interfaces that no loop connects.
    boxes.ip("box", &["link", "set", "s2", "nomaster"]);
    drop(boxes.bridge_in("box", ["r1", "s1"], &["--rtt", "1ms"]));
    boxes.ip("box", &["link", "set", "s2", "master", "br2"]);
    drop(bridge);
    drop(boxes.bridge_in("box", ["r1", "s1"], &["--rtt", "1ms"]));
}

#[test]
fn a_loop_that_consists_of_vlans_is_refused() {
    let boxes = Boxes::new();
    for ends in [["p1", "p2"], ["q1", "q2"]] {
        pair(&boxes, ends);
    }
    let add = ["link", "add", "link", "p1", "name", "v0", "type", "vlan", "id", "7"];
    let added = Command::new("ip").args(["-n", &boxes.name("box")]).args(add).output().unwrap();
    // A kernel without CONFIG_VLAN_8021Q. The unit tests of loops and link facts still apply.
    if stderr(&added).contains("Unknown device type") {
        return;
    }
    for (beneath, id) in [("p1", "100"), ("p2", "100"), ("p2", "200"), ("q1", "200")] {
        let name = format!("{beneath}.{id}");
        boxes.ip(
            "box",
            &["link", "add", "link", beneath, "name", &name, "up", "type", "vlan", "id", id],
        );
    }
    let refused = |near: &str, far: &str| {
        let words = [near, far, "--rtt", "1ms", "--name", &boxes.name("ring")];
        let output = boxes.refused(&words);
        assert_code(&output, 2);
        let says = format!("{near} and {far} are already connected");
        assert!(stderr(&output).contains(&says), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    };
    refused("p1", "p1.100");
    refused("p1.100", "p2.100");
    refused("p1", "p2.200");
    // Two VLANs of one interface or of the ends of a pair.
    drop(boxes.bridge_in("box", ["p2.100", "p2.200"], &["--rtt", "1ms"]));
    drop(boxes.bridge_in("box", ["p1.100", "p2.200"], &["--rtt", "1ms"]));
    // A bridge between VLANs connects their parent interfaces.
    let _bridge = boxes.bridge_in("box", ["p2.200", "q1.200"], &["--rtt", "1ms"]);
    refused("p1", "q2");
}

#[test]
fn a_loop_through_another_host_is_found_by_probes() {
    let boxes = Boxes::new();
    for (here, there) in [("m1", "m2"), ("n1", "n2")] {
        let (middle, host) = (boxes.name("box"), boxes.name("a"));
        ip(&[
            "link", "add", here, "netns", &middle, "type", "veth", "peer", "name", there, "netns",
            &host,
        ]);
        boxes.ip("box", &["link", "set", here, "up"]);
        boxes.ip("a", &["link", "set", there, "up"]);
    }
    let refused = |place: &str, near: &str, far: &str| {
        let words = ["wan", "bridge", near, far, "--name", &boxes.name("ring")];
        let output = boxes.command(place, PROGRAM, &words).output().unwrap();
        assert_code(&output, 2);
        let says = format!("{near} and {far} are already connected");
        assert!(stderr(&output).contains(&says), "{}", stderr(&output));
    };
    // The other host forwards with a bridge of the kernel.
    boxes.ip("a", &["link", "add", "br0", "up", "type", "bridge"]);
    for port in ["m2", "n2"] {
        boxes.ip("a", &["link", "set", port, "master", "br0"]);
    }
    refused("box", "m1", "n1");
    boxes.ip("a", &["link", "del", "br0"]);
    // It forwards with a bridge of longhaul.
    let bridge = boxes.bridge_in("a", ["m2", "n2"], &["--rtt", "10ms"]);
    refused("box", "m1", "n1");
    drop(bridge);
    // Its link has a longer delay than the start takes.
    let _bridge = boxes.bridge_in("a", ["m2", "n2"], &["--delay", "400ms"]);
    let words = ["wan", "bridge", "m1", "n1", "--name", &boxes.name("ring")];
    let output = boxes.command("box", PROGRAM, &words).output().unwrap();
    assert_code(&output, 2);
    let says = "a loop probe from m1 or n1 arrived at the other interface";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

#[test]
fn sites_behind_connected_interfaces_are_refused() {
    let [one, other] = ["lhx", "lhy"].map(|name| format!("{name}{}", std::process::id() % 100_000));
    ip(&["link", "add", &one, "type", "veth", "peer", "name", &other]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loop.toml");
    let text = format!(
        "[[site]]\nname = \"a\"\nattach = \"interface:{one}\"\n\
         [[site]]\nname = \"b\"\nattach = \"interface:{other}\"\n\
         [[link]]\nbetween = [\"a\", \"b\"]\nrtt = \"10ms\"\n"
    );
    std::fs::write(&file, text).unwrap();
    for port in [&one, &other] {
        ip(&["link", "set", port, "up"]);
    }
    let words = ["wan", "up", file.to_str().unwrap()];
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    ip(&["link", "del", &one]);
    assert_code(&output, 2);
    let says = format!("{one} and {other} are already connected");
    assert!(stderr(&output).contains(&says), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

/// Returns sockets on the interfaces of both hosts.
fn sockets(boxes: &Boxes) -> [EthernetSocket; 2] {
    let namespaces = ["a", "b"].map(|name| format!("/run/netns/{}", boxes.name(name)));
    let opened = thread::spawn(move || {
        namespaces.map(|path| {
            NetworkNamespace::open(Path::new(&path)).unwrap().enter().unwrap();
            EthernetSocket::open(longhaul_sys::interface::index("eth0").unwrap()).unwrap()
        })
    });
    opened.join().unwrap()
}

/// Returns the next probe that arrives at a host, with its virtio-net header.
fn probe(socket: &EthernetSocket) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut buffer = vec![0; MAX_ETHERNET_FRAME];
    loop {
        assert!(Instant::now() < deadline, "no probe arrives");
        match socket.read(&mut buffer) {
            Ok(length) if buffer[22..length].starts_with(b"\x88\xb5longhaul loop probe") => {
                return buffer[..length].to_vec();
            }
            Ok(_) => {}
            Err(_) => drop(readable(socket.as_fd(), Duration::from_millis(100))),
        }
    }
}

#[test]
fn a_host_at_one_side_cannot_end_a_bridge_with_probes() {
    let boxes = Boxes::new();
    let [a, b] = sockets(&boxes);
    let mut bridge = boxes.bridge_in("box", ["eth1", "eth2"], &["--rtt", "1ms"]);
    let probes = [probe(&a), probe(&b)];
    assert_ne!(probes[0], probes[1]);
    // Each host returns the probe that it received.
    for (socket, frame) in [(&a, &probes[0]), (&b, &probes[1])] {
        socket.write(&[IoSlice::new(frame)]).unwrap();
    }
    // Foreign frames of the same type.
    let mut foreign = probes[0].clone();
    foreign.iter_mut().skip(10 + 14 + 20).for_each(|byte| *byte ^= 0x55);
    b.write(&[IoSlice::new(&foreign)]).unwrap();
    // The next probe of the bridge, five seconds later.
    while probe(&a) != probes[0] {}
    assert_code(&bridge.wan("status", &[]), 0);
    // The probe of one host at the other one is a loop, which was not there at the start.
    b.write(&[IoSlice::new(&probes[0])]).unwrap();
    assert_eq!(bridge.wait(), Some(1));
}
