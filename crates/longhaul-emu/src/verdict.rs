//! Judges a link's report: the bounds that a valid run stays within, and the warnings of an invalid
//! one.

use longhaul_core::plan::LinkPlan;
use longhaul_core::result::{DirectionReport, LinkWarning, ProcessorShare};

/// Returns the lateness in ms that only 1 in 1000 packets may exceed in a valid run: a twentieth of
/// the round trip, but at least 1 ms, which a busy machine can keep.
pub(crate) fn lateness_bound_ms(plan: &LinkPlan) -> f64 {
    (plan.rtt().as_secs_f64() * 1e3 / 20.0).max(1.0)
}

/// The share of its time for which the emulator may wait for a processor, or a hypervisor may take
/// processors, in a valid run. Shorter waits show up as lateness, if at all.
const STARVED: f64 = 0.05;

/// The least time that counts as either: the hypervisor's account has steps of 0.01 s, and one step
/// says nothing about a short run.
const LEAST_SECONDS: f64 = 0.05;

/// Returns a warning if the machine, which has `processors` processors, gave the emulator too
/// little time.
pub(crate) fn starvation(processor: &ProcessorShare, processors: usize) -> Option<LinkWarning> {
    let ProcessorShare { seconds, waited_seconds, stolen_seconds, .. } = *processor;
    let beyond = |lost: f64, of: f64| lost > (STARVED * of).max(LEAST_SECONDS);
    (beyond(waited_seconds, seconds) || beyond(stolen_seconds, seconds * processors as f64))
        .then_some(LinkWarning::ProcessorStarved { waited_seconds, stolen_seconds, seconds })
}

/// Returns the warnings about the figures of a direction.
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
                // The report counts drops of packets that never entered.
                LinkWarning::NotConserved { from },
            ]
        );
    }
}
