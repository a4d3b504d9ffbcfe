//! Tests of links that replay a recorded path.

use longhaul_core::path::certify;
use longhaul_core::plan::Side;
use longhaul_core::plan::link::{
    PathRecording, RecordedProbes, RecordedWindow, RecordingHead, Trace,
};
use longhaul_core::units::Rate;

use super::super::{LinkModel, LinkTime, PacketShape};
use super::plan_with_file;

const SECONDS: u64 = 120;
const PROBES: u64 = 100;

/// Returns a recording whose probe `index` has the delay and fate of `probe` in both directions.
fn recording(probe: impl Fn(u64) -> Option<i64>, capacity: Option<Rate>) -> String {
    let head = RecordingHead {
        schema: RecordingHead::SCHEMA.to_owned(),
        version: String::new(),
        target: "far".to_owned(),
        started_unix_seconds: 0,
        interval_seconds: 1.0 / PROBES as f64,
        packet_bytes: 128,
        same_clock: true,
    };
    let mut text = serde_json::to_string(&head).unwrap();
    for second in 0..SECONDS {
        let delays_us = (0..PROBES).map(|index| probe(second * PROBES + index)).collect();
        let probes = RecordedProbes { delays_us, capacity_bps: capacity };
        let window = RecordedWindow { seconds: second as f64, up: probes.clone(), down: probes };
        text.push('\n');
        text.push_str(&serde_json::to_string(&window).unwrap());
    }
    text
}

/// A path with queues that come and go, losses, pairs of losses and an outage.
fn path(index: u64) -> Option<i64> {
    let noise = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let lost = noise.is_multiple_of(50) || (4000..4040).contains(&index) || index % 2999 < 2;
    let wave = ((index as f64 / 700.0).sin() + 1.0) * 4000.0;
    Some(if lost { -1 } else { 20_000 + wave as i64 + (noise % 800) as i64 })
}

/// Measures the link that replays `text` with the probes of a recording, in virtual time.
fn measure(text: &str) -> PathRecording {
    let plan = plan_with_file("--replay file --seed 3", text);
    let mut model = LinkModel::new(&plan, Side::Near);
    // The probes fall into the middle of the slots.
    let delays: Vec<_> = (0..SECONDS * PROBES)
        .map(|index| {
            let now = LinkTime::from_nanos(index * 10_000_000 + 5_000_000);
            let mut pieces = Vec::new();
            model.offer(now, &PacketShape::single(128), &mut pieces);
            let delay = pieces.first().map(|piece| piece.at.since(now).as_micros() as i64);
            Some(delay.unwrap_or(-1))
        })
        .collect();
    PathRecording::parse(&recording(|index| delays[index as usize], None)).unwrap()
}

#[test]
fn a_replayed_path_has_the_distributions_of_the_recording() {
    let text = recording(path, None);
    let recorded = PathRecording::parse(&text).unwrap();
    let certificate = certify(&recorded, &measure(&text));
    assert!(certificate.passed, "{certificate:#?}");
    let done = certificate.checks.iter().filter(|check| check.passed.is_some()).count();
    assert!(done >= 10, "{certificate:#?}");
}

#[test]
fn a_replay_that_is_altered_by_five_percent_fails() {
    let recorded = PathRecording::parse(&recording(path, None)).unwrap();
    for factor in [0.95, 1.05] {
        let altered = |index| {
            path(index).map(|delay| if delay < 0 { delay } else { (delay as f64 * factor) as i64 })
        };
        let certificate = certify(&recorded, &measure(&recording(altered, None)));
        assert!(!certificate.passed, "{factor}: {certificate:#?}");
    }
}

#[test]
fn a_replay_has_the_recorded_capacity_and_reordering() {
    let text = recording(path, Some(Rate::from_bps(50_000_000)));
    let plan = plan_with_file("--replay file", &text);
    assert_eq!(plan.up.rate_bps, Some(Rate::from_bps(50_000_000)));
    let own = plan_with_file("--replay file --rate 1G", &text).up.rate_bps;
    assert_eq!(own, Some(Rate::from_bps(1_000_000_000)));
    // Every tenth probe takes 15 ms longer than the next, so it arrives after it.
    let late = |index: u64| Some(if index.is_multiple_of(10) { 35_000 } else { 20_000 });
    let text = recording(late, None);
    let recorded = PathRecording::parse(&text).unwrap().way(Side::Near).reordered();
    assert_eq!(recorded, SECONDS * PROBES / 10);
    assert_eq!(measure(&text).way(Side::Near).reordered(), recorded);
}
