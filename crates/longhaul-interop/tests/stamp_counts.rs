//! A STAMP measurement in virtual time: the counts are those of the network, and nothing that a
//! network, a clock or a reflector does confuses them.

mod network;

use std::time::Duration;

use longhaul_core::plan::StampPlan;
use longhaul_core::result::StampNumbering;
use longhaul_interop::stamp::{ReflectorSettings, StampKey};
use network::{Direction, Network};

const HOUR: Duration = Duration::from_secs(3600);

fn plan(packets: u64) -> StampPlan {
    StampPlan { packets: Some(packets), ..StampPlan::new() }
}

fn direction(delay_ms: u64) -> Direction {
    Direction { delay: Duration::from_millis(delay_ms), ..Direction::default() }
}

fn key(digits: &str) -> Option<StampKey> {
    StampKey::parse(&digits.repeat(16)).ok()
}

#[test]
fn loss_per_direction_is_exactly_that_of_the_network() {
    for seed in 0..30 {
        let lossy = |delay, loss| Direction { loss, ..direction(delay) };
        let network =
            Network { directions: [lossy(5, 2e-2), lossy(40, 1e-2)], seed, ..Network::default() };
        let outcome = network.run(plan(2000), HOUR);
        let [there, back] = outcome.counts;
        let found = &outcome.last().figures;
        assert_eq!(outcome.machine.reflector().numbering, StampNumbering::Stateful);
        let lost = (found.forward.lost.unwrap(), found.reverse.lost.unwrap());
        assert_eq!((lost.0.count, lost.0.of), (there.lost, there.entered), "seed {seed}");
        assert_eq!((lost.1.count, lost.1.of), (back.lost, back.entered), "seed {seed}");
        assert_eq!((found.undetermined, found.sent), (0, there.entered));
        assert_eq!(found.lost.count, there.lost + back.lost);
        assert_eq!(found.reverse.reordered.count + found.forward.reordered.count, 0);
    }
}

#[test]
fn duplicates_are_counted_in_the_direction_that_made_them() {
    for seed in 0..10 {
        let twice = |duplicate| Direction { duplicate, ..direction(10) };
        let network =
            Network { directions: [twice(2e-2), twice(1e-2)], seed, ..Network::default() };
        let outcome = network.run(plan(2000), HOUR);
        let [there, back] = outcome.counts;
        let found = &outcome.last().figures;
        assert_eq!(found.forward.duplicated.count, there.duplicated, "seed {seed}");
        assert_eq!(found.reverse.duplicated.count, back.duplicated, "seed {seed}");
        assert_eq!((found.lost.count, found.forward.lost.unwrap().count), (0, 0));
        assert_eq!(found.reverse.lost.unwrap().count, 0);
    }
}

#[test]
fn loss_is_exact_beside_duplicates_unless_both_hit_one_gap() {
    let mut exact = 0;
    for seed in 0..30 {
        let bad = Direction { loss: 1e-2, duplicate: 1e-2, ..direction(10) };
        let network = Network { directions: [bad; 2], seed, ..Network::default() };
        let outcome = network.run(plan(2000), HOUR);
        let [there, back] = outcome.counts;
        let found = &outcome.last().figures;
        let lost = (found.forward.lost.unwrap().count, found.reverse.lost.unwrap().count);
        exact += u32::from(lost == (there.lost, back.lost));
        assert!(lost.0.abs_diff(there.lost) <= 1 && lost.1.abs_diff(back.lost) <= 1, "seed {seed}");
    }
    assert!(exact >= 28, "{exact} of 30 runs are exact");
}

#[test]
fn reordering_is_counted_in_its_direction_and_is_no_loss() {
    let mixed = Direction { reorder: 2e-2, loss: 1e-2, ..direction(10) };
    for (directions, way) in [([mixed, direction(10)], 0), ([direction(10), mixed], 1)] {
        let network = Network { directions, ..Network::default() };
        let outcome = network.run(plan(3000), HOUR);
        let found = &outcome.last().figures;
        let ways = [&found.forward, &found.reverse];
        assert!((30..100).contains(&ways[way].reordered.count), "{:?}", ways[way].reordered);
        assert_eq!(ways[1 - way].reordered.count, 0);
        assert!(ways[way].reordering_extent >= 3);
        let lost = ways.map(|way| way.lost.unwrap().count);
        assert_eq!(lost, outcome.counts.map(|counts| counts.lost));
    }
}

#[test]
fn delays_are_those_of_the_network_and_of_the_clocks() {
    for offset_ns in [0, 7_000_000, -60_000_000_000] {
        let directions = [direction(15), direction(5)];
        let network = Network { directions, offset_ns, ..Network::default() };
        let found = &network.run(plan(100), HOUR).reports[0].figures.clone();
        let rtt = found.rtt.as_ref().unwrap();
        assert!((rtt.p50_ms - 20.0).abs() < 1e-6 && (rtt.max_ms - 20.0).abs() < 1e-6, "{rtt:?}");
        let offset = offset_ns as f64 / 1e6;
        let (there, back) = (found.forward.delay.unwrap(), found.reverse.delay.unwrap());
        assert!((there.p50_ms - 15.0 - offset).abs() < 1e-3, "{there:?}");
        assert!((back.min_ms - 5.0 + offset).abs() < 1e-3, "{back:?}");
        assert!(found.forward.variation.unwrap().max_ms < 1e-3);
        assert_eq!(found.untimed, 0);
    }
}

