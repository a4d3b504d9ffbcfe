//! Tests of links that replay a recorded path.

use std::time::Duration;

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

/// Returns a recording whose probe `index` has the delay and fate of `probe` in each direction.
fn recording(probe: impl Fn(Side, u64) -> Option<i64>, capacity: Option<Rate>) -> String {
    recording_with_rates(probe, |_, _| capacity)
}

/// The same with the estimated capacity of each second.
fn recording_with_rates(
    probe: impl Fn(Side, u64) -> Option<i64>,
    capacity: impl Fn(Side, u64) -> Option<Rate>,
) -> String {
    let head = RecordingHead {
        schema: RecordingHead::SCHEMA.to_owned(),
        version: String::new(),
        target: "far".to_owned(),
        started_unix_seconds: 0,
        interval_seconds: 1.0 / PROBES as f64,
        packet_bytes: 128,
        same_clock: true,
        rate_every_seconds: 60.0,
    };
    let mut text = serde_json::to_string(&head).unwrap();
    for second in 0..SECONDS {
        let [up, down] = Side::BOTH.map(|side| RecordedProbes {
            delays_us: (0..PROBES).map(|index| probe(side, second * PROBES + index)).collect(),
            capacity_bps: capacity(side, second),
        });
        let window = RecordedWindow { seconds: second as f64, up, down };
        text.push('\n');
        text.push_str(&serde_json::to_string(&window).unwrap());
    }
    text
}

