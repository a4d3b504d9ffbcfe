//! Recognises a place of the path that drops bursts instead of queueing them: a policer, or a
//! switch with few buffers.
//!
//! Random errors lose the same share of the segments in every test. A full link with a queue delays
//! packets before it drops them. A shallow queue does neither: its loss depends on the load, and
//! the round-trip time does not grow.

use crate::result::{Evidence, Reason, StepRound};
use crate::units::Rate;

/// The least loss in percent of the test with the highest loss: ten times that of a link that
/// works.
const LOSSY_PERCENT: f64 = 1.0;
/// The least ratio of the highest and the lowest loss. Random loss of 1e-3 or more varies by less
/// in a test of a second at 100 Mb/s, which sends 8,000 segments.
const VARIES: f64 = 3.0;
/// The loss in percent below which tests do not differ.
const LOWEST_PERCENT: f64 = 0.1;
/// The queueing delay of a shallow queue: at most this time, and this share of the round trip.
const QUEUE_MS: f64 = 0.5;
const QUEUE_PART: f64 = 0.05;

/// Returns the evidence of a shallow queue in the tests.
pub(super) fn evidence<'a>(
    tests: impl Iterator<Item = (&'a StepRound, &'a Reason)> + Clone,
) -> Option<Evidence> {
    let known = tests.filter_map(|(round, reason)| Some((round.late_loss_percent?, round, reason)));
    let losses = || known.clone().map(|(loss, ..)| loss);
    let (least, most) = (losses().reduce(f64::min)?, losses().reduce(f64::max)?);
    let queues = || known.clone().map(|(.., reason)| reason.facts.queue_ms());
    let queued =
        |reason: &Reason| reason.facts.queue_ms() > QUEUE_MS + QUEUE_PART * reason.facts.rtt_min_ms;
    let by_hosts = |reason: &Reason| {
        let drops = reason.facts.sender.drops.max(reason.facts.receiver.drops);
        drops > 0 && drops as f64 >= reason.facts.retransmits as f64 / 2.0
    };
    let varies = most >= LOSSY_PERCENT && most >= VARIES * least.max(LOWEST_PERCENT);
    if !varies || known.clone().any(|(.., reason)| queued(reason) || by_hosts(reason)) {
        return None;
    }
    let rates = known.clone().map(|(_, round, _)| round.throughput_bps);
    Some(Evidence::ShallowQueue {
        rate_bps: rates.max().unwrap_or(Rate::default()),
        least_percent: least,
        most_percent: most,
        queue_ms: queues().reduce(f64::max).unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::TestFacts;

    /// Returns a test with a loss in percent and a queueing delay at a round trip of 40 ms.
    fn test((loss, queue_ms): (f64, f64)) -> (StepRound, Reason) {
        let round = StepRound {
            throughput_bps: Rate::from_bps(200_000_000),
            late_loss_percent: Some(loss),
            ..StepRound::default()
        };
        let (rtt_min_ms, rtt_ms) = (40.0, 40.0 + queue_ms);
        (round, Reason::derive(TestFacts { rtt_ms, rtt_min_ms, ..TestFacts::default() }))
    }

    fn found(tests: &[(f64, f64)]) -> Option<Evidence> {
        let tests: Vec<_> = tests.iter().map(|one| test(*one)).collect();
        evidence(tests.iter().map(|(round, reason)| (round, reason)))
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
}
