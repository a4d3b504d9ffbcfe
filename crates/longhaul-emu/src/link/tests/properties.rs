//! Tests of properties that every plan has with every traffic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{LinkTime, PacketShape};
use super::{Run, Treatment, plan, us};

/// Generates any mixture of impairments that can be combined.
fn options() -> impl Strategy<Value = String> {
    mixture(
        &["", "--jitter 1ms", "--jitter 1ms:uniform:reorder"],
        &["", "--reorder 0.1", "--reorder 0.1:2ms"],
    )
}

/// Generates any mixture of impairments that preserve the order.
fn ordered_options() -> impl Strategy<Value = String> {
    mixture(&["", "--jitter 1ms"], &[""])
}

fn mixture(
    jitter: &'static [&'static str],
    reorder: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let any_of = |choices: &'static [&'static str]| prop::sample::select(choices);
    (
        any_of(&[
            "",
            "--loss 0.1",
            "--loss 0.1 --loss-burst 5",
            "--loss-pattern 2-4,9/20",
            "--loss-ge 0.1:0.2:0.6:0.05",
            "--loss-state 0.1:0.3:0.2:0.5:0.05",
            "--loss 0.2 --loss-correlation 0.3",
            "--ber 1e-5",
            "--police 100M:20kB",
        ]),
        any_of(&[
            "",
            "--rate 50M --queue 20kB",
            "--rate 2G --queue 1ms",
            "--rate 200M --rate-layer wire --aqm codel:50us:1ms",
            "--rate 300M --aqm pie:100us",
            "--rate 200M --aqm fq-codel:50us:1ms",
            "--rate 200M --aqm dualpi2:1ms --queue 40kB",
            "--rate 100M --queue 30p",
            "--rate 300M --aqm red:10us:1ms:0.2",
            "--rate 200M --cross 100M:20kB --queue 30kB",
        ]),
        any_of(&["", "--corrupt 0.1 --corrupt-silent 0.1 --mark 0.2 --duplicate 0.1"]),
        any_of(jitter),
        any_of(reorder),
        any_of(&["", "--outage 2ms+1ms/5ms", "--slot 500us-2ms:9"]),
        any::<u32>(),
    )
        .prop_map(|(loss, queue, damage, jitter, reorder, outage, seed)| {
            format!("--delay 3ms --seed {seed} {loss} {queue} {damage} {jitter} {reorder} {outage}")
        })
}

/// Packets and the time before each, in us.
fn traffic() -> impl Strategy<Value = Vec<(u64, PacketShape)>> {
    let packet = (1..60_000u32, any::<bool>()).prop_map(|(payload_bytes, ecn_capable)| {
        PacketShape { header_bytes: 52, payload_bytes, segment_bytes: 1448, ecn_capable }
    });
    prop::collection::vec((0..500u64, packet), 1..60)
}

fn timed(traffic: &[(u64, PacketShape)]) -> impl Iterator<Item = (LinkTime, PacketShape)> {
    let mut now = 0;
    traffic.iter().map(move |(gap, packet)| {
        now += gap;
        (us(now), *packet)
    })
}

/// Returns the packet's segments as separate packets.
fn singles(packet: PacketShape) -> impl Iterator<Item = PacketShape> {
    (0..packet.segments()).map(move |segment| {
        let payload_bytes = packet.bytes_of(segment..segment + 1) as u32 - packet.header_bytes;
        PacketShape { payload_bytes, ..packet }
    })
}

/// Returns the treatment of each segment, by number.
fn decisions(run: &Run) -> BTreeMap<(u64, bool), Treatment> {
    let all = run.arrivals.iter().chain(&run.held);
    all.map(|a| ((a.number, a.treatment.duplicate), a.treatment)).collect()
}

proptest! {
    #[test]
    fn every_segment_is_delivered_or_counted(options in options(), traffic in traffic()) {
        let mut run = Run::new(&plan(&options));
        let mut bytes = 0;
        let mut sizes = Vec::new();
        for (now, packet) in timed(&traffic) {
            run.offer(now, &packet);
            bytes += packet.bytes();
            sizes.extend(singles(packet).map(|single| single.bytes()));
            for piece in &run.pieces {
                prop_assert!(piece.at >= now, "{piece:?} before {now:?}");
                prop_assert!(piece.treatment.corruption.is_none() || piece.count() == 1);
                prop_assert!(!piece.treatment.mark_ce || packet.ecn_capable);
            }
        }
        run.serve_all();
        let counts = run.model.counts();
        let all = run.arrivals.iter().chain(&run.held);
        let (copies, originals): (Vec<_>, Vec<_>) = all.copied().partition(|a| a.treatment.duplicate);
        prop_assert_eq!(run.offered, originals.len() as u64 + counts.dropped().segments);
        let out: u64 = originals.iter().map(|a| sizes[a.number as usize]).sum();
        prop_assert_eq!(bytes, out + counts.dropped().bytes);
        prop_assert_eq!(counts.duplicated.segments, copies.len() as u64);
        let distinct = decisions(&run).len();
        prop_assert_eq!(distinct, originals.len() + copies.len(), "only duplicates leave twice");
    }

    #[test]
    fn the_grouping_of_segments_changes_no_decision(options in options(), traffic in traffic()) {
        let plan = plan(&options);
        let (mut grouped, mut apart) = (Run::new(&plan), Run::new(&plan));
        for (now, packet) in timed(&traffic) {
            grouped.offer(now, &packet);
            for single in singles(packet) {
                apart.offer(now, &single);
            }
        }
        grouped.serve_all();
        apart.serve_all();
        let (mut one, mut other) = (*grouped.model.counts(), *apart.model.counts());
        if options.contains(":reorder") {
            // A super-packet that leaves in one piece leaves with its last bit, up to 0.5 ms later
            // than its first segment would. The reordering counts can differ because of this time,
            // but no decision can.
            (one.reordered, other.reordered) = Default::default();
        }
        prop_assert_eq!(one, other);
        prop_assert_eq!(decisions(&grouped), decisions(&apart));
    }

    #[test]
    fn order_is_kept_where_nothing_reorders(options in ordered_options(), traffic in traffic()) {
        let mut run = Run::new(&plan(&options));
        for (now, packet) in timed(&traffic) {
            run.offer(now, &packet);
        }
        run.serve_all();
        prop_assert!(run.arrivals.is_sorted_by_key(|arrival| arrival.at));
        prop_assert!(run.finish().is_sorted_by_key(|arrival| arrival.number));
    }
}
