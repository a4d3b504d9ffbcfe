//! Tests of FQ-CoDel and DualPI2.

use std::net::IpAddr;

use longhaul_core::plan::link::Headers;

use super::super::{LinkTime, PacketShape};
use super::{Run, bulk, plan, us};

/// Returns the headers of a flow; `ecn` is its ECN field.
fn flow(port: u16, ecn: u8) -> Headers {
    Headers {
        dscp: 0,
        ecn,
        protocol: 6,
        source: IpAddr::from([198, 18, 0, 1]),
        destination: IpAddr::from([198, 18, 0, 2]),
        ports: Some((port, 5001)),
    }
}

/// Returns the time of the arrival of segment `number`.
fn arrival(run: &Run, number: u64) -> LinkTime {
    run.arrivals.iter().find(|a| a.number == number).unwrap().at
}

#[test]
fn fq_codel_serves_flows_in_turn() {
    // A segment takes 1 ms.
    let mut run = Run::new(&plan("--rate 12M --queue 10s --mtu 1500 --aqm fq-codel:5s:10s"));
    for port in [1, 2, 3] {
        for _ in 0..10 {
            run.offer_with(us(0), &bulk(1), Some(&flow(port, 0)));
        }
    }
    run.serve_all();
    let order: Vec<u64> = run.arrivals.iter().map(|a| a.number).collect();
    // The first flow used its quantum before the others arrived.
    let turns: Vec<u64> = order[1..28].iter().map(|number| number / 10).collect();
    assert_eq!(turns[..6], [1, 2, 0, 1, 2, 0]);
    for flow in 0..3 {
        let own: Vec<_> = order.iter().filter(|number| *number / 10 == flow).collect();
        assert!(own.is_sorted() && own.len() == 10, "flow {flow}: {own:?}");
        let early = turns[..24].iter().filter(|turn| **turn == flow).count();
        assert_eq!(early, 8, "an equal share while all wait");
    }
    assert_eq!(arrival(&run, *order.last().unwrap()), us(30_000));
}

#[test]
fn fq_codel_lets_a_sparse_flow_pass_a_queue() {
    let mut run = Run::new(&plan("--rate 12M --queue 10s --mtu 1500 --aqm fq-codel:5s:10s"));
    for _ in 0..100 {
        run.offer_with(us(0), &bulk(1), Some(&flow(1, 0)));
    }
    for i in 0..5 {
        run.offer_with(us(10_500 + i * 10_000), &bulk(1), Some(&flow(2, 0)));
    }
    run.serve_all();
    for i in 0..5 {
        let waited = arrival(&run, 100 + i).since(us(10_500 + i * 10_000)).as_micros();
        assert!(waited <= 2_500, "{waited}");
    }
}

#[test]
fn fq_codel_drops_from_the_longest_queue() {
    let mut run = Run::new(&plan("--rate 12M --queue 10p --mtu 1500 --aqm fq-codel:5s:10s"));
    for _ in 0..10 {
        run.offer_with(us(0), &bulk(1), Some(&flow(1, 0)));
    }
    for _ in 0..3 {
        run.offer_with(us(0), &bulk(1), Some(&flow(2, 0)));
    }
    run.serve_all();
    assert_eq!(run.missing(), [1, 2, 3], "the first segments of the long queue");
    assert_eq!(run.model.counts().queue_full.segments, 3);
}

/// Offers two flows of one segment per ms each at a rate of one segment per ms for `seconds`.
fn overload(options: &str, ecn: [u8; 2], seconds: u64) -> Run {
    let mut run = Run::new(&plan(options));
    for ms in 0..seconds * 1000 {
        for (port, ecn) in [(1, ecn[0]), (2, ecn[1])] {
            let packet = PacketShape { ecn_capable: ecn != 0, ..bulk(1) };
            run.offer_with(us(ms * 1000), &packet, Some(&flow(port, ecn)));
        }
    }
    run
}

#[test]
fn fq_codel_drops_or_marks_what_waits_too_long() {
    let run = overload("--rate 12M --queue 60s --mtu 1500 --aqm fq-codel", [0, 2], 3);
    let counts = run.model.counts();
    // Both flows get half of the rate, so both queues grow until CoDel acts: the control law has
    // its first drop after 100 ms, and about 400 within 3 s.
    assert!((50..1000).contains(&counts.aqm_dropped.segments), "{counts:?}");
    assert!((50..1000).contains(&counts.marked_ce.segments), "{counts:?}");
    let odd = run.arrivals.iter().filter(|a| a.treatment.mark_ce).all(|a| a.number % 2 == 1);
    assert!(odd, "only the capable flow is marked");
    let dropped = run.model.counts().dropped().segments;
    let waiting = run.model.queue(us(3_000_000)).0.get() / 1500;
    let arrived = run.arrivals.len() as u64;
    assert!(run.offered.abs_diff(dropped + arrived + waiting) <= 1);
}

