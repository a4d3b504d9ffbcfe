//! Tests of rate, queue, queue management and cross traffic.

use std::time::Duration;

use super::super::{LinkTime, PacketShape};
use super::{Run, bulk, plan, plan_with_file, us};

#[test]
fn a_slow_link_sends_segments_one_by_one_and_a_fast_one_packets() {
    let mut slow = Run::new(&plan("--rate 100M"));
    slow.offer(us(0), &bulk(44));
    let times: Vec<u64> = slow.arrivals.iter().map(|arrival| arrival.at.as_nanos()).collect();
    assert_eq!(times, (1..=44).map(|i| i * 120_000).collect::<Vec<u64>>());
    let mut fast = Run::new(&plan("--rate 10G"));
    fast.offer(us(0), &bulk(44));
    assert_eq!((fast.pieces.len(), fast.pieces[0].at), (1, LinkTime::from_nanos(44 * 1200)));
}

#[test]
fn a_rate_of_the_wire_counts_what_each_packet_adds() {
    for (layer, last) in [("ip", 12_000), ("wire", 12_304), ("wire:100", 12_800)] {
        let mut run = Run::new(&plan(&format!("--rate 1G --queue 1s --rate-layer {layer}")));
        run.offer_many(1000, Duration::ZERO, &bulk(1));
        assert_eq!(run.arrivals[999].at, us(last), "{layer}");
    }
}

#[test]
fn the_mean_rate_is_exact_however_packets_are_cut() {
    // 3 Gb/s and 1499 bytes: no segment takes a whole number of nanoseconds.
    for (rate, segments) in [("3G", 1), ("3G", 40), ("700M", 40)] {
        let mut run = Run::new(&plan(&format!("--rate {rate} --queue 60s")));
        let packet = PacketShape { payload_bytes: 1447 * segments, segment_bytes: 1447, ..bulk(1) };
        run.offer_many(40_000 / u64::from(segments), Duration::ZERO, &packet);
        let bps = rate.parse::<longhaul_core::units::Rate>().unwrap().bps();
        assert_eq!(
            run.arrivals.last().unwrap().at.as_nanos(),
            1499 * 8 * 40_000 * 1_000_000_000 / bps
        );
    }
}

#[test]
fn a_full_queue_takes_the_segments_that_fit() {
    let mut run = Run::new(&plan("--rate 1G --queue 45000"));
    run.offer(us(0), &bulk(44));
    assert_eq!(run.missing(), (30..44).collect::<Vec<u64>>());
    // A third of the packet has been sent.
    run.offer(us(120), &bulk(44));
    assert_eq!(run.arrivals.len(), 40);
    let counts = run.model.counts();
    assert_eq!((counts.queue_full.segments, counts.queue_full.bytes), (48, 72_000));
    assert_eq!(run.model.queue(us(120)).0.get(), 45_000);

    let mut timed = Run::new(&plan("--rate 1G --queue 360us"));
    timed.offer(us(0), &bulk(44));
    assert_eq!(timed.arrivals.len(), 30);
    assert_eq!(timed.model.queue(us(120)).1, Duration::from_micros(240));
}

#[test]
fn the_queue_never_holds_more_than_its_limit() {
    let mut run = Run::new(&plan("--rate 1G --queue 300kB"));
    for i in 0..5000u64 {
        let scrambled = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let now = us(i * 200 + scrambled % 200);
        run.offer(now, &bulk(1 + (scrambled % 44) as u32));
        assert!(run.model.queue(now).0.get() <= 300_000);
    }
    assert!(run.model.counts().queue_full.segments > 0, "the load was meant to exceed the rate");
}

#[test]
fn mahimahi_opportunities_carry_the_segments() {
    // 12 Mb/s for 50 ms, then nothing for 50 ms.
    let trace: String = (1..=50).map(|ms| format!("{ms}\n")).chain(["100\n".into()]).collect();
    let mut run = Run::new(&plan_with_file("--rate-trace mahimahi --queue 10MB", &trace));
    run.offer_many(10, Duration::ZERO, &bulk(44));
    let at = |n: usize| run.arrivals[n].at.as_nanos() / 1_000_000;
    assert_eq!([at(0), at(49), at(50), at(51), at(439)], [1, 50, 100, 101, 832]);
}

