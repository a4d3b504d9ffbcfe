//! The counters of a pair of Ethernet devices between two network namespaces. The test needs root.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_sys::interface::{Interface, create_pair};
use longhaul_sys::namespace::NetworkNamespace;
use longhaul_watch::{InterfaceSample, Sample, Sampler, SamplerOptions};

const PACKETS: u64 = 500;
/// The payload of a packet, and its size with UDP, IP and Ethernet headers.
const PAYLOAD: usize = 1000;
const FRAME: u64 = 1000 + 8 + 20 + 14;

fn sampler() -> Sampler {
    // A late sample is not a gap here.
    let interval = Duration::from_secs(600);
    Sampler::new(SamplerOptions { interval, ..SamplerOptions::default() }).unwrap()
}

fn of<'a>(sample: &'a Sample, name: &str) -> &'a InterfaceSample {
    sample.interfaces.iter().find(|one| one.name == name).unwrap()
}

fn connect(far: &NetworkNamespace) {
    create_pair("near0", "far0", far.as_fd(), 1500, [2, 0, 0, 0, 0, 1]).unwrap();
    let near = Interface::named("near0").unwrap();
    near.without_multicast().unwrap();
    near.add_address("10.9.0.1".parse().unwrap(), 24).unwrap();
    near.up().unwrap();
}

/// Waits until the kernel has noticed the link; until then it drops packets.
///
/// `running` is too early: it is also set while the state of a new interface is unknown
/// (`netif_oper_up`, include/linux/netdevice.h). The state becomes "up" together with the queue
/// (`linkwatch_do_dev`, net/core/link_watch.c).
fn wait_for_link(name: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while !ip_link(name).contains(" state UP ") {
        assert!(Instant::now() < end, "{name} has no link");
        thread::sleep(Duration::from_millis(10));
    }
}

fn ip_link(name: &str) -> String {
    let shown = Command::new("ip").args(["link", "show", name]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

/// Checks that the packets of the test were counted, and at most a few of IPv6's own.
#[track_caller]
fn assert_counted(packets: u64, bytes: u64) {
    assert!((PACKETS..PACKETS + 50).contains(&packets), "{packets} packets");
    let extra = bytes.checked_sub(PACKETS * FRAME).expect("all bytes are counted");
    assert!(extra <= (packets - PACKETS) * 1514, "{bytes} bytes in {packets} packets");
}

fn send() {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for _ in 0..PACKETS {
        socket.send_to(&[7; PAYLOAD], "10.9.0.2:9").unwrap();
    }
}

#[test]
fn packets_between_two_namespaces_are_counted_on_both_sides() {
    // Namespaces belong to threads.
    thread::spawn(|| {
        let far = NetworkNamespace::enter_new().unwrap();
        let mut far_sampler = sampler();
        let near = NetworkNamespace::enter_new().unwrap();
        connect(&far);
        far.enter().unwrap();
        let other = Interface::named("far0").unwrap();
        other.without_multicast().unwrap();
        other.up().unwrap();
        far_sampler.sample().unwrap();
        near.enter().unwrap();
        wait_for_link("near0");
        let mut near_sampler = sampler();
        near_sampler.sample().unwrap();

        send();
        let sample = near_sampler.sample().unwrap();
        let sent = of(&sample, "near0").change.unwrap();
        assert_counted(sent.out_packets, sent.out_bytes);
        assert!(of(&sample, "near0").running);
        let interval = sample.interval(of(&sample, "near0")).unwrap();
        assert_eq!(interval.counts, sent);

        far.enter().unwrap();
        let sample = far_sampler.sample().unwrap();
        let received = of(&sample, "far0").change.unwrap();
        assert_counted(received.in_packets, received.in_bytes);

        // An interface that is created again counts from zero: a gap, no spike.
        near.enter().unwrap();
        let deleted = Command::new("ip").args(["link", "del", "near0"]).status().unwrap();
        assert!(deleted.success());
        connect(&far);
        let sample = near_sampler.sample().unwrap();
        assert_eq!(of(&sample, "near0").change, None);
        assert!(of(&sample, "near0").totals.out_packets < PACKETS);
        let sample = near_sampler.sample().unwrap();
        assert!(of(&sample, "near0").change.unwrap().out_packets < PACKETS);
    })
    .join()
    .unwrap();
}
