//! Recognizes a part of the path that drops bursts instead of queueing them: a policer, or a switch
//! with few buffers.
//!
//! Random errors lose the same share of the segments in every test. A full link with a queue delays
//! packets before it drops them. A shallow queue does neither: its loss depends on the rate, and
//! the round-trip time does not grow. A congestion control that halves its window at each loss keeps
//! the loss so small that tests without a bound do not show this dependence. Therefore the
//! [test at a bounded rate](bounded_plan) decides if it sends enough segments.

use std::time::Duration;

use crate::result::{
    BoundedTest, DiagnosisStep, Evidence, Reason, StepReport, StepRound, TestLimit,
};
use crate::units::Rate;

/// The minimum loss in percent of the test with the highest loss: ten times that of a
/// link that works.
const LOSSY_PERCENT: f64 = 1.0;
/// The minimum ratio of the highest and the lowest loss. Random loss of 1e-3 or more varies by less
/// in a test of a second at 100 Mb/s, which sends 8,000 segments.
const VARIES: f64 = 3.0;
/// The loss in percent below which tests do not differ.
const LOWEST_PERCENT: f64 = 0.1;
/// The queueing delay of a shallow queue: at most this time, and this share of the round trip.
const QUEUE_MS: f64 = 0.5;
const QUEUE_PART: f64 = 0.05;
/// The same for the interval of a test with the highest delay, in which a busy host delays packets,
/// too. A slow start fills a deep queue for several round trips.
const PEAK_MS: f64 = 2.0;
const PEAK_PART: f64 = 0.15;
/// The rate of a bounded test relative to that of the tests over several connections. The kernel paces
/// in bursts of two segments or a millisecond (tcp_tso_autosize(), net/ipv4/tcp_output.c). At this rate
/// and with one connection, they are short enough for a queue of 20 KB at 500 Mb/s.
const BOUND: f64 = 0.25;
/// The longest bounded test, as a multiple of the duration of another test.
const LONGEST: f64 = 3.0;
/// The number of expected losses for which a bounded test is made longer, up to [`LONGEST`].
const WANTED_EXPECTED: f64 = 16.0;
/// The minimum number of segments that a bounded test would lose on a path with random errors. If
/// the expected number is 8, a Poisson variable is 2 or less with a probability of 1.4 %.
const LEAST_EXPECTED: f64 = 8.0;
/// The shares of the expected losses up to which loss depends on the rate, and from which on it
/// does not.
const VANISHED: f64 = 0.25;
const STAYED: f64 = 0.5;

/// A test over one connection at a bounded rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundedPlan {
    /// The rate.
    pub rate: Rate,
    /// The duration.
    pub time: Duration,
}

/// Returns the plan of a test that shows whether the loss of the tests depends on their rate;
/// `None` if they lose nothing, if a queue or a host explains the loss, or if three times `time`
/// are too short for enough segments.
pub fn bounded_plan(steps: &[StepReport], time: Duration) -> Option<BoundedPlan> {
    let of = |step| steps.iter().find(|report| report.step == step);
    let report = [DiagnosisStep::Memory, DiagnosisStep::MemoryOne].into_iter().find_map(of)?;
    let both = [DiagnosisStep::Memory, DiagnosisStep::MemoryOne].into_iter().filter_map(of);
    let tests: Vec<_> = both
        .flat_map(|report| &report.rounds)
        .filter_map(|round| Some((round, round.reason.as_deref()?)))
        .collect();
    let of_the_path = |(_, reason): &&(&StepRound, &Reason)| {
        use TestLimit::{CongestionWindow, LinkRate, Loss, Nothing, SendingProgram, ShallowQueue};
        // While TCP waits for a retransmission timeout, its socket looks idle.
        let idle = reason.facts.loss_percent >= LOSSY_PERCENT;
        match reason.limit {
            Loss | ShallowQueue | LinkRate | CongestionWindow => true,
            SendingProgram | Nothing => idle,
            _ => false,
        }
    };
    if 2 * tests.iter().filter(of_the_path).count() < tests.len() || explained(&tests) {
        return None;
    }
    let Sent { bytes_per_segment, loss } = sent(&tests)?;
    let rate = Rate::from_bps((BOUND * report.throughput_bps?.bps() as f64) as u64);
    let expected = loss * rate.bytes_per_second() as f64 * time.as_secs_f64() / bytes_per_segment;
    let factor = (WANTED_EXPECTED / expected).clamp(1.0, LONGEST);
    let enough = expected * factor >= LEAST_EXPECTED;
    enough.then(|| BoundedPlan { rate, time: time.mul_f64(factor) })
}