#[test]
fn a_stateless_reflector_gives_loss_of_the_round_trip_only() {
    let lossy = Direction { loss: 2e-2, ..direction(10) };
    let settings = ReflectorSettings { stateful: false, ..ReflectorSettings::default() };
    let network = Network { directions: [lossy; 2], settings, ..Network::default() };
    let outcome = network.run(plan(1000), HOUR);
    let found = &outcome.last().figures;
    assert_eq!(outcome.machine.reflector().numbering, StampNumbering::Stateless);
    assert_eq!((found.forward.lost, found.reverse.lost), (None, None));
    let lost: u64 = outcome.counts.iter().map(|counts| counts.lost).sum();
    assert_eq!(found.lost.count, lost);
}

#[test]
fn a_stateful_reflector_is_recognized_if_only_replies_are_lost() {
    let lossy = Direction { loss: 5e-2, ..direction(10) };
    let network = Network { directions: [direction(10), lossy], ..Network::default() };
    let outcome = network.run(plan(500), HOUR);
    assert_eq!(outcome.machine.reflector().numbering, StampNumbering::Stateful);
    let found = &outcome.last().figures;
    assert_eq!(found.forward.lost.unwrap().count, 0);
    assert_eq!(found.reverse.lost.unwrap().count, outcome.counts[1].lost);
}

#[test]
fn replies_of_twamp_light_are_enough() {
    let network = Network { cut: 41, ..Network::default() };
    let outcome = network.run(plan(50), HOUR);
    let found = &outcome.last().figures;
    assert_eq!((found.answered, found.lost.count), (50, 0));
    assert!(!outcome.machine.reflector().extensions && found.rtt.is_some());
    let short = Network { cut: 40, ..Network::default() }.run(plan(50), HOUR);
    let silence = short.silence.unwrap();
    assert_eq!((silence.short, silence.sent), (Some(40), 5));
}

#[test]
fn authenticated_ends_need_the_same_key() {
    let settings = ReflectorSettings { key: key("42"), ..ReflectorSettings::default() };
    let network = Network { settings, key: key("42"), ..Network::default() };
    let authenticated = |packets| StampPlan { authenticated: true, ..plan(packets) };
    let outcome = network.run(authenticated(50), HOUR);
    assert_eq!(outcome.last().figures.answered, 50);
    assert!(outcome.machine.reflector().extensions, "their HMAC was verified");
    let other = Network { key: key("43"), ..network.clone() };
    let silence = other.run(authenticated(50), HOUR).silence.unwrap();
    assert_eq!((silence.sent, silence.waited), (5, Duration::from_secs(5)));
}

#[test]
fn a_step_of_the_clock_changes_no_delay() {
    for by in [3_600_000_000_000, -3_600_000_000_000] {
        let step = Some((Duration::from_millis(1007), by));
        let directions = [direction(50), direction(50)];
        let network = Network { step, directions, ..Network::default() };
        let found = network.run(plan(300), HOUR).reports[0].figures.clone();
        assert_eq!((found.clock_steps, found.lost.count), (1, 0));
        assert!((5..30).contains(&found.untimed), "{}", found.untimed);
        let rtt = found.rtt.unwrap();
        assert!((rtt.min_ms - 100.0).abs() < 1e-6 && (rtt.max_ms - 100.0).abs() < 1e-6);
    }
}

#[test]
fn a_reflector_that_is_away_leaves_a_gap_in_the_records() {
    let outage = Some((Duration::from_secs(100), Duration::from_secs(190)));
    let network = Network { outage, ..Network::default() };
    let plan = StampPlan {
        packets: None,
        interval: Duration::from_millis(100),
        record: Duration::from_secs(60),
        ..StampPlan::new()
    };
    let mut records = Vec::new();
    network.run_with(plan, Duration::from_secs(400), |report| records.push(report.clone()));
    let counts: Vec<_> = records
        .iter()
        .map(|record| {
            let found = &record.figures;
            (found.sent, found.lost.count, found.restarts, found.undetermined)
        })
        .collect();
    // 100 s to 190 s: 20 s of the second period, all of the third, 10 s of the fourth.
    assert_eq!(counts[0], (600, 0, 0, 0));
    assert_eq!((counts[1].1, counts[2].1, counts[3].1), (200, 600, 100));
    assert_eq!(counts.iter().map(|count| count.2).sum::<u64>(), 1);
    assert_eq!(&counts[4..], [(600, 0, 0, 0), (600, 0, 0, 0)]);
    for record in &records {
        assert_eq!(record.length, Duration::from_secs(60));
        let rtt: u64 = record.histograms.rtt.iter().map(|(_, count)| count).sum();
        assert_eq!(rtt, record.figures.answered);
    }
    let starts: Vec<_> = records.iter().map(|record| record.unix_ns - network::START_NS).collect();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 60_000_000_000), "{starts:?}");
}

#[test]
fn one_packet_is_a_measurement() {
    let found = Network::default().run(plan(1), HOUR).reports[0].figures.clone();
    assert_eq!((found.sent, found.answered, found.forward.lost), (1, 1, None));
}