/// A path with queues that come and go, losses, pairs of losses and an outage.
fn path(side: Side, index: u64) -> Option<i64> {
    let noise =
        (2 * index + u64::from(side == Side::Far)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let lost = noise.is_multiple_of(50) || (4000..4040).contains(&index) || index % 2999 < 2;
    let wave = ((index as f64 / 700.0).sin() + 1.0) * 4000.0;
    Some(if lost { -1 } else { 20_000 + wave as i64 + (noise % 800) as i64 })
}

/// Measures the link that replays `text` with the probes of a recording, in virtual time. The probes
/// leave `late` after the times of the recording, and the far end answers at once.
fn measure_late(text: &str, late: Duration) -> PathRecording {
    let plan = plan_with_file("--replay file --seed 3", text);
    let requests: Vec<(LinkTime, usize)> = (0..(SECONDS * PROBES) as usize)
        .map(|index| (LinkTime::from_nanos(index as u64 * 10_000_000) + late, index))
        .collect();
    let up = delays(LinkModel::new(&plan, Side::Near), &requests);
    let answered = requests
        .iter()
        .zip(&up)
        .filter_map(|((at, index), delay)| Some((*at + Duration::from_micros((*delay)?), *index)));
    let mut answers: Vec<(LinkTime, usize)> = answered.collect();
    answers.sort_unstable();
    let down = delays(LinkModel::new(&plan, Side::Far), &answers);
    let fate = |delay: Option<u64>| delay.map_or(-1, |delay| delay as i64);
    let mut ways = [vec![None; requests.len()], vec![None; requests.len()]];
    for ((_, index), delay) in requests.iter().zip(up) {
        ways[0][*index] = Some(fate(delay));
    }
    for ((_, index), delay) in answers.iter().zip(down) {
        ways[1][*index] = Some(fate(delay));
    }
    let probe = |side, index| ways[usize::from(side == Side::Far)][index as usize];
    PathRecording::parse(&recording(probe, None)).unwrap()
}

fn measure(text: &str) -> PathRecording {
    measure_late(text, Duration::ZERO)
}

/// Returns the delays in us of probes with these times of entry; `None` if the link loses one.
fn delays(mut model: LinkModel, probes: &[(LinkTime, usize)]) -> Vec<Option<u64>> {
    let delay = |(now, _): &(LinkTime, usize)| {
        let mut pieces = Vec::new();
        model.offer(*now, &PacketShape::single(128), &mut pieces);
        pieces.first().map(|piece| piece.at.since(*now).as_micros() as u64)
    };
    probes.iter().map(delay).collect()
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
        let altered = |side, index| {
            path(side, index)
                .map(|delay| if delay < 0 { delay } else { (delay as f64 * factor) as i64 })
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
    let lower = plan_with_file("--replay file --down-rate 1G", &text);
    assert!(lower.up.replayed_rates.is_some() && lower.down.replayed_rates.is_none());
    // Every tenth probe takes 15 ms longer than the next, so it arrives after it.
    let late = |_, index: u64| Some(if index.is_multiple_of(10) { 35_000 } else { 20_000 });
    let text = recording(late, None);
    let recorded = PathRecording::parse(&text).unwrap().direction(Side::Near).reordered();
    assert_eq!(recorded, SECONDS * PROBES / 10);
    assert_eq!(measure(&text).direction(Side::Near).reordered(), recorded);
}

/// The capacity from near is 8 Mb/s for 40 s, then 80 Mb/s, and after 80 s 40 Mb/s; from far it is
/// three times as high.
fn stepped(side: Side, second: u64) -> Option<Rate> {
    let mbps = [8, 80, 40][second as usize / 40];
    let factor = if side == Side::Near { 1_000_000 } else { 3_000_000 };
    second.is_multiple_of(40).then_some(Rate::from_bps(mbps * factor))
}

/// Returns the number of packets of 1000 bytes that leave the queue in each second, if more arrive than
/// can leave.
fn sent_per_second(mut model: LinkModel, seconds: u64) -> Vec<u64> {
    let mut sent = vec![0; seconds as usize + 1];
    for number in 0..seconds * 40_000 {
        let mut pieces = Vec::new();
        let now = LinkTime::from_nanos(number * 25_000);
        model.offer(now, &PacketShape::single(1000), &mut pieces);
        for piece in pieces {
            let left = piece.at.as_nanos() - 20_000_000;
            sent[(left / 1_000_000_000).min(seconds) as usize] += 1;
        }
    }
    sent
}

#[test]
fn the_capacity_follows_the_recording_and_repeats() {
    let text = recording_with_rates(|_, _| Some(20_000), stepped);
    let plan = plan_with_file("--replay file --queue 10ms", &text);
    for side in Side::BOTH {
        let sent = sent_per_second(LinkModel::new(&plan, side), SECONDS + 45);
        for second in [1, 20, 39, 41, 79, 81, 119, 121, 160, 163] {
            let recorded = stepped(side, second % SECONDS / 40 * 40).unwrap();
            let expected = recorded.bps() / 8000;
            let found = sent[second as usize];
            assert!(found.abs_diff(expected) <= 2 + expected / 100, "{side:?} {second}: {found}");
        }
    }
}

/// A path whose jitter of 1.2 ms in the forward direction moves the answers between the slots of
/// the recording.
fn jittery(side: Side, index: u64) -> Option<i64> {
    let number = 2 * index + u64::from(side == Side::Far);
    let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.rotate_left(29);
    // The sum of four numbers from 0 to 2000 us is nearly normal.
    let sum: u64 = (0..4).map(|shift| (noise >> (16 * shift)) % 2001).sum();
    Some(16_000 + sum as i64)
}

#[test]
fn answers_meet_the_delays_of_their_own_slots_although_requests_arrive_irregularly() {
    let text = recording(jittery, None);
    let recorded = PathRecording::parse(&text).unwrap();
    // A probe may leave up to 2 ms late.
    for late_us in [0, 200, 2000] {
        let measured = measure_late(&text, Duration::from_micros(late_us));
        for side in Side::BOTH {
            let [one, other] = [&recorded, &measured].map(|path| path.direction(side).delays_ms());
            let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
            assert!(same * 100 >= one.len() * 98, "{side:?}, {late_us} us: {same}");
        }
        let certificate = certify(&recorded, &measured);
        assert!(certificate.passed, "{late_us} us: {certificate:#?}");
    }
}