#[test]
fn a_rate_of_steps_carries_what_its_steps_allow() {
    let mut run =
        Run::new(&plan_with_file("--rate-trace t --queue 60s", "0 12M\n1s 1.2M\n2s repeat"));
    run.offer_many(100, Duration::ZERO, &bulk(40));
    let within = |ms: u64| run.arrivals.iter().filter(|a| a.at <= us(ms * 1000)).count();
    assert_eq!([within(1000), within(2000), within(3000)], [1000, 1100, 2100]);
}

/// Returns the mean and the largest wait in us of small packets every 10 ms beside cross traffic.
fn waits(cross: &str) -> (f64, f64) {
    let mut run = Run::new(&plan(&format!("--rate 100M --mtu 1500 --cross {cross} --seed 4")));
    let probes = 20_000;
    run.offer_many(probes, Duration::from_millis(10), &PacketShape::single(1));
    let wait = |number: u64, at: LinkTime| at.since(us(number * 10_000)).as_secs_f64() * 1e6;
    let all: Vec<f64> = run.arrivals.iter().map(|a| wait(a.number, a.at)).collect();
    assert_eq!(all.len() as u64, probes);
    (all.iter().sum::<f64>() / probes as f64, all.iter().copied().fold(0.0, f64::max))
}

#[test]
fn poisson_cross_traffic_makes_one_wait_as_in_theory() {
    // An M/D/1 queue with load 0.5 has a mean wait of load / (2 (1 - load)) times a packet's 120
    // us. The standard deviation is 108 us, so four standard errors are 3 us.
    let (mean, _) = waits("50M");
    assert!((mean - 60.0).abs() < 3.1, "{mean}");
    let (bursty, largest) = waits("50M:150kB");
    assert!(bursty > 10.0 * mean && largest > 20_000.0, "{bursty} {largest}");
}

#[test]
fn cross_traffic_takes_its_part_of_the_rate() {
    let mut run = Run::new(&plan("--rate 100M --mtu 1500 --cross 40M --queue 500kB --seed 5"));
    // 110 Mb/s for 20 s: with the cross traffic 1.5 times the rate of the link.
    run.offer_many(20_000, Duration::from_micros(1000), &bulk(9));
    let ours = run.arrivals.len() as f64 * 1500.0 * 8.0 / 20.0;
    let counts = run.model.counts();
    let theirs = counts.cross_sent.bytes as f64 * 8.0 / 20.0;
    assert!(((ours + theirs) / 100e6 - 1.0).abs() < 0.01, "{ours} {theirs}");
    assert!(counts.cross_dropped.segments > 0 && ours > 55e6, "{ours}");
}

#[test]
fn queue_management_marks_capable_segments_and_drops_others() {
    for aqm in ["codel", "pie"] {
        for ecn_capable in [false, true] {
            let mut run = Run::new(&plan(&format!("--rate 100M --queue 60s --aqm {aqm} --seed 6")));
            // 1.1 times the rate, for ten seconds.
            let packet = PacketShape { ecn_capable, ..bulk(11) };
            run.offer_many(8333, Duration::from_micros(1200), &packet);
            let counts = run.model.counts();
            let (dropped, marked) = (counts.aqm_dropped.segments, counts.marked_ce.segments);
            assert!(counts.queue_full.segments == 0);
            assert!(if ecn_capable { marked } else { dropped } > 50, "{aqm}: {counts:?}");
            if !ecn_capable {
                assert_eq!((marked, dropped), (0, run.missing().len() as u64), "{aqm}");
            }
        }
    }
}

#[test]
fn pie_holds_the_wait_at_its_target() {
    let mut run = Run::new(&plan("--rate 100M --queue 60s --aqm pie --seed 7"));
    let mut waits = Vec::new();
    for i in 0..16_666 {
        let now = us(i * 1200);
        run.offer(now, &bulk(11));
        waits.push(run.model.queue(now).1.as_secs_f64() * 1e3);
    }
    let settled = &waits[8000..];
    let mean = settled.iter().sum::<f64>() / settled.len() as f64;
    assert!((10.0..20.0).contains(&mean), "{mean} ms");
}