/// Returns the rate at which the copies found that the path drops segments that did not wait in a queue:
/// the highest one, because each is a delivered rate, which the drops lower.
pub(super) fn drop_threshold_of_copies(steps: &[StepReport]) -> Option<Rate> {
    let copies = steps.iter().flat_map(|step| &step.rounds).filter_map(|round| round.copy.as_ref());
    copies.filter_map(|copy| copy.path.drops_at_bps).max()
}

/// Returns the evidence of a shallow queue in the tests. `copied` is the rate that
/// [copies found](drop_threshold_of_copies).
pub(super) fn evidence(
    tests: &[(&StepRound, &Reason)],
    bounded: Option<&BoundedTest>,
    copied: Option<Rate>,
) -> Option<Evidence> {
    let measured = |(round, _): &&(&StepRound, &Reason)| round.late_loss_percent.is_some();
    let tests: Vec<_> = tests.iter().filter(measured).copied().collect();
    let shown = bounded.and_then(|bounded| depends(bounded, sent(&tests)?.loss));
    // Slow start overflows a shallow queue, too, but this loss does not show its depth.
    let share = |(round, reason): &(&StepRound, &Reason)| match shown {
        Some(_) => reason.facts.loss_percent,
        None => round.late_loss_percent.unwrap_or(0.0),
    };
    let losses = || tests.iter().map(share);
    let (least, most) = (losses().reduce(f64::min)?, losses().reduce(f64::max)?);
    let varies = most >= LOSSY_PERCENT && most >= VARIES * least.max(LOWEST_PERCENT);
    let explained_any = || tests.iter().any(|test| is_queued(test) || is_dropped_by_hosts(test));
    let is_shallow = match shown {
        Some(depends) => depends && !explained(&tests),
        None => varies && !explained_any(),
    };
    if !is_shallow {
        return None;
    }
    let rates = tests.iter().map(|(round, _)| round.throughput_bps);
    let queues = tests.iter().map(|(_, reason)| reason.facts.queue_ms());
    Some(Evidence::ShallowQueue {
        rate_bps: rates.chain(copied).max().unwrap_or(Rate::default()),
        least_percent: least,
        most_percent: most,
        queue_ms: queues.reduce(f64::max).unwrap_or(0.0),
    })
}

/// Returns whether the bounded test shows that the loss of the tests does not depend on the rate.
pub(super) fn is_at_every_rate(
    tests: &[(&StepRound, &Reason)],
    bounded: Option<&BoundedTest>,
) -> bool {
    bounded.and_then(|bounded| depends(bounded, sent(tests)?.loss)) == Some(false)
}

/// Returns whether packets wait in a queue for most of the time of a test.
fn is_queued((_, reason): &(&StepRound, &Reason)) -> bool {
    let (facts, delay_ms) = (&reason.facts, reason.facts.queue_ms());
    delay_ms > QUEUE_MS + QUEUE_PART * facts.rtt_min_ms && facts.fills_a_queue(delay_ms)
}

/// Returns whether the hosts dropped the segments that a test lost.
fn is_dropped_by_hosts((_, reason): &(&StepRound, &Reason)) -> bool {
    let facts = &reason.facts;
    let drops = facts.sender.drops.max(facts.receiver.drops);
    drops > 0 && drops as f64 >= facts.retransmits as f64 / 2.0
}

/// Returns whether a queue or a host explains the loss of most tests.
fn explained(tests: &[(&StepRound, &Reason)]) -> bool {
    let peaks = |(round, reason): &(&StepRound, &Reason)| {
        let most = PEAK_MS + PEAK_PART * reason.facts.rtt_min_ms;
        round.peak_queue_ms.is_some_and(|peak| peak > most && reason.facts.fills_a_queue(peak))
    };
    let explained =
        |test: &&(&StepRound, &Reason)| is_queued(test) || peaks(test) || is_dropped_by_hosts(test);
    2 * tests.iter().filter(explained).count() >= tests.len()
}

/// The segments of tests.
struct Sent {
    bytes_per_segment: f64,
    /// The retransmitted share.
    loss: f64,
}

