//! Tests of outages and of links that change while they run.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_core::plan::link::{LinkOptions, NO_FILES};
use longhaul_core::plan::{LinkPlan, Side};
use proptest::prelude::*;

use super::super::{LinkModel, LinkTime, PacketShape};
use super::{Run, bulk, plan, plan_with_file, us};

#[test]
fn an_outage_drops_arriving_and_waiting_segments_only() {
    // A segment takes 12 ms; the link is down from 1 s to 1.5 s.
    let mut run = Run::new(&plan("--delay 100ms --rate 1M --queue 60s --outage 1s+500ms"));
    run.offer(us(900_000), &bulk(20));
    // Eight segments were sent before the outage; they are on the path and arrive.
    assert_eq!(run.arrivals.len(), 8);
    assert_eq!(run.arrivals[7].at, us(900_000 + 96_000 + 100_000));
    run.offer(us(1_200_000), &bulk(5));
    assert_eq!(run.arrivals.len(), 8);
    // The queue is empty when the link comes back.
    run.offer(us(1_500_000), &bulk(1));
    assert_eq!(run.arrivals[8].at, us(1_500_000 + 12_000 + 100_000));
    assert_eq!(run.model.counts().outage.segments, 17);
}

#[test]
fn outages_repeat() {
    let mut run = Run::new(&plan("--outage 10ms+5ms/20ms,100ms+50ms"));
    run.offer_many(200, Duration::from_millis(1), &bulk(1));
    let missing = run.missing();
    let expected: Vec<u64> =
        (0..200).filter(|ms| ms % 20 / 5 == 2 || (100..150).contains(ms)).collect();
    assert_eq!(missing, expected);
}

#[test]
fn a_change_keeps_the_times_of_earlier_segments_and_the_order() {
    let slow = plan("--delay 100ms --rate 12M --queue 60s");
    let mut run = Run::new(&slow);
    run.offer(us(0), &bulk(10));
    let mut options = LinkOptions::default();
    options.set("rate", "120M").unwrap();
    options.set("delay", "10ms").unwrap();
    let fast = options.change(&slow, NO_FILES).unwrap();
    run.model.set(us(5_000), &fast);
    run.offer(us(5_000), &bulk(1));
    run.offer(us(200_000), &bulk(1));
    let ms: Vec<f64> =
        run.arrivals.iter().map(|arrival| arrival.at.as_nanos() as f64 / 1e6).collect();
    assert_eq!(ms[..10], [101., 102., 103., 104., 105., 106., 107., 108., 109., 110.]);
    assert_eq!(ms[10..], [110., 210.1], "behind those before; then at the new rate");
}

/// Changes `run` to `options`, and checks that the waiting bytes and their time stay the same.
#[track_caller]
fn change(run: &mut Run, now: LinkTime, options: &LinkPlan) {
    let before = run.model.queue(now);
    run.model.set(now, options);
    assert_eq!(run.model.queue(now), before);
}

#[test]
fn a_raised_rate_admits_what_fits_beside_the_waiting_bytes() {
    for limit in ["800kB", "700ms"] {
        let mut run = Run::new(&plan(&format!("--rate 10M --queue {limit}")));
        run.offer_many(500, Duration::ZERO, &bulk(1));
        assert_eq!(run.model.queue(us(0)).0.get(), 750_000);
        change(&mut run, us(120_000), &plan(&format!("--rate 1G --queue {limit}")));
        // 10 Mb/s have sent 150 kB, and send the rest until 600 ms.
        for _ in 0..100 {
            run.offer(us(120_000), &bulk(1));
        }
        assert_eq!(run.model.counts().queue_full.segments, 0, "{limit}");
        assert_eq!(run.arrivals[599].at, us(600_000 + 100 * 12));
        assert_eq!(run.model.queue(us(120_000)).0.get(), 750_000);
        assert_eq!(run.model.queue(us(360_000)).0.get(), 450_000);
        assert_eq!(run.model.queue(us(600_600)).0.get(), 75_000);
    }
}

