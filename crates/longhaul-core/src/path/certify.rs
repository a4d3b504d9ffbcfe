//! Compares the recording of a path with the recording of a link that replays it.

use std::time::Duration;

use crate::plan::Side;
use crate::plan::link::{Fate, PathRecording, RateSchedule, RecordedDirection};
use crate::result::{
    RECORDING_CERTIFICATE_SCHEMA, RecordingCertificate, RecordingCheck, RecordingFigure,
};
use crate::stats::{kolmogorov_bound, median, pearson_p, proportion_interval, quantile};
use crate::units::Rate;

/// The probability that a correct check fails by chance.
const ALPHA: f64 = 1e-4;
/// The accepted deviation of a delay is the larger of two values: the accuracy of timing in ms, and
/// this share of the median delay.
const TOLERANCE_MS: f64 = 0.1;
const TOLERANCE: f64 = 0.01;
/// The accepted deviation of a capacity. The estimate of trains is a median.
const CAPACITY_TOLERANCE: f64 = 0.04;

/// The number of delays per second that count as independent. Both recordings cover one whole
/// cycle of the replay, and so the same queues; only the times of the probes are random.
const PER_SECOND: f64 = 10.0;

/// Compares two recordings, distribution by distribution.
pub fn certify(recorded: &PathRecording, rebuilt: &PathRecording) -> RecordingCertificate {
    let mut checks = Vec::new();
    for side in Side::BOTH {
        let directions = [recorded.direction(side), rebuilt.direction(side)];
        checks.push(delays(side, directions));
        checks.push(variation(side, directions));
        checks.push(share(side, RecordingFigure::Loss, directions.map(losses)));
        checks.push(share(side, RecordingFigure::Outage, directions.map(outages)));
        checks.push(runs(side, directions));
        checks.push(share(side, RecordingFigure::Reordering, directions.map(reordering)));
        checks.push(capacity(side, [recorded, rebuilt]));
    }
    RecordingCertificate {
        schema: RECORDING_CERTIFICATE_SCHEMA.to_owned(),
        seconds: rebuilt.time().as_secs_f64(),
        passed: checks.iter().all(|check| check.passed != Some(false)),
        checks,
        warnings: Vec::new(),
    }
}

/// Compares the distributions of delays.
fn delays(side: Side, directions: [&RecordedDirection; 2]) -> RecordingCheck {
    distribution(
        side,
        RecordingFigure::Delay,
        directions,
        directions.map(RecordedDirection::delays_ms),
    )
}

/// Compares the distributions of the differences between consecutive probes (RFC 3393).
fn variation(side: Side, directions: [&RecordedDirection; 2]) -> RecordingCheck {
    let differences = directions.map(|direction| {
        let delays = direction.delays_ms();
        delays.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect()
    });
    distribution(side, RecordingFigure::DelayVariation, directions, differences)
}

/// Compares two distributions by the Kolmogorov-Smirnov distance between them, after either is moved
/// by the tolerance. Consecutive delays are not independent, so at most [`PER_SECOND`] values per
/// second count for the bound.
fn distribution(
    side: Side,
    figure: RecordingFigure,
    directions: [&RecordedDirection; 2],
    mut values: [Vec<f64>; 2],
) -> RecordingCheck {
    let [recorded, rebuilt] = values.each_mut().map(|values| {
        values.sort_by(f64::total_cmp);
        median(values).unwrap_or_default()
    });
    let tolerance = TOLERANCE_MS.max(recorded * TOLERANCE);
    let [one, other] = &values;
    let distance = excess(one, other, tolerance).max(excess(other, one, tolerance));
    let counts = directions.map(|direction| {
        let seconds = direction.fates().len() as f64 * direction.interval().as_secs_f64();
        (seconds * PER_SECOND).min(direction.fates().len() as f64)
    });
    let count = counts[0] * counts[1] / (counts[0] + counts[1]);
    let bound = kolmogorov_bound(count.ceil().max(1.0) as usize, ALPHA);
    RecordingCheck {
        from: side,
        figure,
        recorded: Some(recorded),
        rebuilt: Some(rebuilt),
        distance: Some(distance),
        bound: Some(bound),
        passed: (bound < 1.0).then_some(distance <= bound),
    }
}

/// Returns the largest excess of the distribution of `one` over that of `other`, if `other` may be
/// later by `tolerance`.
fn excess(one: &[f64], other: &[f64], tolerance: f64) -> f64 {
    let share = |sorted: &[f64], x: f64| {
        sorted.partition_point(|value| *value <= x) as f64 / sorted.len().max(1) as f64
    };
    one.iter().map(|x| share(one, *x) - share(other, x + tolerance)).fold(0.0, f64::max)
}