/// Returns the segments of the tests; `None` if none was retransmitted.
fn sent(tests: &[(&StepRound, &Reason)]) -> Option<Sent> {
    // The number of segments follows from their loss, so it is unknown for a test without loss.
    let lossy = tests.iter().filter(|(_, reason)| reason.facts.loss_percent > 0.0);
    let (bytes, segments) = lossy.fold((0.0, 0.0), |(bytes, segments), (round, reason)| {
        let facts = &reason.facts;
        let sent = 100.0 * facts.retransmits as f64 / facts.loss_percent;
        (bytes + round.bytes.get() as f64, segments + sent)
    });
    if bytes == 0.0 || segments == 0.0 {
        return None;
    }
    let bytes_per_segment = bytes / segments;
    let (all_bytes, lost) = tests.iter().fold((0.0, 0.0), |(bytes, lost), (round, reason)| {
        (bytes + round.bytes.get() as f64, lost + reason.facts.retransmits as f64)
    });
    Some(Sent { bytes_per_segment, loss: lost * bytes_per_segment / all_bytes })
}

/// Returns whether a loss of the share `loss` of the segments depends on the rate; `None` if the
/// bounded test does not show it.
fn depends(bounded: &BoundedTest, loss: f64) -> Option<bool> {
    let (expected, lost) = (loss * bounded.segments as f64, bounded.retransmits as f64);
    if expected < LEAST_EXPECTED {
        None
    } else if lost <= VANISHED * expected {
        Some(true)
    } else {
        (lost >= STAYED * expected).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::TestFacts;
    use crate::units::Bytes;

    /// Returns a test of 20,000 segments with a loss in percent and a queueing delay at a round trip
    /// of 40 ms.
    fn test((loss, queue_ms): (f64, f64)) -> (StepRound, Reason) {
        let round = StepRound {
            throughput_bps: Rate::from_bps(200_000_000),
            late_loss_percent: Some(loss),
            bytes: Bytes::new(20_000 * 1448),
            peak_queue_ms: Some(2.0 * queue_ms),
            ..StepRound::default()
        };
        let (rtt_min_ms, rtt_ms) = (40.0, 40.0 + queue_ms);
        let retransmits = (200.0 * loss) as u64;
        let facts = TestFacts {
            rtt_ms,
            rtt_min_ms,
            retransmits,
            loss_percent: loss,
            streams: 4,
            ..TestFacts::default()
        };
        let reason = Reason { limit: TestLimit::Loss, ..Reason::derive(facts) };
        (round, reason)
    }

    fn bounded_found(tests: &[(f64, f64)], bounded: Option<(u64, u64)>) -> Option<Evidence> {
        let tests: Vec<_> = tests.iter().map(|one| test(*one)).collect();
        let bounded = bounded.map(|(segments, retransmits)| BoundedTest {
            segments,
            retransmits,
            ..BoundedTest::default()
        });
        let tests: Vec<_> = tests.iter().map(|(round, reason)| (round, reason)).collect();
        evidence(&tests, bounded.as_ref(), None)
    }

    fn found(tests: &[(f64, f64)]) -> Option<Evidence> {
        bounded_found(tests, None)
    }

    #[test]
    fn loss_that_depends_on_the_load_without_a_queue_is_a_shallow_queue() {
        let Some(Evidence::ShallowQueue { least_percent, most_percent, queue_ms, .. }) =
            found(&[(13.4, 0.9), (0.0, 0.4), (3.3, 0.5)])
        else {
            panic!("a shallow queue");
        };
        assert!((least_percent, most_percent) == (0.0, 13.4) && (queue_ms - 0.9).abs() < 1e-9);
    }

    #[test]
    fn random_loss_and_deep_queues_are_none() {
        for tests in [
            &[(3.1, 0.2), (2.8, 0.1)][..],
            &[(13.4, 9.0), (0.0, 0.4)],
            &[(0.4, 0.1), (0.0, 0.1)],
            &[],
        ] {
            assert_eq!(found(tests), None, "{tests:?}");
        }
    }

    #[test]
    fn the_bounded_test_decides_if_it_has_enough_segments() {
        // The sawtooth of CUBIC at a policer: the same small loss in every test.
        let sawtooth = &[(0.2, 0.1), (0.25, 0.1), (0.15, 0.2), (0.2, 0.1)][..];
        assert!(bounded_found(sawtooth, Some((10_000, 0))).is_some(), "20 are expected");
        assert!(bounded_found(sawtooth, Some((10_000, 3))).is_some());
        assert_eq!(bounded_found(sawtooth, Some((10_000, 18))), None, "random loss");
        assert_eq!(bounded_found(sawtooth, Some((3000, 0))), None, "6 are expected");
        // Random loss that happens to vary between two tests.
        let varies = &[(1.2, 0.1), (0.1, 0.1)][..];
        assert!(found(varies).is_some());
        assert_eq!(bounded_found(varies, Some((10_000, 60))), None);
        // Slow start overflows a deep queue, which the highest delay shows.
        let deep = &[(2.0, 6.0), (3.0, 5.0), (2.0, 0.2)][..];
        assert_eq!(bounded_found(deep, Some((10_000, 0))), None);
    }

    fn steps(tests: &[(f64, f64)]) -> Vec<StepReport> {
        let step = DiagnosisStep::Memory;
        let round = |one: &(f64, f64)| {
            let (round, reason) = test(*one);
            StepRound { reason: Some(Box::new(reason)), ..round }
        };
        let rounds: Vec<_> = tests.iter().map(round).collect();
        vec![StepReport {
            step,
            title: String::new(),
            throughput_bps: Some(Rate::from_bps(200_000_000)),
            files_per_second: None,
            rounds,
            note: String::new(),
        }]
    }

    #[test]
    fn loss_without_a_queue_is_tested_at_a_lower_rate() {
        let second = Duration::from_secs(1);
        let rate = Rate::from_bps(50_000_000);
        let plan = |tests: &[(f64, f64)]| bounded_plan(&steps(tests), second);
        // 50 Mb/s are 4,316 segments per second.
        assert_eq!(plan(&[(0.4, 0.1), (0.4, 0.1)]), Some(BoundedPlan { rate, time: second }));
        let time = plan(&[(0.2, 0.1), (0.2, 0.1)]).unwrap().time.as_secs_f64();
        assert!((1.8..1.9).contains(&time), "{time}");
        for tests in [&[(0.0, 0.1)][..], &[(0.01, 0.1)], &[(0.2, 9.0)], &[]] {
            assert_eq!(plan(tests), None, "{tests:?}");
        }
    }

    #[test]
    fn delayed_acknowledgements_of_small_windows_are_no_queue() {
        // Recorded: CUBIC at a policer of 500 Mb/s with 20 KB, one and four streams, an RTT of 20 ms.
        let recorded = |mbps: u64, loss_percent, retransmits, queue_ms, streams| {
            let facts = TestFacts {
                throughput_bps: Rate::from_bps(mbps * 1_000_000),
                rtt_min_ms: 20.0,
                rtt_ms: 20.0 + queue_ms,
                segment_bytes: 8948,
                congestion: "cubic".to_owned(),
                loss_percent,
                retransmits,
                streams,
                ..TestFacts::default()
            };
            let round = StepRound {
                throughput_bps: facts.throughput_bps,
                bytes: Bytes::new(8948 * retransmits * 100 / loss_percent as u64),
                late_loss_percent: Some(loss_percent),
                peak_queue_ms: Some(queue_ms),
                ..StepRound::default()
            };
            (round, Reason { limit: TestLimit::Loss, ..Reason::derive(facts) })
        };
        let tests = [recorded(7, 16.4, 113, 3.3, 1), recorded(25, 16.2, 402, 3.9, 4)];
        let tests: Vec<_> = tests.iter().map(|(round, reason)| (round, reason)).collect();
        let none = BoundedTest { segments: 90, retransmits: 0, ..BoundedTest::default() };
        let found = |copied| match evidence(&tests, Some(&none), copied) {
            Some(Evidence::ShallowQueue { rate_bps, .. }) => rate_bps.bps(),
            other => panic!("{other:?}"),
        };
        assert_eq!(found(None), 25_000_000);
        // The copies replaced CUBIC by BBR.
        assert_eq!(found(Some(Rate::from_bps(480_000_000))), 480_000_000);
        let random = BoundedTest { retransmits: 15, ..none };
        assert!(
            evidence(&tests, Some(&random), None).is_none()
                && is_at_every_rate(&tests, Some(&random))
        );
    }
}
