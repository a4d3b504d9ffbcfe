//! Parallel links, failover, and routes of topologies.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_sys::namespace::NetworkNamespace;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::topology::Up;
use crate::wan::{assert_code, least_ping, stdout};

const SITES: &str = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n";

/// Returns the lowest RTT of three pings in milliseconds, or `None` if no answer came.
fn ping_ms(up: &Up, from: &str, to: &str) -> Option<f64> {
    let output = up.exec(from, &["ping", "-c", "3", "-i", "0.05", "-W", "2", "-q", to]);
    output.status.success().then(|| least_ping(&stdout(&output)))
}

/// Repeats pings until the lowest RTT of some is within 0.5 ms below and 4 ms above `rtt_ms`.
fn assert_rtt(up: &Up, [from, to]: [&str; 2], rtt_ms: f64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let seen = ping_ms(up, from, to);
        if seen.is_some_and(|ms| (rtt_ms - 0.5..rtt_ms + 4.0).contains(&ms)) {
            return;
        }
        assert!(Instant::now() < deadline, "{from} to {to}: {seen:?} instead of {rtt_ms} ms");
    }
}

/// Returns the packets that entered each link in both directions, and its state.
fn entered(up: &Up) -> Vec<([u64; 2], bool)> {
    let packets = |link: &longhaul_core::result::TopologyLinkReport| {
        assert!(link.link.up.is_conserved() && link.link.down.is_conserved(), "{link:?}");
        ([link.link.up.entered.packets, link.link.down.entered.packets], link.down)
    };
    up.status().links.iter().map(packets).collect()
}

#[test]
fn flows_leave_a_parallel_link_that_goes_down_and_return() {
    let text = "failover = \"100ms\"\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n\
                [[link]]\nname = \"one\"\nbetween = [\"a\", \"b\"]\nrtt = \"10ms\"\n\
                [[link]]\nname = \"two\"\nbetween = [\"b\", \"a\"]\nrtt = \"30ms\"\n";
    let up = Up::file("parallel", text);
    // Pings have no ports. The XOR of the addresses is 3, so their hash is 1: the second link.
    assert_rtt(&up, ["a", "b"], 30.0);
    let before = entered(&up);
    assert_eq!(before[0], ([0, 0], false));
    assert!(before[1].0[0] >= 3 && before[1].0[1] >= 3, "{before:?}");

    let down = up.wan("set", &["two", "--down"]);
    assert_code(&down, 0);
    assert!(stdout(&down).contains("two: RTT 30ms, rate unlimited, MTU 9000, down"));
    assert_rtt(&up, ["a", "b"], 10.0);
    let during = entered(&up);
    assert!(during[0].0[0] >= 1 && during[1].1, "{during:?}");
    assert!(stdout(&up.wan("status", &[])).contains("down"), "the table shows the state");

    assert_code(&up.wan("set", &["two", "--up"]), 0);
    assert_rtt(&up, ["a", "b"], 30.0);
    assert!(!entered(&up)[1].1);
}

#[test]
fn packets_take_another_route_while_a_link_is_down() {
    let text = format!(
        "{SITES}[[link]]\nbetween = [\"a\", \"b\"]\nrtt = \"6ms\"\n\
         [[link]]\nbetween = [\"b\", \"c\"]\nrtt = \"10ms\"\n\
         [[link]]\nbetween = [\"a\", \"c\"]\nrtt = \"20ms\"\n"
    );
    let up = Up::file("reroute", &text);
    assert_rtt(&up, ["a", "b"], 6.0);
    assert_code(&up.wan("set", &["a-b", "--down"]), 0);
    assert_rtt(&up, ["a", "b"], 30.0);
    for family in ["-4", "-6"] {
        assert_code(&up.exec("b", &["ping", family, "-c", "1", "-W", "5", "-q", "a"]), 0);
    }
    assert_code(&up.wan("set", &["a-b", "--up"]), 0);
    assert_rtt(&up, ["a", "b"], 6.0);
    // Without any link to it, a site is unreachable, and connecting fails at once.
    assert_code(&up.wan("set", &["a-b", "--down"]), 0);
    assert_code(&up.wan("set", &["a-c", "--down"]), 0);
    let deadline = Instant::now() + Duration::from_secs(30);
    while ping_ms(&up, "b", "a").is_some() {
        assert!(Instant::now() < deadline, "it is still reachable");
    }
}

#[test]
fn stated_routes_may_differ_by_direction() {
    let text = format!(
        "{SITES}[[link]]\nbetween = [\"a\", \"b\"]\nrtt = \"10ms\"\n\
         [[link]]\nbetween = [\"b\", \"c\"]\nrtt = \"10ms\"\n\
         [[link]]\nbetween = [\"a\", \"c\"]\nrtt = \"2ms\"\n\
         [[route]]\nfrom = \"a\"\nto = \"c\"\nvia = [\"b\"]\n"
    );
    let up = Up::file("asymmetric", &text);
    // Half of two links there, and half of one link back.
    assert_rtt(&up, ["a", "c"], 11.0);
    let links = entered(&up);
    assert!(links[0].0[0] >= 3 && links[1].0[0] >= 3 && links[2].0[1] >= 3, "{links:?}");
    assert_eq!((links[0].0[1], links[1].0[1], links[2].0[0]), (0, 0, 0), "{links:?}");
}