fn count(direction: &RecordedDirection, fate: Fate) -> u64 {
    direction.fates().iter().filter(|other| **other == fate).count() as u64
}

/// Returns the number of lost probes, and the number of all probes, outside of outages.
fn losses(direction: &RecordedDirection) -> (u64, u64) {
    let lost = count(direction, Fate::Lost);
    (lost, lost + count(direction, Fate::Arrived))
}

/// Returns the number of seconds with an outage, and the number of all seconds. It counts seconds,
/// because the probes of an outage are not independent.
fn outages(direction: &RecordedDirection) -> (u64, u64) {
    let per_second = (1.0 / direction.interval().as_secs_f64()).ceil().max(1.0) as usize;
    let seconds = direction.fates().chunks(per_second);
    let hit = seconds.clone().filter(|fates| fates.contains(&Fate::Outage)).count();
    (hit as u64, seconds.count() as u64)
}

fn reordering(direction: &RecordedDirection) -> (u64, u64) {
    (direction.reordered(), count(direction, Fate::Arrived))
}

/// Compares two shares: they differ by more than chance if their confidence intervals do not overlap.
/// The standard deviation of the difference of two shares is about √2 times that of one share, so
/// intervals of the confidence 1 - √ALPHA fail to overlap by chance with a probability of about
/// [`ALPHA`].
fn share(
    side: Side,
    figure: RecordingFigure,
    [(one, of), (other, of_other)]: [(u64, u64); 2],
) -> RecordingCheck {
    let confidence = 1.0 - ALPHA.sqrt();
    let [first, second] = [
        proportion_interval(one, of, confidence),
        proportion_interval(other, of_other, confidence),
    ];
    let ratio = |hits: u64, of: u64| hits as f64 / of.max(1) as f64;
    RecordingCheck {
        from: side,
        figure,
        recorded: Some(ratio(one, of)),
        rebuilt: Some(ratio(other, of_other)),
        distance: None,
        bound: None,
        passed: (of > 0 && of_other > 0).then_some(first.0 <= second.1 && second.0 <= first.1),
    }
}

/// Compares the lengths of runs of lost probes by Pearson's chi-square test: single losses and
/// pairs; longer runs are outages.
fn runs(side: Side, directions: [&RecordedDirection; 2]) -> RecordingCheck {
    let lengths = |direction: &RecordedDirection| {
        let mut counts = [0_u64; 2];
        for run in direction.fates().chunk_by(|one, other| one == other) {
            if run[0] == Fate::Lost {
                counts[run.len().min(2) - 1] += 1;
            }
        }
        counts
    };
    let [recorded, rebuilt] = directions.map(lengths);
    let pairs = |[one, two]: [u64; 2]| two as f64 / (one + two).max(1) as f64;
    let total = [recorded[0] + rebuilt[0], recorded[1] + rebuilt[1]];
    let all = (total[0] + total[1]) as f64;
    let p = pearson_p(&rebuilt, &total.map(|count| count as f64 / all));
    // The test needs about five expected runs per cell.
    let enough = total[1] * (rebuilt[0] + rebuilt[1]) >= 5 * (total[0] + total[1]) && all > 0.0;
    RecordingCheck {
        from: side,
        figure: RecordingFigure::LossRuns,
        recorded: Some(pairs(recorded)),
        rebuilt: Some(pairs(rebuilt)),
        distance: None,
        bound: None,
        passed: p.filter(|_| enough).map(|p| p >= ALPHA),
    }
}

