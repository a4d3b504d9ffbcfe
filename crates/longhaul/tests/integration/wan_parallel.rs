//! Parallel links, failover, and routes of topologies.

use std::time::{Duration, Instant};

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
