//! Tests of departure times and counts with rates, queues and loss.

use std::time::Duration;

use longhaul_core::plan::link::{Loss, QueueLimit};
use longhaul_core::plan::{LinkDirection, LinkPlan, Side};
use longhaul_core::result::Segments;
use longhaul_core::units::{Bytes, Rate};

use super::super::{LinkModel, LinkTime, PacketShape};

const MS: u64 = 1_000_000;

fn model(delay_ms: u64, rate_bps: Option<u64>, queue: Option<u64>) -> LinkModel {
    let up = LinkDirection {
        rate_bps: rate_bps.map(Rate::from_bps),
        queue: rate_bps.map(|_| QueueLimit::Bytes(queue.map_or(Bytes::gib(1), Bytes::new))),
        ..LinkDirection::delayed(Duration::from_millis(delay_ms))
    };
    let plan = LinkPlan { up, ..LinkPlan::symmetric(Duration::ZERO) };
    plan.validate().unwrap();
    LinkModel::new(&plan, Side::Near)
}

/// Returns the departure times of single-segment packets, offered as (time, bytes).
fn arrivals(model: &mut LinkModel, offers: &[(u64, u64)]) -> Vec<Option<u64>> {
    let arrival = |(nanos, bytes): &(u64, u64)| {
        let mut pieces = Vec::new();
        let packet = PacketShape::single(*bytes as u32);
        model.offer(LinkTime::from_nanos(*nanos), &packet, &mut pieces);
        assert!(pieces.len() < 2);
        pieces.first().map(|piece| piece.at.as_nanos())
    };
    offers.iter().map(arrival).collect()
}

#[test]
fn departures_follow_the_plan() {
    type Case = (&'static str, LinkModel, &'static [(u64, u64)], &'static [Option<u64>]);
    // At 8 Mb/s a byte takes 1 us, so 1000 bytes take 1 ms.
    let cases: [Case; 7] = [
        ("no delay, no rate", model(0, None, None), &[(5, 1500)], &[Some(5)]),
        (
            "a delay moves every packet alike",
            model(45, None, None),
            &[(0, 64), (7, 65_535), (7, 64)],
            &[Some(45 * MS), Some(45 * MS + 7), Some(45 * MS + 7)],
        ),
        (
            "a rate spaces packets that enter together",
            model(0, Some(8_000_000), None),
            &[(0, 1000), (0, 1000), (0, 500)],
            &[Some(MS), Some(2 * MS), Some(2 * MS + MS / 2)],
        ),
        (
            "the delay comes after the rate",
            model(10, Some(8_000_000), None),
            &[(0, 1000), (0, 1000)],
            &[Some(11 * MS), Some(12 * MS)],
        ),
        (
            "an idle link saves no credit",
            model(0, Some(8_000_000), None),
            &[(0, 1000), (100 * MS, 1000), (100 * MS, 1000)],
            &[Some(MS), Some(101 * MS), Some(102 * MS)],
        ),
        (
            "the tail is dropped when the queue is full, and a drop takes no room",
            model(0, Some(8_000_000), Some(2000)),
            &[(0, 1000), (0, 1000), (0, 1000), (MS, 1000)],
            &[Some(MS), Some(2 * MS), None, Some(3 * MS)],
        ),
        (
            "a packet larger than the queue passes an idle link",
            model(0, Some(8_000_000), Some(2000)),
            &[(0, 9000), (0, 1)],
            &[Some(9 * MS), None],
        ),
    ];
    for (what, mut model, offers, expected) in cases {
        assert_eq!(arrivals(&mut model, offers), expected, "{what}");
    }
}

/// Returns offers at irregular times and of irregular sizes; the same offers on every call.
fn uneven_offers(count: u64) -> Vec<(u64, u64)> {
    let mut now = 0;
    (0..count)
        .map(|i| {
            let scrambled = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            now += scrambled % 20_000;
            (now, 40 + scrambled % 65_000)
        })
        .collect()
}

#[test]
fn order_is_kept() {
    for rate in [None, Some(1_000_000_000), Some(100_000_000_000)] {
        let mut model = model(7, rate, Some(1 << 20));
        let times: Vec<u64> =
            arrivals(&mut model, &uneven_offers(10_000)).into_iter().flatten().collect();
        assert!(times.is_sorted(), "at {rate:?}");
    }
}

#[test]
fn the_mean_rate_is_exact_over_many_packets() {
    // At 3 Gb/s no packet of 1499 bytes takes a whole number of nanoseconds.
    let mut model = model(0, Some(3_000_000_000), None);
    let offers = vec![(0, 1499); 100_000];
    let last = arrivals(&mut model, &offers)[99_999].unwrap();
    assert_eq!(last, 1499 * 8 * 100_000 / 3);
}

#[test]
fn the_queue_never_holds_more_than_its_budget() {
    let (rate, queue) = (1_000_000_000, 300_000);
    let mut model = model(0, Some(rate), Some(queue));
    let offers = uneven_offers(10_000);
    let mut dropped = 0;
    for ((now, bytes), arrival) in offers.iter().zip(arrivals(&mut model, &offers)) {
        match arrival {
            // The delay is the wait plus the transmission time of the packet.
            Some(at) => {
                assert!((at - now) * rate / 8_000_000_000 <= queue.max(*bytes));
            }
            None => dropped += 1,
        }
    }
    assert!(dropped > 0, "the load was meant to exceed the rate");
}

#[test]
fn loss_takes_single_segments_out_of_a_super_packet() {
    let mut plan = LinkPlan::symmetric(Duration::ZERO);
    plan.up.loss = Some(Loss::Pattern { segments: "1,44,45,50-52".parse().unwrap() });
    let mut model = LinkModel::new(&plan, Side::Near);
    let packet = PacketShape {
        header_bytes: 52,
        payload_bytes: 44 * 1448,
        segment_bytes: 1448,
        ecn_capable: false,
    };
    let mut pieces = Vec::new();
    model.offer(LinkTime::from_nanos(1), &packet, &mut pieces);
    model.offer(LinkTime::from_nanos(2), &packet, &mut pieces);
    let segments: Vec<_> = pieces.iter().map(|piece| piece.segments.clone()).collect();
    assert_eq!(segments, [1..43, 1..5, 8..44]);
    assert_eq!(model.counts().lost, Segments { segments: 6, bytes: 9000 });
}