#[test]
fn a_lowered_rate_counts_the_waiting_bytes_in_full() {
    let mut run = Run::new(&plan("--rate 1G --queue 800kB"));
    run.offer_many(500, Duration::ZERO, &bulk(1));
    change(&mut run, us(0), &plan("--rate 10M --queue 800kB"));
    // 50 kB of the queue are free, which is 33 segments.
    for _ in 0..100 {
        run.offer(us(0), &bulk(1));
    }
    assert_eq!((run.arrivals.len(), run.missing().len()), (533, 67));
    assert_eq!(run.model.queue(us(0)).0.get(), 533 * 1500);
    assert_eq!(run.arrivals[532].at, us(6_000 + 33 * 1_200));
}

#[test]
fn bytes_wait_through_a_pause_an_outage_and_the_removal_of_the_rate() {
    let steps = plan_with_file("--rate-trace t --queue 60s", "0 12M\n10ms 0\n1s 12M");
    let mut run = Run::new(&plan("--rate 12M --queue 60s"));
    run.offer_many(10, Duration::ZERO, &bulk(1));
    change(&mut run, us(5_000), &steps);
    run.offer(us(5_000), &bulk(1));
    // The segments of the first plan keep their times; the next one waits for the end of the pause.
    assert_eq!([run.arrivals[9].at, run.arrivals[10].at], [us(10_000), us(1_001_000)]);
    assert_eq!(run.model.queue(us(500_000)).0.get(), 1500);
    change(&mut run, us(500_000), &plan("--delay 0ms"));
    run.offer(us(500_000), &bulk(1));
    assert_eq!(run.arrivals[11].at, us(1_001_000), "the order is kept");
    change(&mut run, us(600_000), &plan("--rate 1M --queue 2kB"));
    run.offer(us(600_000), &bulk(1));
    assert_eq!(run.model.counts().queue_full.segments, 1, "1500 of 2000 bytes wait");

    // An outage at 50 ms discards the bytes that wait then, under any later plan.
    let mut cut = Run::new(&plan("--rate 1M --queue 60s --outage 50ms+10ms"));
    cut.offer_many(10, Duration::ZERO, &bulk(1));
    assert_eq!((cut.arrivals.len(), cut.model.counts().outage.segments), (4, 6));
    change(&mut cut, us(20_000), &plan("--rate 2M --queue 60s"));
    assert_eq!(cut.model.queue(us(49_999)).0.get(), 15_000 - 6_250);
    assert_eq!(cut.model.queue(us(50_000)).0.get(), 0);
    cut.offer(us(20_000), &bulk(1));
    assert_eq!(cut.arrivals[4].at, us(56_000));
}

#[test]
fn a_change_of_one_stage_keeps_the_state_of_others() {
    let before = plan("--loss 0.01 --seed 1 --duplicate 0.01");
    let after = plan("--loss 0.01 --seed 1 --duplicate 0.5 --delay 5ms");
    let mut changed = Run::new(&before);
    let mut unchanged = Run::new(&before);
    for i in 0..1000 {
        if i == 500 {
            changed.model.set(us(i), &after);
        }
        changed.offer(us(i), &bulk(44));
        unchanged.offer(us(i), &bulk(44));
    }
    assert_eq!(changed.missing(), unchanged.missing());
    assert!(changed.arrivals.len() > unchanged.arrivals.len() + 8000);
    assert_eq!(changed.model.counts().lost, unchanged.model.counts().lost);
}

#[test]
fn a_link_can_become_clean_and_impaired_again() {
    let (clean, lossy) = (plan("--delay 1ms"), plan("--loss 1"));
    let mut run = Run::new(&lossy);
    run.offer(us(0), &bulk(4));
    run.model.set(us(1), &clean);
    run.offer(us(1), &bulk(4));
    run.model.set(us(2), &lossy);
    run.offer(us(2), &bulk(4));
    assert_eq!(run.missing(), [0, 1, 2, 3, 8, 9, 10, 11]);
}

#[test]
fn the_seed_decides_and_directions_differ() {
    let lost = |seed: u64, from| {
        let mut run = Run::new(&plan("--loss 0.1"));
        run.model = LinkModel::new(&plan(&format!("--loss 0.1 --seed {seed}")), from);
        run.offer_many(100, Duration::from_micros(1), &bulk(44));
        run.missing()
    };
    assert_eq!(lost(1, Side::Near), lost(1, Side::Near));
    assert_ne!(lost(1, Side::Near), lost(2, Side::Near));
    assert_ne!(lost(1, Side::Near), lost(1, Side::Far));
}