#[test]
fn dualpi2_keeps_the_delay_of_l4s_traffic_short() {
    let mut run = Run::new(&plan("--rate 12M --queue 60s --mtu 1500 --aqm dualpi2"));
    // 0.9 of the rate as other traffic for a second builds no queue; a burst does.
    for _ in 0..200 {
        run.offer_with(us(0), &bulk(1), Some(&flow(1, 0)));
    }
    let capable = PacketShape { ecn_capable: true, ..bulk(1) };
    for ms in 0..20 {
        run.offer_with(us(ms * 5_000 + 500), &capable, Some(&flow(2, 1)));
    }
    run.serve_all();
    for i in 0..20 {
        let waited = arrival(&run, 200 + i).since(us(i * 5_000 + 500)).as_micros();
        assert!(waited <= 2_500, "{waited} us behind a queue of 200 ms");
    }
    // The queue of 200 ms is above the target, so the controller acts on both queues.
    let counts = run.model.counts();
    assert!(counts.aqm_dropped.segments > 0, "{counts:?}");
}

#[test]
fn dualpi2_marks_l4s_traffic_beyond_a_millisecond_and_limits_its_share() {
    let run = overload("--rate 12M --queue 60s --mtu 1500 --aqm dualpi2", [1, 0], 2);
    let counts = run.model.counts();
    let l4s = run.arrivals.iter().filter(|a| a.number % 2 == 0).count();
    let other = run.arrivals.iter().filter(|a| a.number % 2 == 1).count();
    // The load cannot react, so L4S traffic gets all but a sixteenth, the share of the other queue.
    assert!((l4s + other).abs_diff(2000) < 20, "{l4s} and {other}");
    assert!(other >= 2000 / 16 - 10, "{other}");
    assert!(counts.marked_ce.segments > 500, "{counts:?}");
    assert!(counts.aqm_dropped.segments > 0, "{counts:?}");
}

#[test]
fn an_outage_discards_what_waits() {
    let mut run =
        Run::new(&plan("--rate 12M --queue 10s --aqm fq-codel:5s:10s --outage 5500us+10ms"));
    for _ in 0..10 {
        run.offer_with(us(0), &bulk(1), Some(&flow(1, 0)));
    }
    run.serve_all();
    assert_eq!(run.arrivals.len(), 5);
    assert_eq!(run.model.counts().outage.segments, 5);
    run.offer_with(us(20_000), &bulk(1), Some(&flow(1, 0)));
    run.serve_all();
    assert_eq!(run.arrivals[5].at, us(21_000));
}

#[test]
fn a_change_sends_what_waits_at_the_old_rate() {
    let mut run = Run::new(&plan("--rate 12M --queue 10s --mtu 1500 --aqm fq-codel:5s:10s"));
    for _ in 0..10 {
        run.offer_with(us(0), &bulk(1), Some(&flow(1, 0)));
    }
    let before = run.model.queue(us(3_500));
    run.model.set(us(3_500), &plan("--rate 120M --queue 10s --mtu 1500 --aqm fq-codel:5s:10s"));
    assert_eq!(run.model.queue(us(3_500)), before);
    assert_eq!(before.0.get(), 6 * 1500 + 750);
    run.offer_with(us(3_500), &bulk(1), Some(&flow(2, 0)));
    run.serve_all();
    assert_eq!((arrival(&run, 9), arrival(&run, 10)), (us(10_000), us(10_100)));
}

#[test]
fn later_stages_apply_to_scheduled_segments() {
    let options =
        "--delay 7ms --rate 12M --queue 10s --aqm fq-codel:5s:10s --duplicate 1 --corrupt 1";
    let mut run = Run::new(&plan(options));
    run.offer_with(us(0), &bulk(2), Some(&flow(1, 0)));
    run.serve_all();
    let at: Vec<LinkTime> = run.arrivals.iter().map(|a| a.at).collect();
    assert_eq!(at, [us(8_000), us(8_000), us(9_000), us(9_000)]);
    assert_eq!(run.model.counts().duplicated.segments, 2);
    assert_eq!(run.arrivals.iter().filter(|a| a.treatment.corruption.is_some()).count(), 2);
}
