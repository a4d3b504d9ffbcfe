//! Sites in existing network namespaces.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::topology::Up;
use crate::wan::{assert_code, stderr, stdout};

/// A network namespace with a name, which is removed on drop.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let name = format!("lha{}-{name}", std::process::id());
        let added = Command::new("ip").args(["netns", "add", &name]).output().unwrap();
        assert!(added.status.success(), "{}", stderr(&added));
        Namespace(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).args(words).stdin(Stdio::null());
        command
    }

    /// Returns the interfaces, routes and some settings.
    fn state(&self) -> String {
        let script = "ip -br link; ip route show table all; ip -6 route show; \
                      cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/tcp_rmem \
                      /proc/sys/net/ipv4/conf/default/rp_filter";
        stdout(&self.command(&["sh", "-c", script]).output().unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn text(attach: &str) -> String {
    format!(
        "[[site]]\nname = \"ours\"\n[[site]]\nname = \"theirs\"\nattach = \"{attach}\"\n\
         [[link]]\nbetween = [\"ours\", \"theirs\"]\nrtt = \"10ms\"\n"
    )
}

#[test]
fn a_site_in_a_named_namespace_is_reachable_and_is_left_as_it_was() {
    let namespace = Namespace::new("named");
    let before = namespace.state();
    let up = Up::file("attach", &text(&format!("netns:{}", namespace.0)));
    for family in ["-4", "-6"] {
        assert_code(&up.exec("ours", &["ping", family, "-c", "1", "-W", "9", "-q", "theirs"]), 0);
        let back = up.exec("theirs", &["ping", family, "-c", "1", "-W", "9", "-q", "ours"]);
        assert_code(&back, 0);
    }
    // A process that longhaul did not start, as in a container.
    let back = namespace.command(&["ping", "-c", "1", "-W", "9", "198.18.0.1"]).output().unwrap();
    assert_code(&back, 0);
    let same = up.exec("theirs", &["readlink", "/proc/self/ns/net"]);
    let own = namespace.command(&["readlink", "/proc/self/ns/net"]).output().unwrap();
    assert_eq!(stdout(&same), stdout(&own));
    assert_ne!(namespace.state(), before);
    assert_code(&up.wan("down", &[]), 0);
    let deadline = Instant::now() + Duration::from_secs(30);
    while namespace.state() != before {
        assert!(Instant::now() < deadline, "{} instead of {before}", namespace.state());
    }
}

#[test]
fn a_topology_ends_with_the_process_to_which_a_site_is_attached() {
    let namespace = Namespace::new("process");
    let mut process = namespace.command(&["sleep", "1000"]).spawn().unwrap();
    // `ip netns exec` becomes the command in the namespace; until then it is in that of the test.
    let deadline = Instant::now() + Duration::from_secs(30);
    let name = format!("/proc/{}/comm", process.id());
    while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
        assert!(Instant::now() < deadline);
    }
    let up = Up::file("attached", &text(&format!("netns:{}", process.id())));
    assert_code(&up.exec("ours", &["ping", "-c", "1", "-W", "9", "-q", "theirs"]), 0);
    process.kill().unwrap();
    process.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = up.wan("status", &[]);
        if status.status.code() == Some(1) {
            break;
        }
        assert!(Instant::now() < deadline, "{}", stdout(&status));
    }
}

#[test]
fn a_host_behind_an_interface_is_a_site() {
    let host = Namespace::new("host");
    let port = format!("lhp{}", std::process::id() % 100_000);
    let ip = |words: &[&str]| {
        let output = Command::new("ip").args(words).output().unwrap();
        assert!(output.status.success(), "ip {words:?}: {}", stderr(&output));
    };
    ip(&[
        "link", "add", &port, "mtu", "9000", "type", "veth", "peer", "name", "eth0", "netns",
        &host.0,
    ]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.toml");
    std::fs::write(&file, text(&format!("interface:{port}"))).unwrap();
    let refused = || {
        let words = ["wan", "up", file.to_str().unwrap()];
        let output = Command::new(crate::host::PROGRAM).args(words).output().unwrap();
        assert_code(&output, 6);
        stderr(&output)
    };
    let remedy = format!("{port} is down; bring it up with 'ip link set {port} up'");
    assert_eq!(refused(), format!("longhaul: {remedy}\n"));
    ip(&["link", "set", &port, "up"]);
    let bridge = format!("lhb{}", std::process::id() % 100_000);
    ip(&["link", "add", &bridge, "type", "bridge"]);
    ip(&["link", "set", &port, "master", &bridge]);
    assert!(refused().contains(&format!("{port} belongs to a bridge or bond")));
    ip(&["link", "del", &bridge]);
    for address in ["198.18.0.2/15", "2001:2::2/48"] {
        ip(&["-n", &host.0, "addr", "add", address, "dev", "eth0", "nodad"]);
    }
    ip(&["-n", &host.0, "link", "set", "eth0", "mtu", "9000", "up"]);
    let up = Up::file("edge", &text(&format!("interface:{port}")));
    for family in ["-4", "-6"] {
        let ping = ["ping", family, "-c", "1", "-W", "9", "-q", "theirs"];
        let deadline = Instant::now() + Duration::from_secs(30);
        while !up.exec("ours", &ping).status.success() {
            assert!(Instant::now() < deadline, "no answer with {family}");
        }
    }
    let back = host.command(&["ping", "-c", "1", "-W", "9", "-q", "198.18.0.1"]).output().unwrap();
    assert_code(&back, 0);
    // TCP in both directions, with super-packets.
    let script = "iperf3 -s -1 > /dev/null & echo ready; wait $!";
    let mut server = up.start("ours", script);
    let deadline = Instant::now() + Duration::from_secs(30);
    // The server may not listen yet.
    while !host
        .command(&["iperf3", "-c", "198.18.0.1", "-n", "20M"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        assert!(Instant::now() < deadline, "no connection");
    }
    assert!(server.wait().unwrap().success());
    let inside = up.exec("theirs", &["true"]);
    assert!(stderr(&inside).contains("run the command on that host"), "{}", stderr(&inside));
    // The interface disappears, and the topology ends.
    ip(&["link", "del", &port]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while up.wan("status", &[]).status.code() != Some(1) {
        assert!(Instant::now() < deadline, "the topology is still up");
    }
}

#[test]
fn a_tap_device_is_created_for_a_virtual_machine_and_removed() {
    let tap = format!("lht{}", std::process::id() % 100_000);
    let exists = || std::path::Path::new("/sys/class/net").join(&tap).exists();
    let up = Up::file("tap", &text(&format!("tap:{tap}")));
    assert!(exists());
    assert_code(&up.wan("down", &[]), 0);
    assert!(!exists());
}

#[test]
fn a_namespace_that_does_not_exist_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("missing.toml");
    for (attach, says) in [
        ("netns:no-such-namespace", "cannot attach site theirs to netns:no-such-namespace"),
        ("netns:4194304", "cannot attach site theirs to netns:4194304"),
        ("interface:no-such-if", "cannot use interface no-such-if"),
        ("interface:lo", "lo is not an Ethernet interface"),
    ] {
        std::fs::write(&file, text(attach)).unwrap();
        let output = Command::new(crate::host::PROGRAM)
            .args(["wan", "up", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert_code(&output, 6);
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}
