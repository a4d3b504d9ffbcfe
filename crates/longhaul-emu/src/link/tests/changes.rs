//! Outages, and links that change while they run.

use std::time::Duration;

use longhaul_core::plan::Side;
use longhaul_core::plan::link::LinkOptions;

use super::super::LinkModel;
use super::{Run, bulk, plan, us};

#[test]
fn an_outage_takes_what_is_offered_and_what_waits_and_nothing_else() {
    // A segment takes 12 ms; the link is down from 1 s to 1.5 s.
    let mut run = Run::new(&plan("--delay 100ms --rate 1M --queue 60s --outage 1s+500ms"));
    run.offer(us(900_000), &bulk(20));
    // Eight were sent before; they are on their way and arrive.
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
fn outages_come_again() {
    let mut run = Run::new(&plan("--outage 10ms+5ms/20ms,100ms+50ms"));
    run.offer_many(200, Duration::from_millis(1), &bulk(1));
    let missing = run.missing();
    let expected: Vec<u64> =
        (0..200).filter(|ms| ms % 20 / 5 == 2 || (100..150).contains(ms)).collect();
    assert_eq!(missing, expected);
}

#[test]
fn a_change_leaves_what_is_under_way_and_keeps_the_order() {
    let slow = plan("--delay 100ms --rate 12M --queue 60s");
    let mut run = Run::new(&slow);
    run.offer(us(0), &bulk(10));
    let mut options = LinkOptions::default();
    options.set("rate", "120M").unwrap();
    options.set("delay", "10ms").unwrap();
    let fast = options.change(&slow, &|_| Ok(String::new())).unwrap();
    run.model.set(us(5_000), &fast);
    run.offer(us(5_000), &bulk(1));
    run.offer(us(200_000), &bulk(1));
    let ms: Vec<f64> =
        run.arrivals.iter().map(|arrival| arrival.at.as_nanos() as f64 / 1e6).collect();
    assert_eq!(ms[..10], [101., 102., 103., 104., 105., 106., 107., 108., 109., 110.]);
    assert_eq!(ms[10..], [110., 210.1], "behind those before; then at the new rate");
}

#[test]
fn a_change_of_one_thing_does_not_disturb_another() {
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
