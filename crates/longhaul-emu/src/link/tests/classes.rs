//! Tests of classes of traffic.

use std::net::IpAddr;
use std::time::Duration;

use longhaul_core::plan::link::{Headers, LinkOptions, NO_FILES};

use super::{Run, bulk, plan, us};

fn headers(dscp: u8, port: u16) -> Headers {
    Headers {
        dscp,
        ecn: 0,
        protocol: 17,
        source: IpAddr::from([198, 18, 0, 1]),
        destination: IpAddr::from([198, 18, 0, 2]),
        ports: Some((40_000, port)),
    }
}

/// Returns the plan of some options for all traffic and of classes.
fn classed(options: &[(&str, &str)]) -> longhaul_core::plan::LinkPlan {
    let mut parsed = LinkOptions::default();
    options.iter().for_each(|(name, value)| parsed.set(name, *value).unwrap());
    parsed.plan(NO_FILES).unwrap()
}

#[test]
fn a_class_has_its_own_delay_and_loss_and_shares_the_rate() {
    let plan = classed(&[
        ("delay", "50ms"),
        ("rate", "12M"),
        ("queue", "1s"),
        ("class", "dscp 46: delay 5ms | dport 9: loss 1"),
    ]);
    let mut run = Run::new(&plan);
    for (dscp, port) in [(0, 80), (46, 80), (0, 9), (46, 9), (0, 80)] {
        run.offer_with(us(0), &bulk(1), Some(&headers(dscp, port)));
    }
    let at: Vec<u64> = run.arrivals.iter().map(|a| a.at.as_nanos() / 1_000_000).collect();
    // A segment takes 1 ms of the shared rate; the lost segment takes none. The first class that
    // contains a packet applies.
    assert_eq!(at, [51, 7, 8, 54]);
    assert_eq!(run.missing(), [2]);
}

#[test]
fn a_class_with_a_rate_has_its_own_queue() {
    let plan =
        classed(&[("rate", "12M"), ("queue", "3000B"), ("class", "dport 9: rate 120M; queue 1s")]);
    let mut run = Run::new(&plan);
    for _ in 0..4 {
        run.offer_with(us(0), &bulk(1), Some(&headers(0, 80)));
        run.offer_with(us(0), &bulk(1), Some(&headers(0, 9)));
    }
    assert_eq!(run.missing(), [4, 6], "the queue of other traffic holds two");
    let own: Vec<u64> =
        run.arrivals.iter().filter(|a| a.number % 2 == 1).map(|a| a.at.as_nanos() / 1000).collect();
    assert_eq!(own, [100, 200, 300, 400]);
    assert_eq!(run.model.queue(us(0)).0.get(), 2 * 1500 + 4 * 1500);
}

#[test]
fn a_higher_priority_is_served_first_and_displaces_a_lower_one() {
    let plan = classed(&[
        ("rate", "12M"),
        ("queue", "4p"),
        ("class", "dscp 46: priority 7 | dscp 8: priority 1"),
    ]);
    let mut run = Run::new(&plan);
    // The first segment is being sent; three more have space.
    for dscp in [0, 0, 8, 46, 46, 46] {
        run.offer_with(us(0), &bulk(1), Some(&headers(dscp, 80)));
    }
    run.serve_all();
    let order: Vec<u64> = run.arrivals.iter().map(|a| a.number).collect();
    assert_eq!(order, [0, 3, 4, 5]);
    assert_eq!(run.missing(), [1, 2]);
    assert_eq!(run.model.counts().queue_full.segments, 2);
    let at: Vec<u64> = run.arrivals.iter().map(|a| a.at.as_nanos() / 1_000_000).collect();
    assert_eq!(at, [1, 2, 3, 4]);
}

#[test]
fn an_arriving_segment_waits_only_for_the_one_in_transmission() {
    let plan =
        classed(&[("rate", "12M"), ("queue", "1s"), ("class", "dscp 46: priority 7; delay 2ms")]);
    let mut run = Run::new(&plan);
    for _ in 0..10 {
        run.offer_with(us(0), &bulk(1), Some(&headers(0, 80)));
    }
    run.offer_with(us(2_500), &bulk(1), Some(&headers(46, 80)));
    run.serve_all();
    let urgent = run.arrivals.iter().find(|a| a.number == 10).unwrap();
    assert_eq!(urgent.at, us(3_000 + 1_000 + 2_000));
    assert_eq!(run.arrivals.iter().map(|a| a.at).max(), Some(us(11_000)));
}

#[test]
fn a_change_of_the_link_changes_its_classes() {
    let before = classed(&[("delay", "50ms"), ("class", "dscp 46: loss 1")]);
    let mut options = LinkOptions::default();
    options.set("delay", "10ms").unwrap();
    let after = options.change(&before, NO_FILES).unwrap();
    assert_eq!(after.up.classes[0].link.delay, Duration::from_millis(10));
    assert!(after.up.classes[0].link.loss.is_some());
    let mut run = Run::new(&before);
    run.model.set(us(0), &after);
    for dscp in [0, 46] {
        run.offer_with(us(0), &bulk(1), Some(&headers(dscp, 80)));
    }
    assert_eq!((run.arrivals.len(), run.arrivals[0].at), (1, us(10_000)));
    options.set("class", "dscp 3").unwrap();
    assert!(options.change(&before, NO_FILES).is_err());
}

#[test]
fn random_decisions_of_classes_are_independent() {
    let plan = classed(&[("loss", "0.5"), ("seed", "5"), ("class", "dscp 46")]);
    let mut run = Run::new(&plan);
    for i in 0..2000 {
        run.offer_with(us(i), &bulk(1), Some(&headers(if i % 2 == 0 { 0 } else { 46 }, 80)));
    }
    let lost = run.missing();
    let both = lost.iter().filter(|n| *n % 2 == 0 && lost.contains(&(*n + 1))).count();
    super::assert_share(both, 1000, 0.25);
    let without = plan_loss();
    assert_eq!(lost.iter().filter(|n| *n % 2 == 0).map(|n| n / 2).collect::<Vec<_>>(), without);
}

/// Returns the losses of the same link without classes.
fn plan_loss() -> Vec<u64> {
    let mut run = Run::new(&plan("--loss 0.5 --seed 5"));
    run.offer_many(1000, Duration::from_micros(1), &bulk(1));
    run.missing()
}
