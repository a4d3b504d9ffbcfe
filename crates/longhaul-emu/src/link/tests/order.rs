//! Tests of delay, jitter and reordering.

use std::time::Duration;

use super::{Arrival, Run, assert_share, bulk, plan, plan_with_file, us};

/// Returns the reordering extent (RFC 4737, section 4.2) of each reordered segment, that is, of
/// each segment with a lower number than one that arrived before it.
fn extents(arrivals: &[Arrival]) -> Vec<usize> {
    let mut next_expected = 0;
    let mut extents = Vec::new();
    for (i, arrival) in arrivals.iter().enumerate() {
        if arrival.number >= next_expected {
            next_expected = arrival.number + 1;
        } else {
            let earlier = arrivals[..i].iter().rposition(|other| other.number < arrival.number);
            let from = earlier.map_or(0, |at| at + 1);
            let first = arrivals[from..i].iter().position(|other| other.number > arrival.number);
            let before = arrivals[..i].iter().position(|other| other.number > arrival.number);
            extents.push(i - before.unwrap_or(from + first.unwrap_or(0)));
        }
    }
    extents
}

#[test]
fn a_fixed_delay_moves_all_alike_and_follows_its_trace_in_order() {
    let trace = "0 50ms\n1s 10ms\n2s repeat";
    let mut run = Run::new(&plan_with_file("--delay-trace delay.txt", trace));
    for ms in [0, 999, 1000, 1030, 1045, 2000] {
        run.offer(us(ms * 1000), &bulk(2));
    }
    let times: Vec<u64> =
        run.finish().iter().step_by(2).map(|a| a.at.as_nanos() / 1_000_000).collect();
    // Segments sent just before the delay became shorter are not overtaken.
    assert_eq!(times, [50, 1049, 1049, 1049, 1055, 2050]);
}

#[test]
fn jitter_keeps_order_unless_it_may_not() {
    for (options, kept) in
        [("--delay 50ms --jitter 5ms", true), ("--delay 50ms --jitter 5ms:uniform:reorder", false)]
    {
        let mut run = Run::new(&plan(&format!("{options} --seed 7")));
        run.offer_many(500, Duration::from_millis(1), &bulk(4));
        let counted = run.model.counts().reordered.segments;
        let arrivals = run.finish();
        assert_eq!(arrivals.is_sorted_by_key(|arrival| arrival.number), kept, "{options}");
        assert_eq!(counted == 0, kept, "{options}: {counted}");
        assert_eq!(arrivals.len(), 2000);
    }
}

#[test]
fn segments_that_are_far_apart_have_the_quantiles_of_the_jitter() {
    let mut run = Run::new(&plan("--delay 50ms --jitter 1ms:uniform --seed 8"));
    run.offer_many(20_000, Duration::from_millis(10), &bulk(1));
    let mut delays: Vec<f64> = run
        .finish()
        .iter()
        .map(|arrival| arrival.at.as_nanos() as f64 / 1e6 - arrival.number as f64 * 10.0)
        .collect();
    delays.sort_by(f64::total_cmp);
    for (at, expected) in [(0, 49.0), (5_000, 49.5), (10_000, 50.0), (15_000, 50.5), (19_999, 51.0)]
    {
        // The tolerance is four standard errors of the median, which has the largest error.
        assert!((delays[at] - expected).abs() < 0.03, "{at}: {}", delays[at]);
    }
}

#[test]
fn reordered_segments_have_the_share_and_the_extent_that_were_asked_for() {
    for (extent, group) in [(1, 44), (3, 1), (3, 44), (3, 2), (50, 44)] {
        let mut run = Run::new(&plan(&format!("--delay 20ms --reorder 0.01:{extent} --seed 9")));
        run.offer_many(88_000 / u64::from(group), Duration::from_micros(20), &bulk(group));
        let counted = run.model.counts().reordered.segments as usize;
        // No later segments release the last held segments.
        let left = run.held.len();
        let arrivals = run.finish();
        let extents = extents(&arrivals);
        assert_eq!(extents.len() + left, counted, "extent {extent} in groups of {group}");
        assert_share(counted, 88_000, 0.01);
        // Segments that are held at the same time do not count for each other.
        assert!(extents.iter().all(|found| *found >= extent), "groups of {group}: {extents:?}");
        let exact = extents.iter().filter(|found| **found == extent).count();
        let alone = (1.0f64 - 0.01).powi(2 * extent as i32);
        assert!(exact as f64 > 0.9 * alone * extents.len() as f64, "{exact} of {}", extents.len());
    }
}

#[test]
fn a_segment_held_for_a_time_is_late_by_that() {
    let mut run = Run::new(&plan("--delay 20ms --reorder 0.01:5ms --seed 10"));
    run.offer_many(50_000, Duration::from_millis(1), &bulk(1));
    let mut late = 0;
    for arrival in run.finish() {
        let delay = arrival.at.as_nanos() / 1_000_000 - arrival.number;
        assert!(delay == 20 || delay == 25);
        late += usize::from(delay == 25);
    }
    assert_share(late, 50_000, 0.01);
}

#[test]
fn a_held_segment_does_not_wait_for_ever() {
    let mut run = Run::new(&plan("--reorder 1:3"));
    run.offer(us(0), &bulk(1));
    assert_eq!(run.finish()[0].at, us(100_000));
}
