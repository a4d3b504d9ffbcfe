//! What is wrong with a link's figures: the bounds that a run has to keep, and the warnings of one
//! that did not.

use longhaul_core::plan::LinkPlan;
use longhaul_core::result::{DirectionReport, LinkWarning, ProcessorShare};

/// How late 1 in 1000 packets may leave before figures are called into question: a twentieth of
/// the round trip, and on short paths a millisecond, which is what a busy machine keeps to.
pub(crate) fn lateness_bound_ms(plan: &LinkPlan) -> f64 {
    (plan.rtt().as_secs_f64() * 1e3 / 20.0).max(1.0)
}

/// The part of its time for which the emulator may wait for a processor, or the host may withhold
/// this machine's, before figures are called into question. Below it the waits show as lateness, if
/// at all.
const STARVED: f64 = 0.05;

/// The least of either: the host's account has steps of 0.01 s, of which one says nothing of a short
/// run.
const LEAST_SECONDS: f64 = 0.05;

/// Whether the machine, which has so many processors, gave the emulator less than it needed.
pub(crate) fn starvation(processor: &ProcessorShare, processors: usize) -> Option<LinkWarning> {
    let ProcessorShare { seconds, waited_seconds, stolen_seconds, .. } = *processor;
    let beyond = |lost: f64, of: f64| lost > (STARVED * of).max(LEAST_SECONDS);
    (beyond(waited_seconds, seconds) || beyond(stolen_seconds, seconds * processors as f64))
        .then_some(LinkWarning::ProcessorStarved { waited_seconds, stolen_seconds, seconds })
}

/// What is wrong with a direction's figures.
pub(crate) fn verdicts(direction: &DirectionReport, bound_ms: f64) -> Vec<LinkWarning> {
    let from = direction.from;
    let mut warnings = Vec::new();
    let p999_ms = direction.lateness.p999_ms;
    if p999_ms > bound_ms {
        warnings.push(LinkWarning::BehindSchedule {
            from,
            p999_ms,
            bound_ms,
            cause: direction.lateness.causes.main(),
        });
    }
    if direction.interface_drops > 0 {
        warnings.push(LinkWarning::InterfaceDrops { from, packets: direction.interface_drops });
    }
    let packets = direction.dropped.memory_full.packets;
    if packets > 0 {
        warnings.push(LinkWarning::MemoryFull { from, packets });
    }
    let packets = direction.dropped.refused.packets;
    if packets > 0 {
        warnings.push(LinkWarning::Refused { from, packets });
    }
    if !direction.is_conserved() {
        warnings.push(LinkWarning::NotConserved { from });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::Side;
    use longhaul_core::result::{DropCounts, Impairments, Lateness, Traffic};
    use longhaul_core::units::Bytes;

    use super::*;

    fn clean() -> DirectionReport {
        DirectionReport {
            from: Side::Near,
            entered: Traffic { packets: 3, segments: 5, bytes: 900 },
            delivered: Traffic { packets: 3, segments: 5, bytes: 900 },
            dropped: DropCounts::default(),
            queued: Traffic::default(),
            waiting_bytes: Bytes::default(),
            interface_drops: 0,
            impairments: Impairments::default(),
            lateness: Lateness { p999_ms: 2.0, ..Lateness::default() },
            peak_memory_bytes: Bytes::mib(6),
        }
    }

    #[test]
    fn the_bound_of_lateness_follows_the_round_trip() {
        let bound = |rtt_ms| lateness_bound_ms(&LinkPlan::symmetric(Duration::from_millis(rtt_ms)));
        assert_eq!((bound(0), bound(180)), (1.0, 9.0));
        assert_eq!(verdicts(&clean(), bound(180)), []);
        assert!(matches!(verdicts(&clean(), bound(0))[..], [LinkWarning::BehindSchedule { .. }]));
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_is_starved() {
        let starved = |seconds, waited_seconds, stolen_seconds| {
            let busy_seconds = 0.1;
            let share = ProcessorShare { seconds, busy_seconds, waited_seconds, stolen_seconds };
            starvation(&share, 4).is_some()
        };
        assert!(!starved(10.0, 0.4, 1.9));
        assert!(starved(10.0, 0.6, 0.0));
        assert!(starved(10.0, 0.0, 2.1), "of four processors");
        assert!(!starved(0.1, 0.04, 0.04), "too short to tell");
        assert_eq!(starvation(&ProcessorShare::default(), 4), None, "nothing is known");
    }

    #[test]
    fn each_kind_of_loss_that_the_plan_did_not_ask_for_is_named() {
        let one = Traffic { packets: 1, segments: 1, bytes: 100 };
        let mut asked_for = clean();
        asked_for.impairments.lost = one.into();
        asked_for.entered += one;
        assert_eq!(verdicts(&asked_for, 9.0), []);

        let mut lossy = clean();
        lossy.interface_drops = 7;
        lossy.dropped.memory_full = one;
        lossy.dropped.refused = one;
        let from = Side::Near;
        assert_eq!(
            verdicts(&lossy, 9.0),
            [
                LinkWarning::InterfaceDrops { from, packets: 7 },
                LinkWarning::MemoryFull { from, packets: 1 },
                LinkWarning::Refused { from, packets: 1 },
                // Dropped, but never entered.
                LinkWarning::NotConserved { from },
            ]
        );
    }
}