/// The flows of a test, each from a separate port.
const FLOWS: usize = 16;

/// Moves the calling thread into the network of a site.
fn enter(site: &Child) {
    let path = format!("/proc/{}/ns/net", site.id());
    NetworkNamespace::open(Path::new(&path)).unwrap().enter().unwrap();
}

/// Sends numbered datagrams of all flows every 2 ms until `ends`, for at most 30 s. Returns the
/// number per flow.
fn send(site: &Child, to: SocketAddr, ends: &AtomicBool) -> u32 {
    enter(site);
    let sockets: Vec<_> = (0..FLOWS).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
    let start = Instant::now();
    let mut sent = 0_u32;
    while !ends.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(30) {
        for (flow, socket) in (0_u8..).zip(&sockets) {
            let [a, b, c, d] = sent.to_be_bytes();
            socket.send_to(&[flow, a, b, c, d], to).unwrap();
        }
        sent += 1;
        let next = start + Duration::from_millis(2) * sent;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    sent
}

/// Returns the numbers of the datagrams of each flow in the order of their arrival, when none has
/// arrived for a second.
fn receive(socket: &UdpSocket) -> Vec<Vec<u32>> {
    let mut flows = vec![Vec::new(); FLOWS];
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // On a busy host the datagrams of a second wait here.
    set_socket_recv_buffer_size_force(socket, 16 << 20).unwrap();
    let mut buffer = [0; 5];
    while socket.recv(&mut buffer).is_ok() {
        let [flow, number @ ..] = buffer;
        flows[usize::from(flow)].push(u32::from_be_bytes(number));
    }
    flows
}

/// Sends flows from `a` to `b` while a link goes down and up again. Returns the number of datagrams
/// per flow, and the arrivals of each flow.
fn flows_during_failover(up: &Up, link: &str) -> (u32, Vec<Vec<u32>>) {
    let [a, b] = ["a", "b"].map(|site| up.start(site, "echo ready; exec sleep 1000"));
    let address = stdout(&up.exec("a", &["getent", "ahostsv4", "b"]));
    let address: IpAddr = address.split_whitespace().next().unwrap().parse().unwrap();
    let ends = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let (ready, bound) = mpsc::channel();
        let (a, b, ends) = (&a, &b, &ends);
        let received = scope.spawn(move || {
            enter(b);
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            ready.send(socket.local_addr().unwrap().port()).unwrap();
            receive(&socket)
        });
        let to = SocketAddr::new(address, bound.recv().unwrap());
        let sent = scope.spawn(move || send(a, to, ends));
        for state in ["--down", "--up"] {
            thread::sleep(Duration::from_millis(400));
            assert_code(&up.wan("set", &[link, state]), 0);
        }
        thread::sleep(Duration::from_millis(600));
        ends.store(true, Ordering::Relaxed);
        (sent.join().unwrap(), received.join().unwrap())
    });
    for mut site in [a, b] {
        let _ = site.kill();
        let _ = site.wait();
    }
    result
}

/// Returns whether datagrams of 40 ms in succession are missing: less than the 100 ms until the
/// failover, and more than a busy host drops.
fn is_cut(arrived: &[u32]) -> bool {
    let mut sorted = arrived.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[1] - pair[0] > 20)
}

#[test]
fn segments_of_a_flow_keep_their_order_except_when_the_flow_moves() {
    let text = "failover = \"100ms\"\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n\
                [[link]]\nname = \"fast\"\nbetween = [\"a\", \"b\"]\nrtt = \"10ms\"\n\
                [[link]]\nname = \"slow\"\nbetween = [\"a\", \"b\"]\nrtt = \"80ms\"\n";
    let up = Up::file("order", text);
    assert_rtt(&up, ["a", "b"], 80.0);
    for link in ["slow", "fast"] {
        let (sent, flows) = flows_during_failover(&up, link);
        let mut moved = 0;
        let mut late = 0;
        for arrived in flows {
            // The first datagram that overtook others. From it on, the flow is on the fast link.
            let is_overtaker =
                |at: &usize| arrived[*at..].iter().any(|number| *number < arrived[*at]);
            let overtaker = (0..arrived.len()).find(is_overtaker).map(|at| arrived[at]);
            let (before, after): (Vec<u32>, Vec<u32>) = arrived
                .iter()
                .copied()
                .partition(|number| overtaker.is_none_or(|first| *number < first));
            assert!(before.is_sorted() && after.is_sorted(), "{link}: {arrived:?}");
            assert!(arrived.len() > sent as usize / 2, "{link}: {} of {sent}", arrived.len());
            if is_cut(&arrived) {
                moved += 1;
            } else {
                // The link of this flow stayed up.
                assert_eq!(overtaker, None, "{link}: {arrived:?}");
            }
            // Only the return to a faster link lets datagrams overtake others.
            assert!(overtaker.is_none() || link == "fast", "{link}: {arrived:?}");
            late += usize::from(overtaker.is_some());
        }
        assert!((1..FLOWS).contains(&moved), "{moved} flows left {link}");
        assert!(link == "slow" || late > 0, "no flow returned to {link}");
    }
}