/// Plans without a delay, with every kind of capacity, limit and queue management.
fn capacity() -> impl Strategy<Value = LinkPlan> {
    let any_of = |choices: &'static [&'static str]| prop::sample::select(choices);
    let limited = (
        any_of(&[
            "--rate 5M",
            "--rate 60M",
            "--rate 3G",
            "--rate-trace steps",
            "--rate-trace opportunities",
        ]),
        any_of(&["--queue 40kB", "--queue 2MB", "--queue 3ms", "--queue 60s", "--queue 50p"]),
        any_of(&[
            "",
            "--aqm codel:500us:5ms",
            "--aqm pie:1ms",
            "--aqm red:5kB:20kB",
            "--aqm fq-codel:500us:5ms",
            "--aqm dualpi2:1ms",
        ]),
        any_of(&["", "", "--outage 20ms+7ms/40ms"]),
    )
        .prop_map(|(rate, limit, manager, outage)| format!("{rate} {limit} {manager} {outage}"));
    prop_oneof![8 => limited, 1 => Just("--delay 0ms".to_owned())].prop_map(|options| {
        let opportunities = options.contains("opportunities");
        let file =
            if opportunities { "1\n1\n3\n4" } else { "0 20M\n7ms 0\n15ms 100M\n30ms repeat" };
        plan_with_file(&options, file)
    })
}

/// An event: a change of the plan, or a packet of segments of 1500 bytes.
#[derive(Debug, Clone)]
enum Event {
    Change(Box<LinkPlan>),
    Packet(PacketShape),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let packet = (1..40u32, any::<bool>())
        .prop_map(|(segments, ecn_capable)| PacketShape { ecn_capable, ..bulk(segments) });
    let event = prop_oneof![
        5 => packet.prop_map(Event::Packet),
        1 => capacity().prop_map(|plan| Event::Change(Box::new(plan))),
    ];
    prop::collection::vec((0..4_000u64, event), 1..80)
}

proptest! {
    #[test]
    fn admitted_bytes_are_sent_waiting_or_dropped_at_every_change(
        first in capacity(),
        events in events(),
    ) {
        let mut run = Run::new(&first);
        let mut now = us(0);
        let mut has_rate = first.up.has_rate();
        let mut queued = BTreeSet::new();
        for (gap, event) in events {
            now = now + Duration::from_micros(gap);
            match event {
                Event::Packet(packet) => {
                    if has_rate {
                        queued.extend(run.offered..run.offered + u64::from(packet.segments()));
                    }
                    run.offer(now, &packet);
                }
                Event::Change(plan) => {
                    has_rate = plan.up.has_rate();
                    run.serve(now);
                    let before = run.model.queue(now);
                    run.model.set(now, &plan);
                    prop_assert_eq!(run.model.queue(now), before);
                }
            }
            run.serve(now);
            let counts = run.model.counts();
            let arrived = run.arrivals.len() as u64 * 1500;
            let waiting = run.model.queue(now).0.get();
            // Segments that wait in a queue without a fixed order have no departure yet.
            let parked = run.offered * 1500 - arrived - counts.dropped().bytes;
            if parked > 0 {
                prop_assert!(parked <= waiting, "{parked} of {waiting}");
                prop_assert!(run.model.next_turn().is_some_and(|turn| turn > now));
            }
            let waiting = waiting - parked;
            // Without a rate a segment can leave later to keep the order, but it does not wait.
            let later = run.arrivals.iter().filter(|a| a.at > now && queued.contains(&a.number));
            let later = 1500 * later.count() as u64;
            // A part of the packet in transmission is on the path. Segments that an outage will
            // discard wait until the outage.
            prop_assert!(waiting <= later + counts.outage.bytes, "{waiting} of {later}");
            prop_assert!(waiting + 40 * 1500 >= later, "{waiting} of {later}");
        }
    }
}
