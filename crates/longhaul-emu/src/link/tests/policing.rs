//! Tests of the policer, bit errors, limits in packets, and slots.

use std::time::Duration;

use super::super::LinkTime;
use super::{Run, assert_share, bulk, plan, us};

#[test]
fn a_policer_passes_its_burst_and_then_exactly_its_rate() {
    // 12 Mb/s is a segment of 1500 bytes per ms.
    let mut run = Run::new(&plan("--police 12M:45000 --mtu 1500"));
    run.offer(us(0), &bulk(44));
    assert_eq!(run.missing(), (30..44).collect::<Vec<u64>>());
    assert!(run.arrivals.iter().all(|arrival| arrival.at == us(0)), "nothing waits");
    // A segment every 0.7 ms for 70 s, of which the bucket fills 70,000 ms.
    run.offered = 0;
    run.arrivals.clear();
    for i in 1..=100_000_u64 {
        run.offer(us(700 * i), &bulk(1));
    }
    assert_eq!(run.arrivals.len(), 70_000);
    let counts = run.model.counts();
    assert_eq!((counts.policed.segments, counts.policed.bytes), (30_014, 30_014 * 1500));
}

#[test]
fn an_idle_policer_saves_no_more_than_its_burst_and_counts_the_layer_of_the_rate() {
    let mut run = Run::new(&plan("--police 12M:15380 --rate-layer wire --mtu 1500"));
    run.offer(us(60_000_000), &bulk(44));
    assert_eq!(run.arrivals.len(), 10, "ten packets of 1538 bytes");
    let mut shaped = Run::new(&plan("--police 12M:15000 --rate 24M --queue 1s --mtu 1500"));
    shaped.offer(us(0), &bulk(44));
    assert_eq!(shaped.arrivals.len(), 10);
    assert_eq!(shaped.arrivals[9].at, us(5_000), "the shaper follows the policer");
}

#[test]
fn a_change_of_other_options_keeps_the_bucket() {
    let mut run = Run::new(&plan("--police 12M:15000 --mtu 1500"));
    run.offer(us(0), &bulk(10));
    run.model.set(us(1_000), &plan("--police 12M:15000 --delay 1ms --mtu 1500"));
    run.offer(us(1_000), &bulk(10));
    assert_eq!(run.arrivals.len(), 11);
    run.model.set(us(1_000), &plan("--police 12M:16500 --mtu 1500"));
    run.offer(us(1_000), &bulk(20));
    assert_eq!(run.arrivals.len(), 22, "another policer starts with a full bucket");
}

#[test]
fn bit_errors_depend_on_the_size_of_segments() {
    for (segment, seed) in [(1448_u32, 1), (100, 2)] {
        let mut run = Run::new(&plan(&format!("--ber 1e-6 --seed {seed}")));
        let packet =
            super::PacketShape { payload_bytes: 40 * segment, segment_bytes: segment, ..bulk(1) };
        run.offer_many(50_000, Duration::from_micros(10), &packet);
        let lost = run.missing();
        let expected = 1.0 - (1.0 - 1e-6_f64).powi(8 * (segment as i32 + 52));
        assert_share(lost.len(), run.offered, expected);
        assert_eq!(run.model.counts().bit_errors.segments, lost.len() as u64);
        let pairs = lost.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert_share(pairs, lost.len() as u64, expected);
    }
    let mut wrong = Run::new(&plan("--ber 1"));
    wrong.offer(us(0), &bulk(44));
    assert_eq!(wrong.missing().len(), 44);
}

#[test]
fn bit_errors_use_the_bottleneck() {
    let mut run = Run::new(&plan("--ber 1e-5 --rate 12M --queue 60s --seed 3"));
    run.offer_many(1000, Duration::ZERO, &bulk(1));
    assert!(run.arrivals.len() < 950, "{}", run.arrivals.len());
    let last = run.arrivals.last().unwrap();
    assert_eq!(last.at, us(1000 * (last.number + 1)));
}