/// Compares the estimates of the capacity, each with the recorded one of its time. Three quarters of
/// them must be within the tolerance.
fn capacity(side: Side, [recorded, rebuilt]: [&PathRecording; 2]) -> RecordingCheck {
    let every = Duration::from_secs_f64(rebuilt.head().rate_every_seconds);
    let [recorded, rebuilt] = [recorded, rebuilt].map(|path| path.direction(side));
    let steps = |direction: &RecordedDirection| match direction.rates().map(|rates| &**rates) {
        Some(RateSchedule::Steps(steps)) => Some(steps.clone()),
        _ => None,
    };
    let deviations = steps(recorded).zip(steps(rebuilt)).map(|(recorded, rebuilt)| {
        let deviation = |(start, rate): (Duration, Rate)| {
            // An estimate holds for the probes after it, and those of both recordings coincide only
            // roughly.
            let (expected, _) = recorded.at(start + every / 2);
            (rate.bps() as f64 / expected.bps() as f64 - 1.0).abs()
        };
        rebuilt.steps().map(deviation).collect::<Vec<f64>>()
    });
    let distance = deviations.and_then(|all| quantile(&all, 0.75));
    let [recorded, rebuilt] =
        [recorded, rebuilt].map(|direction| direction.capacity().map(|rate| rate.bps() as f64));
    RecordingCheck {
        from: side,
        figure: RecordingFigure::Capacity,
        recorded,
        rebuilt,
        distance,
        bound: Some(CAPACITY_TOLERANCE),
        passed: distance.map(|distance| distance <= CAPACITY_TOLERANCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::link::{RecordedProbes, RecordedWindow, RecordingHead, Trace};

    /// Returns pseudorandom numbers from 0 to 1.
    fn noise(seed: u64, index: u64) -> f64 {
        let mut x = index.wrapping_add(seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ x >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a recording of ten minutes with a wavy delay, whose delays, losses and capacity are
    /// scaled.
    fn recording(seed: u64, delay: f64, loss: f64, capacity: f64) -> PathRecording {
        varied(seed, delay, loss, [capacity; 3])
    }

    /// The same with an estimate of the capacity every 200 s.
    fn varied(seed: u64, delay: f64, loss: f64, capacities: [f64; 3]) -> PathRecording {
        let head = RecordingHead {
            schema: RecordingHead::SCHEMA.to_owned(),
            version: String::new(),
            target: "far".to_owned(),
            started_unix_seconds: 0,
            interval_seconds: 0.01,
            packet_bytes: 128,
            same_clock: true,
            rate_every_seconds: 200.0,
        };
        let mut text = serde_json::to_string(&head).unwrap();
        for second in 0..600_u64 {
            let probe = |index: u64| {
                let index = second * 100 + index;
                if noise(seed + 1, index) < 0.01 * loss {
                    return Some(-1);
                }
                let wave = (index as f64 / 3000.0).sin() * 2.0;
                Some(((45.0 + wave + noise(seed, index)) * delay * 1e3) as i64)
            };
            let capacity = Rate::from_bps((1e8 * capacities[second as usize / 200]) as u64);
            let probes = RecordedProbes {
                delays_us: (0..100).map(probe).collect(),
                capacity_bps: second.is_multiple_of(200).then_some(capacity),
            };
            let window =
                RecordedWindow { seconds: second as f64, up: probes.clone(), down: probes };
            text.push('\n');
            text.push_str(&serde_json::to_string(&window).unwrap());
        }
        PathRecording::parse(&text).unwrap()
    }

    fn failed(certificate: &RecordingCertificate) -> Vec<RecordingFigure> {
        let failed = certificate.checks.iter().filter(|check| check.passed == Some(false));
        failed.map(|check| check.figure).collect()
    }

    #[test]
    fn an_equal_path_passes() {
        let certificate = certify(&recording(1, 1.0, 1.0, 1.0), &recording(7, 1.0, 1.0, 1.01));
        assert!(certificate.passed, "{certificate:?}");
        let done = certificate.checks.iter().filter(|check| check.passed.is_some()).count();
        assert!(done >= 12, "{certificate:?}");
    }

    #[test]
    fn an_error_of_five_percent_fails() {
        let good = recording(1, 1.0, 1.0, 1.0);
        for factor in [0.95, 1.05] {
            let found = failed(&certify(&good, &recording(7, factor, 1.0, 1.0)));
            assert_eq!(found, [RecordingFigure::Delay; 2], "delay by {factor}");
            let found = failed(&certify(&good, &recording(7, 1.0, 1.0, factor)));
            assert_eq!(found, [RecordingFigure::Capacity; 2], "capacity by {factor}");
        }
        let rising = varied(1, 1.0, 1.0, [1.0, 2.0, 4.0]);
        let found = failed(&certify(&rising, &varied(7, 1.0, 1.0, [2.0, 2.0, 2.0])));
        assert_eq!(
            found,
            [RecordingFigure::Capacity; 2],
            "a constant replay of a capacity that rises"
        );
        assert!(certify(&rising, &varied(7, 1.0, 1.0, [1.01, 2.02, 3.97])).passed);
        // 60,000 probes with 1 % of losses detect a share that is wrong by a half.
        let found = failed(&certify(&good, &recording(7, 1.0, 1.5, 1.0)));
        assert!(found.contains(&RecordingFigure::Loss), "{found:?}");
    }
}