#[test]
fn a_queue_of_packets_counts_segments_of_any_size() {
    let mut run = Run::new(&plan("--rate 1M --queue 10p"));
    for (count, bytes) in [(1, 40), (10, 9000)] {
        for _ in 0..count {
            run.offer(us(0), &super::PacketShape::single(bytes));
        }
    }
    assert_eq!(run.missing(), [10]);
    // The segment of 40 bytes has been sent after 0.32 ms.
    run.offer(us(320), &bulk(3));
    assert_eq!(run.missing(), [10, 12, 13]);
    let mut fast = Run::new(&plan("--rate 10G --queue 60p"));
    fast.offer(us(0), &bulk(44));
    fast.offer(us(0), &bulk(44));
    assert_eq!((fast.arrivals.len(), fast.missing().len()), (60, 28));
    // A segment takes 1.2 us.
    fast.offer(us(36), &bulk(44));
    assert_eq!(fast.arrivals.len(), 90, "30 segments have been sent");
}

#[test]
fn a_limit_in_packets_counts_the_segments_of_an_earlier_plan() {
    let mut run = Run::new(&plan("--rate 12M --queue 60s"));
    run.offer(us(0), &bulk(20));
    run.model.set(us(5_000), &plan("--rate 12M --queue 20p"));
    run.offer(us(5_000), &bulk(8));
    assert_eq!((run.arrivals.len(), run.missing()), (25, vec![25, 26, 27]));
    run.model.set(us(6_000), &plan("--delay 0ms"));
    run.model.set(us(7_000), &plan("--rate 1M --queue 19p"));
    run.offer(us(7_000), &bulk(8));
    assert_eq!(run.arrivals.len(), 26, "18 segments wait");
}

#[test]
fn slots_release_segments_together_within_their_limits() {
    let mut run = Run::new(&plan("--delay 1ms --slot 10ms:32"));
    run.offer(us(0), &bulk(44));
    run.offer(us(18_999), &bulk(1));
    run.offer(us(19_001), &bulk(1));
    let times: Vec<LinkTime> = run.arrivals.iter().map(|arrival| arrival.at).collect();
    assert_eq!(times[..32], [us(10_000); 32]);
    assert_eq!(times[32..45], [us(20_000); 13]);
    assert_eq!(times[45], us(30_000));
    let mut bytes = Run::new(&plan("--slot 10ms:32:4500"));
    bytes.offer(us(1), &bulk(7));
    let times: Vec<LinkTime> = bytes.arrivals.iter().map(|arrival| arrival.at).collect();
    assert_eq!(times[..3], [us(10_000); 3]);
    assert_eq!((times[3], times[6]), (us(20_000), us(30_000)));
    bytes.offer(us(1), &super::PacketShape::single(9000));
    assert_eq!(bytes.arrivals[7].at, us(40_000), "longer than a slot, it gets its own");
    bytes.offer(us(1_000_000_123), &bulk(1));
    assert_eq!(bytes.arrivals[8].at, us(1_000_010_000), "the phase is kept while nothing arrives");
}

#[test]
fn random_slots_have_their_mean_interval_and_range() {
    let mut run = Run::new(&plan("--slot 1ms-3ms:1 --seed 9"));
    run.offer_many(20_000, Duration::ZERO, &bulk(1));
    let gaps: Vec<u64> =
        run.arrivals.windows(2).map(|pair| pair[1].at.as_nanos() - pair[0].at.as_nanos()).collect();
    assert!(gaps.iter().all(|gap| (1_000_000..=3_000_000).contains(gap)));
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    // A standard deviation of 0.577 ms over 20,000 intervals.
    assert!((mean / 1e6 - 2.0).abs() < 0.017, "{mean}");
}

#[test]
fn the_order_is_kept_when_slots_change_or_end() {
    let mut run = Run::new(&plan("--slot 10ms:1"));
    run.offer(us(1), &bulk(5));
    run.model.set(us(2), &plan("--slot 1ms"));
    run.offer(us(3), &bulk(1));
    run.model.set(us(4), &plan("--delay 1ms"));
    run.offer(us(5), &bulk(1));
    let times: Vec<LinkTime> = run.arrivals.iter().map(|arrival| arrival.at).collect();
    assert_eq!(times[4], us(50_000));
    assert!(times.is_sorted(), "{times:?}");
}
